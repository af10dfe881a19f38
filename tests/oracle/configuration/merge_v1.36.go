//go:build v1.36 || v1.37

package configuration

import (
	_ "unsafe" // for go:linkname

	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

//go:linkname mergeKubeletConfigurations k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func mergeKubeletConfigurations(configuration *kubeletconfig.KubeletConfiguration, folder string) ([]string, error)

func merge(configuration *kubeletconfig.KubeletConfiguration, folder string) error {
	_, err := mergeKubeletConfigurations(configuration, folder)
	return err
}
