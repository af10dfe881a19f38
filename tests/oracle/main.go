// Command oracle: first slice, does it resolve and compile.
package main

import (
	_ "github.com/google/cadvisor/lib/machine"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
	_ "k8s.io/kubernetes/pkg/features"
	_ "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	_ "k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	_ "k8s.io/kubernetes/pkg/kubelet/cadvisor"
	_ "k8s.io/kubernetes/pkg/kubelet/cm"
	_ "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	_ "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	_ "k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

func main() {}
