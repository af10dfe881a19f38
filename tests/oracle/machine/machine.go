// Package machine reads a machine with cadvisor's own reader, as kubelet does, from the root of its files.
package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
)

// Answer is a machine as kubelet sees it: cadvisor's facts, what the CPU manager makes of them, and which files could not be read,
// with the reason. With some of those kubelet would not start.
type Answer struct {
	Machine *Info                 `json:"machine"`
	CPUs    *topology.CPUTopology `json:"cpus"`
	Unread  map[string]string     `json:"unread,omitempty"`
}

// Ask answers a question about a root.
func Ask(root string) (*Answer, error) {
	info, unread, err := look(root)
	if err != nil {
		return nil, err
	}
	answer := &Answer{Machine: info, Unread: map[string]string{}}
	for name, problem := range unread {
		answer.Unread[name] = problem.Error()
	}
	if answer.CPUs, err = discover(info); err != nil {
		answer.Unread["cpus"] = err.Error()
	}
	return answer, nil
}

// look puts the root's /sys and /proc in the place of the host's while cadvisor reads them. It needs the sandbox, and nobody else may
// look at the two meanwhile. What can't be read is left out and named.
func look(root string) (*Info, map[string]error, error) {
	for _, name := range []string{"/sys", "/proc"} {
		shown, err := shown(filepath.Join(root, name))
		if err != nil {
			return nil, nil, err
		}
		if err := syscall.Mount(shown, name, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return nil, nil, fmt.Errorf("%s of %s can't be shown in place of the host's: %w", name, root, err)
		}
		defer syscall.Unmount(name, syscall.MNT_DETACH)
	}
	info, unread := read()
	return info, unread, nil
}

// shown is the folder, or an empty one where it isn't there: a capture may be without /proc.
func shown(folder string) (string, error) {
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	return os.MkdirTemp("/var/lib", "empty")
}

func read() (*Info, map[string]error) {
	info, unread, files := &Info{}, map[string]error{}, newRealSysFs()
	note := func(name string, err error) {
		if err != nil {
			unread[name] = err
		}
	}
	var err error
	info.Topology, info.NumCores, err = getTopology(files)
	note("topology", err)
	info.MemoryCapacity, err = getMemory()
	note("memory", err)
	info.HugePages, err = getHugePages(files, "/sys/kernel/mm/hugepages/")
	note("hugepages", err)
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	note("cpuinfo", err)
	info.NumPhysicalCores, info.NumSockets = getPhysicalCores(cpuinfo), getSockets(cpuinfo)
	return info, unread
}

var machines = map[string]*Info{}

// Known is the machine of a root that doesn't change. What can't be read is an error, as it is for kubelet.
func Known(root string) (*Info, error) {
	if machines[root] == nil {
		info, unread, err := look(root)
		for _, problem := range unread {
			err = errors.Join(err, problem)
		}
		if err != nil {
			return nil, err
		}
		machines[root] = info
	}
	return machines[root], nil
}
