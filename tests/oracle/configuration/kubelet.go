package configuration

import (
	"context"
	"unsafe"

	_ "k8s.io/component-base/logs/json/register"
	"k8s.io/component-base/metrics"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// What cmd/kubelet does with its files and flags is in functions that it doesn't export. They are called, not written again.

//go:linkname loadConfigFile k8s.io/kubernetes/cmd/kubelet/app.loadConfigFile
func loadConfigFile(ctx context.Context, name string) (*kubeletconfig.KubeletConfiguration, error)

//go:linkname flagPrecedence k8s.io/kubernetes/cmd/kubelet/app.kubeletConfigFlagPrecedence
func flagPrecedence(configuration *kubeletconfig.KubeletConfiguration, flags []string) error

//go:linkname validateNodeAllocatable k8s.io/kubernetes/pkg/kubelet/cm.(*containerManagerImpl).validateNodeAllocatable
func validateNodeAllocatable(manager unsafe.Pointer) error

//go:linkname defaultRegistry k8s.io/component-base/metrics/legacyregistry.defaultRegistry
var defaultRegistry metrics.KubeRegistry

// allocatable is the one check in the container manager's Start that touches nothing.
func allocatable(manager cm.ContainerManager) error {
	type words struct{ table, value unsafe.Pointer }
	return validateNodeAllocatable((*words)(unsafe.Pointer(&manager)).value)
}
