package decisions

import (
	"context"
	"sort"

	"google.golang.org/grpc"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// plugin is a device plugin without a socket, as kubelet's device manager sees it once it is registered. Where kubelet leaves the
// choice to it, it takes the first devices by name.
type plugin struct {
	pluginapi.DevicePluginClient
	resource string
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
		taken := map[string]bool{}
		for _, id := range chosen {
			taken[id] = true
		}
		available := append([]string{}, container.AvailableDeviceIDs...)
		sort.Strings(available)
		for _, id := range available {
			if len(chosen) < int(container.AllocationSize) && !taken[id] {
				chosen = append(chosen, id)
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: chosen})
	}
	return response, nil
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
