//go:build v1.34 || v1.35 || v1.36

package decisions

import "k8s.io/kubernetes/pkg/apis/core"

// defaultPodLevel: until 1.36 the scheme's defaults are all.
func defaultPodLevel(*core.Pod) {}
