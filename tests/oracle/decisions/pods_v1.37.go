//go:build v1.37

package decisions

import (
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
)

// defaultPodLevel completes the resources of the pod as a whole, which the API server does after all else since 1.37.
func defaultPodLevel(pod *core.Pod) { podutil.DefaultPodLevelResources(pod) }
