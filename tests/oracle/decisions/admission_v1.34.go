//go:build v1.34 || v1.35 || v1.36

package decisions

import (
	"context"

	"gpufleet.node/oracle/machine"
	"gpufleet.node/oracle/node"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/nodestatus"
)

// Admission until 1.36.

func newTopologyManager(_ context.Context, n *node.Node) (topologymanager.Manager, error) {
	c := n.Manager
	return topologymanager.NewManager(n.Machine.Topology, c.TopologyManagerPolicy, c.TopologyManagerScope, c.TopologyManagerPolicyOptions)
}

func newDeviceManager(_ context.Context, n *node.Node, store topologymanager.Store) (*devicemanager.ManagerImpl, error) {
	return devicemanager.NewManagerImpl(n.Machine.Topology, store)
}

func admit(_ context.Context, handler lifecycle.PodAdmitHandler, pod *v1.Pod, others []*v1.Pod) lifecycle.PodAdmitResult {
	return handler.Admit(attributes(pod, others))
}

func (lastWord) HandleAdmissionFailure(_ context.Context, _ *v1.Pod, reasons []lifecycle.PredicateFailureReason) ([]lifecycle.PredicateFailureReason, error) {
	return reasons, nil
}

func nodeStatus(ctx context.Context, n *node.Node, devices *devicemanager.ManagerImpl) (*v1.Node, error) {
	status := &v1.Node{}
	set := nodestatus.MachineInfo("node", int(n.Configuration.MaxPods), int(n.Configuration.PodsPerCore),
		func() (*machine.Info, error) { return n.Machine, nil },
		func(bool) v1.ResourceList { return nil },
		devices.GetCapacity,
		func() v1.ResourceList { return n.Reservation },
		func(string, string, string) {},
		false)
	return status, set(ctx, status)
}
