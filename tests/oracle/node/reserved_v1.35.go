//go:build v1.35 || v1.36 || v1.37

package node

import (
	"context"
	_ "unsafe" // for go:linkname

	"gpufleet.node/oracle/machine"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
)

//go:linkname getReservedCPUs k8s.io/kubernetes/cmd/kubelet/app.getReservedCPUs
func getReservedCPUs(logger klog.Logger, info *machine.Info, cpus string) (cpuset.CPUSet, error)

func reservedCPUs(ctx context.Context, info *machine.Info, cpus string) (cpuset.CPUSet, error) {
	return getReservedCPUs(klog.FromContext(ctx), info, cpus)
}
