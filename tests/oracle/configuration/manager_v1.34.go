//go:build v1.34

package configuration

import (
	"context"
	_ "unsafe" // for go:linkname

	"gpufleet.node/oracle/machine"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/mount-utils"
	"k8s.io/utils/cpuset"
)

//go:linkname getReservedCPUs k8s.io/kubernetes/cmd/kubelet/app.getReservedCPUs
func getReservedCPUs(info *machine.Info, cpus string) (cpuset.CPUSet, error)

func reservedCPUs(_ context.Context, info *machine.Info, cpus string) (cpuset.CPUSet, error) {
	return getReservedCPUs(info, cpus)
}

func newContainerManager(_ context.Context, info *machine.Info, c cm.NodeConfig, failSwapOn bool) (cm.ContainerManager, error) {
	return cm.NewContainerManager(mount.New(""), stub{info: info}, c, failSwapOn, record.NewFakeRecorder(100), nil)
}
