package decisions

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin is a device plugin without a socket, as kubelet's device manager sees it once it is registered. Where kubelet leaves the
// choice to it, it takes devices of few NUMA nodes, as NVIDIA's does.
type plugin struct {
	pluginapi.DevicePluginClient
	resource string
	devices  []*pluginapi.Device
}

func (p *plugin) API() pluginapi.DevicePluginClient { return p }
func (p *plugin) Resource() string                  { return p.resource }
func (p *plugin) SocketPath() string                { return "/" + p.resource }

func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty, ...grpc.CallOption) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true}, nil
}

func (p *plugin) GetPreferredAllocation(_ context.Context, request *pluginapi.PreferredAllocationRequest, _ ...grpc.CallOption) (*pluginapi.PreferredAllocationResponse, error) {
	response := &pluginapi.PreferredAllocationResponse{}
	for _, container := range request.ContainerRequests {
		chosen := append([]string{}, container.MustIncludeDeviceIDs...)
		missing := int(container.AllocationSize) - len(chosen)
		for _, group := range p.groups(sets.New(container.AvailableDeviceIDs...).Delete(chosen...), missing) {
			chosen = append(chosen, group[:min(missing, len(group))]...)
			missing -= min(missing, len(group))
		}
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return response, nil
}

// groups are the devices by NUMA node in the order of preference: the smallest group that is enough, else the largest.
func (p *plugin) groups(available sets.Set[string], wanted int) [][]string {
	byNode := map[int64][]string{}
	for _, device := range p.devices {
		if available.Has(device.ID) {
			node := int64(-1)
			if nodes := device.GetTopology().GetNodes(); len(nodes) > 0 {
				node = nodes[0].ID
			}
			byNode[node] = append(byNode[node], device.ID)
		}
	}
	var ordered [][]string
	for len(byNode) > 0 && wanted > 0 {
		best, first := int64(0), true
		for _, node := range sets.List(sets.KeySet(byNode)) {
			count, so := len(byNode[node]), len(byNode[best])
			if first || so < wanted && count > so || so >= wanted && count >= wanted && count < so {
				best, first = node, false
			}
		}
		ordered = append(ordered, byNode[best])
		wanted -= len(byNode[best])
		delete(byNode, best)
	}
	return ordered
}

func (p *plugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest, _ ...grpc.CallOption) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{})
	}
	return response, nil
}

// byResource is what the plugins report, one list of devices for each resource.
func byResource(devices []Device) map[string][]*pluginapi.Device {
	reported := map[string][]*pluginapi.Device{}
	for _, device := range devices {
		resource := device.Resource
		if resource == "" {
			resource = "nvidia.com/gpu"
		}
		known := &pluginapi.Device{ID: device.ID, Health: pluginapi.Healthy}
		if device.NUMA != nil {
			known.Topology = &pluginapi.TopologyInfo{Nodes: []*pluginapi.NUMANode{{ID: *device.NUMA}}}
		}
		reported[resource] = append(reported[resource], known)
	}
	return reported
}
