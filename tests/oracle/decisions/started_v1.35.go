//go:build v1.35 || v1.36

package decisions

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

func started(ctx context.Context, k *kubelet, pod *v1.Pod, container *v1.Container, id string) {
	logger := klog.FromContext(ctx)
	k.cpus.AddContainer(logger, pod, container, id)
	k.memory.AddContainer(logger, pod, container, id)
	k.topology.AddContainer(pod, container, id)
}
