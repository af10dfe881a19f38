//go:build v1.35 || v1.36 || v1.37

package decisions

import (
	"context"

	"gpufleet.node/oracle/node"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// The managers as they are since 1.35, which gave them a logger.

func newCPUManager(ctx context.Context, n *node.Node, directory string, store topologymanager.Store) (cpumanager.Manager, error) {
	c := n.Manager
	return cpumanager.NewManager(klog.FromContext(ctx), c.CPUManagerPolicy, c.CPUManagerPolicyOptions, never, n.Machine, c.ReservedSystemCPUs, n.Reservation, directory, store)
}

func newMemoryManager(ctx context.Context, n *node.Node, directory string, store topologymanager.Store) (memorymanager.Manager, error) {
	c := n.Manager
	return memorymanager.NewManager(klog.FromContext(ctx), c.MemoryManagerPolicy, n.Machine, n.Reservation, c.MemoryManagerReservedMemory, directory, store)
}

func addHintProvider(ctx context.Context, manager topologymanager.Manager, provider topologymanager.HintProvider) {
	manager.AddHintProvider(klog.FromContext(ctx), provider)
}

func startCPUManager(ctx context.Context, manager cpumanager.Manager, active func() []*v1.Pod) error {
	return manager.Start(ctx, active, allSources{}, noRuntime{}, noRuntime{}, noContainers())
}

func startMemoryManager(ctx context.Context, manager memorymanager.Manager, active func() []*v1.Pod) error {
	return manager.Start(ctx, active, allSources{}, noRuntime{}, noRuntime{}, noContainers())
}

func startDeviceManager(ctx context.Context, manager *devicemanager.ManagerImpl, active func() []*v1.Pod) error {
	return manager.Start(klog.FromContext(ctx), active, allSources{}, noContainers(), noneRunning)
}

func stopDeviceManager(ctx context.Context, manager *devicemanager.ManagerImpl) {
	_ = manager.Stop(klog.FromContext(ctx))
}

func registerDevices(ctx context.Context, manager *devicemanager.ManagerImpl, p *plugin) error {
	if err := manager.PluginConnected(ctx, p.resource, p); err != nil {
		return err
	}
	manager.PluginListAndWatchReceiver(klog.FromContext(ctx), p.resource, &pluginapi.ListAndWatchResponse{Devices: p.devices})
	return nil
}

func predicates(node *v1.Node, devices *devicemanager.ManagerImpl) lifecycle.PodAdmitHandler {
	known := func(context.Context, bool) (*v1.Node, error) { return node, nil }
	return lifecycle.NewPredicateAdmitHandler(known, lastWord{}, devices.UpdatePluginResources)
}
