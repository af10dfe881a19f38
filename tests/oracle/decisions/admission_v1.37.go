//go:build v1.37

package decisions

import (
	"context"

	"gpufleet.node/oracle/machine"
	"gpufleet.node/oracle/node"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
)

// What 1.37 changed: a context and a logger for the rest.

func newTopologyManager(ctx context.Context, n *node.Node) (topologymanager.Manager, error) {
	c := n.Manager
	return topologymanager.NewManager(klog.FromContext(ctx), n.Machine.Topology, c.TopologyManagerPolicy, c.TopologyManagerScope, c.TopologyManagerPolicyOptions)
}

func newDeviceManager(ctx context.Context, n *node.Node, store topologymanager.Store) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(klog.FromContext(ctx), n.Machine.Topology, store)
}

func admit(ctx context.Context, handler lifecycle.PodAdmitHandler, pod *v1.Pod, others []*v1.Pod) lifecycle.PodAdmitResult {
	return handler.Admit(ctx, &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others, Operation: lifecycle.AddOperation})
}

func started(ctx context.Context, k *kubelet, pod *v1.Pod, container *v1.Container, id string) {
	logger := klog.FromContext(ctx)
	k.cpus.AddContainer(logger, pod, container, id)
	k.memory.AddContainer(logger, pod, container, id)
	k.topology.AddContainer(logger, pod, container, id)
}

func (lastWord) HandleAdmissionFailure(_ context.Context, _ *v1.Pod, reasons []lifecycle.PredicateFailureReason, _ lifecycle.Operation) ([]lifecycle.PredicateFailureReason, error) {
	return reasons, nil
}

func nodeStatus(ctx context.Context, n *node.Node, devices *devicemanager.ManagerImpl) (*v1.Node, error) {
	status := &v1.Node{}
	set := nodestatus.MachineInfo("node", int(n.Configuration.MaxPods), int(n.Configuration.PodsPerCore),
		func() (*machine.Info, error) { return n.Machine, nil },
		func(klog.Logger, bool) v1.ResourceList { return nil },
		devices.GetCapacity,
		func() v1.ResourceList { return n.Reservation },
		func(string, string, string) {},
		func() *bool { return nil },
		false)
	return status, set(ctx, status)
}
