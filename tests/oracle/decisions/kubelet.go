package decisions

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"sync"
	"time"

	"gpufleet.node/oracle/node"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// devicePlugins is the folder that is fixed in the device manager; the sandbox has an empty one.
const devicePlugins = "/var/lib/kubelet/device-plugins"

// The state files by the manager that owns them.
const (
	cpuState    = "cpu_manager_state"
	memoryState = "memory_manager_state"
)

// kubelet is the part of a kubelet that admits pods: its managers, wired as NewContainerManager does it, with the admission
// handlers that look at a pod's resources in kubelet's order.
type kubelet struct {
	context   context.Context
	directory string
	topology  topologymanager.Manager
	devices   *devicemanager.ManagerImpl
	cpus      cpumanager.Manager
	memory    memorymanager.Manager
	handlers  []lifecycle.PodAdmitHandler

	mutex  sync.Mutex
	active []*v1.Pod
}

// newKubelet constructs the managers; an error is one that keeps kubelet from starting.
func newKubelet(ctx context.Context, n *node.Node, directory string) (*kubelet, error) {
	k := &kubelet{context: ctx, directory: directory}
	var err error
	if k.topology, err = newTopologyManager(ctx, n); err != nil {
		return nil, err
	}
	if k.devices, err = newDeviceManager(ctx, n, k.topology); err != nil {
		return nil, err
	}
	addHintProvider(ctx, k.topology, k.devices)
	if k.cpus, err = newCPUManager(ctx, n, directory, k.topology); err != nil {
		return nil, err
	}
	addHintProvider(ctx, k.topology, k.cpus)
	if k.memory, err = newMemoryManager(ctx, n, directory, k.topology); err != nil {
		return nil, err
	}
	addHintProvider(ctx, k.topology, k.memory)
	return k, nil
}

// start lets the managers read their state files and registers the devices. It tells which file a manager refuses, if one does.
func (k *kubelet) start(n *node.Node, devices []Device) (*StartError, error) {
	if err := startCPUManager(k.context, k.cpus, k.activePods); err != nil {
		return &StartError{cpuState, err.Error()}, nil
	}
	if err := startMemoryManager(k.context, k.memory, k.activePods); err != nil {
		return &StartError{memoryState, err.Error()}, nil
	}
	if err := startDeviceManager(k.context, k.devices, k.activePods); err != nil {
		return nil, err
	}
	for resource, reported := range byResource(devices) {
		if err := registerDevices(k.context, k.devices, &plugin{resource: resource, devices: reported}); err != nil {
			return nil, err
		}
	}
	status, err := nodeStatus(k.context, n, k.devices)
	if err != nil {
		return nil, err
	}
	k.handlers = []lifecycle.PodAdmitHandler{k.topology, predicates(status, k.devices), lifecycle.NewPodFeaturesAdmitHandler()}
	return nil, nil
}

// add is what kubelet does with a pod that arrives: it admits it and starts its containers, one after another.
func (k *kubelet) add(given *v1.Pod) Decision {
	pod, err := complete(given)
	if err != nil {
		return Decision{Pod: given.Name, Invalid: err.Error()}
	}
	others := k.activePods()
	k.setActive(append(others, pod))
	for _, handler := range k.handlers {
		result := admit(k.context, handler, pod, others)
		if !result.Admit {
			k.setActive(others)
			return Decision{Pod: pod.Name, Reason: result.Reason, Message: result.Message}
		}
	}
	decision := Decision{Pod: pod.Name, Admitted: true}
	for _, container := range containersOf(pod) {
		decision.Containers = append(decision.Containers, k.holdings(pod, container))
	}
	for _, container := range containersOf(pod) {
		started(k.context, k, pod, container, string(pod.UID)+"/"+container.Name)
	}
	return decision
}

// remove ends a pod. The managers free what it held when they are asked the next time.
func (k *kubelet) remove(name string) {
	var left []*v1.Pod
	for _, pod := range k.activePods() {
		if pod.Name != name {
			left = append(left, pod)
		}
	}
	k.setActive(left)
}

func (k *kubelet) stop() { stopDeviceManager(k.context, k.devices) }

// holdings are what the managers gave to a container.
func (k *kubelet) holdings(pod *v1.Pod, container *v1.Container) Container {
	uid := string(pod.UID)
	held := Container{Name: container.Name, CPUs: k.cpus.GetExclusiveCPUs(uid, container.Name).String()}
	for _, block := range k.memory.State().GetMemoryBlocks(uid, container.Name) {
		held.Memory = append(held.Memory, Block{block.NUMAAffinity, string(block.Type), block.Size})
	}
	sort.Slice(held.Memory, func(i, j int) bool { return held.Memory[i].Type < held.Memory[j].Type })
	held.Devices = map[string]map[string]int{}
	for resource, instances := range k.devices.GetDevices(uid, container.Name) {
		held.Devices[resource] = map[string]int{}
		for _, device := range instances {
			place := ""
			if nodes := device.GetTopology().GetNodes(); len(nodes) > 0 {
				place = strconv.FormatInt(nodes[0].ID, 10)
			}
			held.Devices[resource][place]++
		}
	}
	return held
}

// stateFiles are the texts that the managers have written.
func (k *kubelet) stateFiles() map[string]string {
	texts := map[string]string{}
	for _, name := range []string{cpuState, memoryState} {
		if text, err := os.ReadFile(filepath.Join(k.directory, name)); err == nil {
			texts[name] = string(text)
		}
	}
	return texts
}

func (k *kubelet) activePods() []*v1.Pod {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return append([]*v1.Pod{}, k.active...)
}

func (k *kubelet) setActive(pods []*v1.Pod) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.active = append([]*v1.Pod{}, pods...)
}

// allSources says that kubelet has heard of all its pods.
type allSources struct{}

func (allSources) AddSource(string) {}
func (allSources) AllReady() bool   { return true }

// noRuntime is a container runtime and a source of statuses of which nothing is asked that matters here.
type noRuntime struct{}

func (noRuntime) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }
func (noRuntime) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return fmt.Errorf("no container runtime")
}

// never is a reconcile period after which no question is open any more.
const never = 1000 * time.Hour

// lastWord leaves a refusal as it is: only for a critical pod kubelet would end others.
type lastWord struct{}

var (
	noContainers = func() containermap.ContainerMap { return containermap.NewContainerMap() }
	noneRunning  = sets.New[string]()
)
