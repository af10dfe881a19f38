//go:build v1.37

package machine

import (
	"github.com/google/cadvisor/lib/machine"
	model "github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/cadvisor/lib/utils/sysinfo"
)

// Info is what cadvisor knows about a machine.
type Info = model.MachineInfo

var (
	getTopology      = machine.GetTopology
	getMemory        = machine.GetMachineMemoryCapacity
	getHugePages     = sysinfo.GetHugePagesInfo
	getPhysicalCores = machine.GetPhysicalCores
	getSockets       = machine.GetSockets
	newRealSysFs     = sysfs.NewRealSysFs
)
