// Package machine reads a machine with cadvisor's own reader, as kubelet does, from the root of its files.
package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// Read puts the root's /sys and /proc in the place of the host's while cadvisor looks. It needs the sandbox, and nobody else may
// look at the two meanwhile.
func Read(root string) (*Info, error) {
	for _, name := range []string{"/sys", "/proc"} {
		if err := syscall.Mount(filepath.Join(root, name), name, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return nil, fmt.Errorf("%s of %s can't be shown in place of the host's: %w", name, root, err)
		}
		defer syscall.Unmount(name, syscall.MNT_DETACH)
	}
	return read()
}

func read() (*Info, error) {
	files := newRealSysFs()
	nodes, cpus, err := getTopology(files)
	if err != nil {
		return nil, err
	}
	memory, err := getMemory()
	if err != nil {
		return nil, err
	}
	pools, err := getHugePages(files, "/sys/kernel/mm/hugepages/")
	if err != nil {
		return nil, err
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	return &Info{
		NumCores:         cpus,
		NumPhysicalCores: getPhysicalCores(cpuinfo),
		NumSockets:       getSockets(cpuinfo),
		MemoryCapacity:   memory,
		HugePages:        pools,
		Topology:         nodes,
	}, nil
}

var machines = map[string]*Info{}

// Known is Read for a root that doesn't change.
func Known(root string) (*Info, error) {
	if machines[root] == nil {
		info, err := Read(root)
		if err != nil {
			return nil, err
		}
		machines[root] = info
	}
	return machines[root], nil
}
