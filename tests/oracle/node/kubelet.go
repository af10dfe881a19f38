package node

import (
	_ "unsafe" // for go:linkname

	v1 "k8s.io/api/core/v1"
	_ "k8s.io/kubernetes/cmd/kubelet/app"
)

// As in package configuration: what kubelet doesn't export is called, not written again.

//go:linkname parseResourceList k8s.io/kubernetes/cmd/kubelet/app.parseResourceList
func parseResourceList(amounts map[string]string) (v1.ResourceList, error)
