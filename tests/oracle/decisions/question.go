// Package decisions asks kubelet's own CPU, memory, device and topology managers what they do with pods, one after another, and
// what they say of a state file.
package decisions

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
)

// Question names a node by the root of its files and kubelet's configuration, and what happens on it.
type Question struct {
	Root          string          `json:"root"`
	Configuration json.RawMessage `json:"configuration"`
	Devices       []Device        `json:"devices"`
	Events        []Event         `json:"events"`
	// Files are the state files that kubelet finds at its start, by name.
	Files map[string]string `json:"files"`
}

// Device is what a device plugin reports; without a NUMA node its place is unknown.
type Device struct {
	ID       string `json:"id"`
	NUMA     *int64 `json:"numa"`
	Resource string `json:"resource"` // default: nvidia.com/gpu
}

// Event is a pod that arrives, or the name of one that has ended.
type Event struct {
	Add    *v1.Pod `json:"add,omitempty"`
	Remove string  `json:"remove,omitempty"`
}

// Decision is what kubelet did with a pod that arrived. Invalid says why the API server would not have taken it; kubelet wasn't asked.
type Decision struct {
	Pod        string      `json:"pod"`
	Invalid    string      `json:"invalid,omitempty"`
	Admitted   bool        `json:"admitted"`
	Reason     string      `json:"reason,omitempty"`
	Message    string      `json:"message,omitempty"`
	Containers []Container `json:"containers,omitempty"`
}

// Container is what an admitted container got: exclusive CPUs as a cpulist, memory by NUMA nodes, devices by resource and NUMA node
// ("": unknown).
type Container struct {
	Name    string                    `json:"name"`
	CPUs    string                    `json:"cpus"`
	Memory  []Block                   `json:"memory,omitempty"`
	Devices map[string]map[string]int `json:"devices,omitempty"`
}

// Block is an amount of memory or hugepages that may lie on any of some NUMA nodes.
type Block struct {
	NUMA  []int  `json:"numa"`
	Type  string `json:"type"`
	Bytes uint64 `json:"bytes"`
}

// StartError is a manager that refuses to start on the state file that it found.
type StartError struct {
	File    string `json:"file"`
	Message string `json:"message"`
}
