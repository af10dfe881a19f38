//go:build v1.37

package machine

import (
	"os"

	"github.com/google/cadvisor/lib/machine"
	model "github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/cadvisor/lib/utils/sysinfo"
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
