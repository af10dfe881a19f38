//go:build v1.34 || v1.35 || v1.36

package configuration

import (
	"gpufleet.node/oracle/machine"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
)

// stub is a cadvisor that knows the machine and nothing else.
type stub struct {
	cadvisor.Interface
	info *machine.Info
}

func (s stub) MachineInfo() (*machine.Info, error) { return s.info, nil }
