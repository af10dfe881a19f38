//go:build v1.34 || v1.35 || v1.36

package machine

import (
	model "github.com/google/cadvisor/info/v1"
	"github.com/google/cadvisor/machine"
	"github.com/google/cadvisor/utils/sysfs"
	"github.com/google/cadvisor/utils/sysinfo"
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
