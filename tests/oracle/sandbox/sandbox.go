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

// Enter runs the program again in its own user and mount namespaces with an empty /var/lib and ends this one with that one's
// status; inside, it returns. Neither needs root.
func Enter() {
	if os.Getenv(inside) != "" {
		if err := syscall.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755"); err != nil {
			fail("an empty /var/lib can't be mounted", err)
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
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
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

func fail(what string, err error) {
	fmt.Fprintf(os.Stderr, "oracle: %s: %v\n", what, err)
	os.Exit(1)
}
