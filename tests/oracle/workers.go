package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// worker is the argument of a process that answers for one set of feature gates and one state of swap: kubelet reads both once.
const worker = "worker"

// none is a /proc/swaps with no swap in it.
const none = "/dev/null"

// most is how many workers are kept; each holds some tens of megabytes.
const most = 6

type process struct {
	key     string
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

var (
	workers []*process // the one that was used last comes last
	self, _ = os.Executable()
)

// delegate has the worker for these gates and swaps answer.
func delegate(request json.RawMessage, gates map[string]bool, swaps string) (any, error) {
	text, _ := os.ReadFile(swaps)
	key, err := json.Marshal([]any{gates, strings.Count(string(text), "\n") > 1})
	if err != nil {
		return nil, err
	}
	p, err := find(string(key), swaps)
	if err != nil {
		return nil, err
	}
	if _, err := p.in.Write(request); err != nil {
		return nil, err
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		p.end()
		workers = workers[:len(workers)-1]
		return nil, fmt.Errorf("kubelet's code ended its process: %w", err)
	}
	return json.RawMessage(line), nil
}

func find(key, swaps string) (*process, error) {
	for i, p := range workers {
		if p.key == key {
			workers = append(append(workers[:i:i], workers[i+1:]...), p)
			return p, nil
		}
	}
	if len(workers) == most {
		workers[0].end()
		workers = workers[1:]
	}
	command := exec.Command(self, worker)
	command.Env = append(os.Environ(), "ORACLE_SWAPS="+swaps)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &process{key, command, in, bufio.NewReaderSize(out, 1<<20)}
	workers = append(workers, p)
	return p, nil
}

func (p *process) end() {
	_ = p.in.Close()
	_ = p.command.Wait()
}

// showSwaps puts the root's /proc/swaps, or none, in the place of the host's.
func showSwaps() error {
	swaps := os.Getenv("ORACLE_SWAPS")
	if _, err := os.Stat(swaps); err != nil {
		swaps = none
	}
	return syscall.Mount(swaps, "/proc/swaps", "", syscall.MS_BIND, "")
}
