// Package sandbox keeps kubelet's code away from the host: some of its paths are fixed, such as the device manager's socket
// below /var/lib/kubelet.
package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

const inside = "ORACLE_SANDBOX"

// Enter runs the program again in its own user, mount and cgroup namespaces with an empty /var/lib and ends this one with that one's
// status; inside, it returns. Neither needs root.
func Enter() {
	if os.Getenv(inside) != "" {
		if err := syscall.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755"); err != nil {
			fail("an empty /var/lib can't be mounted", err)
		}
		if err := unifyCgroups(); err != nil {
			fail("cgroup v2, which kubelet needs, can't be mounted", err)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		fail("the program doesn't know its own path", err)
	}
	child := exec.Command(self, os.Args[1:]...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.Env = append(os.Environ(), inside+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWCGROUP,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	err = child.Run()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		fail("user and mount namespaces can't be made", err)
	}
	os.Exit(child.ProcessState.ExitCode())
}

// unifyCgroups has a host with cgroup v1, where kubelet doesn't start, look like one with v2.
func unifyCgroups() error {
	const folder, magic = "/sys/fs/cgroup", 0x63677270
	var status syscall.Statfs_t
	if err := syscall.Statfs(folder, &status); err == nil && status.Type == magic {
		return nil
	}
	return syscall.Mount("cgroup2", folder, "cgroup2", 0, "")
}

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "oracle: %s: %v\n", what, err)
	os.Exit(1)
}
