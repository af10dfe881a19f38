// Package node is what kubelet makes of its configuration before it constructs its managers.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strconv"

	"gpufleet.node/oracle/machine"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/features"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/util/codec"
)

// Node is a machine with a configured kubelet.
type Node struct {
	Machine       *machine.Info
	Configuration *kubeletconfig.KubeletConfiguration
	Manager       cm.NodeConfig
	Reservation   v1.ResourceList
}

// Read makes a node of a machine and a KubeletConfiguration in JSON, with kubelet's defaults and its own reading of amounts.
func Read(ctx context.Context, info *machine.Info, configuration json.RawMessage) (*Node, error) {
	c, err := decode(ctx, configuration)
	if err != nil {
		return nil, err
	}
	if err := setGates(c.FeatureGates); err != nil {
		return nil, err
	}
	manager, err := Configure(ctx, info, c, options.NewKubeletFlags())
	if err != nil {
		return nil, err
	}
	reserved := reservation(manager.NodeAllocatableConfig, cadvisor.CapacityFromMachineInfo(info))
	return &Node{Machine: info, Configuration: c, Manager: *manager, Reservation: reserved}, nil
}

// Configure follows cmd/kubelet's run: what the managers are constructed with. As there, reserved CPUs that are named become the amount
// that is reserved.
func Configure(ctx context.Context, info *machine.Info, c *kubeletconfig.KubeletConfiguration, flags *options.KubeletFlags) (*cm.NodeConfig, error) {
	reserved, err := reservedCPUs(ctx, info, c.ReservedSystemCPUs)
	if err != nil {
		return nil, err
	}
	if reserved.Size() > 0 {
		delete(c.KubeReserved, "cpu")
		if c.SystemReserved == nil {
			c.SystemReserved = map[string]string{}
		}
		c.SystemReserved["cpu"] = strconv.Itoa(reserved.Size())
	}
	kube, err := parseResourceList(c.KubeReserved)
	if err != nil {
		return nil, fmt.Errorf("--kube-reserved value failed to parse: %w", err)
	}
	system, err := parseResourceList(c.SystemReserved)
	if err != nil {
		return nil, fmt.Errorf("--system-reserved value failed to parse: %w", err)
	}
	var thresholds []evictionapi.Threshold
	if !flags.ExperimentalNodeAllocatableIgnoreEvictionThreshold {
		if thresholds, err = eviction.ParseThresholdConfig([]string{}, c.EvictionHard, nil, nil, nil); err != nil {
			return nil, err
		}
	}
	qos, err := cm.ParseQOSReserved(c.QOSReserved)
	if err != nil {
		return nil, fmt.Errorf("--qos-reserved value failed to parse: %w", err)
	}
	if c.TopologyManagerPolicyOptions != nil && !utilfeature.DefaultFeatureGate.Enabled(features.TopologyManagerPolicyOptions) {
		return nil, fmt.Errorf("topology manager policy options %v require feature gates %q enabled", c.TopologyManagerPolicyOptions, features.TopologyManagerPolicyOptions)
	}
	return &cm.NodeConfig{
		CgroupRoot:            c.CgroupRoot,
		CgroupDriver:          c.CgroupDriver,
		KubeletRootDir:        flags.RootDirectory,
		ProtectKernelDefaults: c.ProtectKernelDefaults,
		NodeAllocatableConfig: cm.NodeAllocatableConfig{
			KubeReservedCgroupName:   c.KubeReservedCgroup,
			SystemReservedCgroupName: c.SystemReservedCgroup,
			EnforceNodeAllocatable:   sets.New(c.EnforceNodeAllocatable...),
			KubeReserved:             kube,
			SystemReserved:           system,
			ReservedSystemCPUs:       reserved,
			HardEvictionThresholds:   thresholds,
		},
		QOSReserved:                  *qos,
		CPUManagerPolicy:             c.CPUManagerPolicy,
		CPUManagerPolicyOptions:      c.CPUManagerPolicyOptions,
		CPUManagerReconcilePeriod:    c.CPUManagerReconcilePeriod.Duration,
		MemoryManagerPolicy:          c.MemoryManagerPolicy,
		MemoryManagerReservedMemory:  c.ReservedMemory,
		PodPidsLimit:                 c.PodPidsLimit,
		EnforceCPULimits:             c.CPUCFSQuota,
		CPUCFSQuotaPeriod:            c.CPUCFSQuotaPeriod.Duration,
		TopologyManagerPolicy:        c.TopologyManagerPolicy,
		TopologyManagerScope:         c.TopologyManagerScope,
		TopologyManagerPolicyOptions: c.TopologyManagerPolicyOptions,
	}, nil
}

// decode reads a configuration as kubelet does a file. Its kind needn't be given.
func decode(ctx context.Context, configuration json.RawMessage) (*kubeletconfig.KubeletConfiguration, error) {
	fields := map[string]any{}
	if err := json.Unmarshal(configuration, &fields); err != nil {
		return nil, err
	}
	fields["apiVersion"], fields["kind"] = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	_, codecs, err := scheme.NewSchemeAndCodecs()
	if err != nil {
		return nil, err
	}
	c, err := codec.DecodeKubeletConfiguration(ctx, codecs, text)
	if err == nil && (c.EvictionHard == nil || c.MergeDefaultEvictionSettings) {
		c.EvictionHard = withDefaults(c.EvictionHard) // as kubelet's loadConfigFile does
	}
	return c, err
}

func withDefaults(given map[string]string) map[string]string {
	all := maps.Clone(eviction.DefaultEvictionHard)
	maps.Copy(all, given)
	return all
}

var gates map[string]bool

// setGates sets the process's feature gates, which can be done once: another set needs another process.
func setGates(wanted map[string]bool) error {
	if gates != nil {
		if len(gates) != len(wanted) || len(gates) > 0 && !reflect.DeepEqual(gates, wanted) {
			return fmt.Errorf("this process has feature gates %v; ask another one with %v", gates, wanted)
		}
		return nil
	}
	gates = map[string]bool{}
	for name, on := range wanted {
		gates[name] = on
	}
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(wanted)
}

// reservation is kubelet's sum for node allocatable: what is reserved for the system and for kubelet, and the hard eviction threshold.
func reservation(c cm.NodeAllocatableConfig, capacity v1.ResourceList) v1.ResourceList {
	evicted := v1.ResourceList{}
	for _, threshold := range c.HardEvictionThresholds {
		if threshold.Signal == evictionapi.SignalMemoryAvailable {
			memory := capacity[v1.ResourceMemory]
			evicted[v1.ResourceMemory] = *evictionapi.GetThresholdQuantity(threshold.Value, &memory)
		}
	}
	sums := v1.ResourceList{}
	for name := range capacity {
		sum := resource.NewQuantity(0, resource.DecimalSI)
		for _, part := range []v1.ResourceList{c.SystemReserved, c.KubeReserved, evicted} {
			sum.Add(part[name])
		}
		if !sum.IsZero() {
			sums[name] = *sum
		}
	}
	return sums
}
