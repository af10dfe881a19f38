//go:build v1.34 || v1.35 || v1.36

package machine

import (
	"os"

	model "github.com/google/cadvisor/info/v1"
	"github.com/google/cadvisor/machine"
	"github.com/google/cadvisor/utils/sysfs"
	"github.com/google/cadvisor/utils/sysinfo"
)

// Info is what cadvisor knows about a machine.
type Info = model.MachineInfo

func read() (*Info, error) {
	files := sysfs.NewRealSysFs()
	nodes, cpus, err := machine.GetTopology(files)
	if err != nil {
		return nil, err
	}
	memory, err := machine.GetMachineMemoryCapacity()
	if err != nil {
		return nil, err
	}
	pools, err := sysinfo.GetHugePagesInfo(files, "/sys/kernel/mm/hugepages/")
	if err != nil {
		return nil, err
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	return &Info{
		NumCores:         cpus,
		NumPhysicalCores: machine.GetPhysicalCores(cpuinfo),
		NumSockets:       machine.GetSockets(cpuinfo),
		MemoryCapacity:   memory,
		HugePages:        pools,
		Topology:         nodes,
	}, nil
}
