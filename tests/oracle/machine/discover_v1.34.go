//go:build v1.34

package machine

import "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"

func discover(info *Info) (*topology.CPUTopology, error) { return topology.Discover(info) }
