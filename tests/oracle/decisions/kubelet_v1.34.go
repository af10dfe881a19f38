//go:build v1.34

package decisions

import (
	"context"

	"gpufleet.node/oracle/node"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// The managers and admission in 1.34, mostly without logger and context.

func newCPUManager(_ context.Context, n *node.Node, directory string, store topologymanager.Store) (cpumanager.Manager, error) {
	c := n.Manager
	return cpumanager.NewManager(c.CPUManagerPolicy, c.CPUManagerPolicyOptions, never, n.Machine, c.ReservedSystemCPUs, n.Reservation, directory, store)
}

func newMemoryManager(ctx context.Context, n *node.Node, directory string, store topologymanager.Store) (memorymanager.Manager, error) {
	c := n.Manager
	return memorymanager.NewManager(ctx, c.MemoryManagerPolicy, n.Machine, n.Reservation, c.MemoryManagerReservedMemory, directory, store)
}

func addHintProvider(_ context.Context, manager topologymanager.Manager, provider topologymanager.HintProvider) {
	manager.AddHintProvider(provider)
}

func startCPUManager(_ context.Context, manager cpumanager.Manager, active func() []*v1.Pod) error {
	return manager.Start(active, allSources{}, noRuntime{}, noRuntime{}, noContainers())
}

func startMemoryManager(ctx context.Context, manager memorymanager.Manager, active func() []*v1.Pod) error {
	return manager.Start(ctx, active, allSources{}, noRuntime{}, noRuntime{}, noContainers())
}

func startDeviceManager(_ context.Context, manager *devicemanager.ManagerImpl, active func() []*v1.Pod) error {
	return manager.Start(active, allSources{}, noContainers(), noneRunning)
}

func stopDeviceManager(_ context.Context, manager *devicemanager.ManagerImpl) {
	_ = manager.Stop()
}

func registerDevices(_ context.Context, manager *devicemanager.ManagerImpl, p *plugin) error {
	if err := manager.PluginConnected(p.resource, p); err != nil {
		return err
	}
	manager.PluginListAndWatchReceiver(p.resource, &pluginapi.ListAndWatchResponse{Devices: p.devices})
	return nil
}

func started(ctx context.Context, k *kubelet, pod *v1.Pod, container *v1.Container, id string) {
	k.cpus.AddContainer(pod, container, id)
	k.memory.AddContainer(ctx, pod, container, id)
	k.topology.AddContainer(pod, container, id)
}

func predicates(node *v1.Node, devices *devicemanager.ManagerImpl) lifecycle.PodAdmitHandler {
	known := func() (*v1.Node, error) { return node, nil }
	return lifecycle.NewPredicateAdmitHandler(known, lastWord{}, devices.UpdatePluginResources)
}
