//go:build v1.34 || v1.35

package configuration

import (
	_ "unsafe" // for go:linkname

	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
)

//go:linkname mergeKubeletConfigurations k8s.io/kubernetes/cmd/kubelet/app.mergeKubeletConfigurations
func mergeKubeletConfigurations(configuration *kubeletconfig.KubeletConfiguration, folder string) error

func merge(configuration *kubeletconfig.KubeletConfiguration, folder string) error {
	return mergeKubeletConfigurations(configuration, folder)
}
