//go:build v1.35 || v1.36 || v1.37

package configuration

import (
	"context"
	_ "unsafe" // for go:linkname

	"gpufleet.node/oracle/machine"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/mount-utils"
	"k8s.io/utils/cpuset"
)

//go:linkname getReservedCPUs k8s.io/kubernetes/cmd/kubelet/app.getReservedCPUs
func getReservedCPUs(logger klog.Logger, info *machine.Info, cpus string) (cpuset.CPUSet, error)

func reservedCPUs(ctx context.Context, info *machine.Info, cpus string) (cpuset.CPUSet, error) {
	return getReservedCPUs(klog.FromContext(ctx), info, cpus)
}

func newContainerManager(ctx context.Context, info *machine.Info, c cm.NodeConfig, failSwapOn bool) (cm.ContainerManager, error) {
	return cm.NewContainerManager(ctx, mount.New(""), stub{info: info}, c, failSwapOn, record.NewFakeRecorder(100), nil)
}
