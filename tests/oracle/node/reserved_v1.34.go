//go:build v1.34

package node

import (
	"context"
	_ "unsafe" // for go:linkname

	"gpufleet.node/oracle/machine"
	"k8s.io/utils/cpuset"
)

//go:linkname getReservedCPUs k8s.io/kubernetes/cmd/kubelet/app.getReservedCPUs
func getReservedCPUs(info *machine.Info, cpus string) (cpuset.CPUSet, error)

func reservedCPUs(_ context.Context, info *machine.Info, cpus string) (cpuset.CPUSet, error) {
	return getReservedCPUs(info, cpus)
}
