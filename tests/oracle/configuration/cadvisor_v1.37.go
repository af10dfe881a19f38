//go:build v1.37

package configuration

import (
	"gpufleet.node/oracle/machine"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
)

// stub is a cadvisor that knows the machine and nothing else.
type stub struct {
	cadvisor.Interface
	info *machine.Info
}

func (s stub) MachineInfo(klog.Logger) (*machine.Info, error) { return s.info, nil }
