//go:build v1.35 || v1.36 || v1.37

package machine

import (
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
)

func discover(info *Info) (*topology.CPUTopology, error) {
	return topology.Discover(klog.Background(), info)
}
