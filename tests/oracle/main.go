// Command oracle answers questions about a kubelet with kubelet's own code: one question in JSON a line, one answer a line.
// See README.md for questions and answers.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"gpufleet.node/oracle/configuration"
	"gpufleet.node/oracle/decisions"
	"gpufleet.node/oracle/machine"
	"gpufleet.node/oracle/sandbox"
)

// questions that depend on feature gates, which a process sets once, are answered by a worker.
var questions = map[string]func(json.RawMessage) (any, error){
	"configuration": configuration.Ask,
	"decisions":     decisions.Decisions,
	"state":         decisions.State,
}

func main() {
	sandbox.Enter()
	configuration.Quiet()
	answer := ask
	if len(os.Args) > 1 && os.Args[1] == worker {
		answer = work
		if err := showSwaps(); err != nil {
			fmt.Fprintln(os.Stderr, "oracle: a worker sees the host's swap:", err)
		}
	}
	if err := serve(os.Stdin, os.Stdout, answer); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve answers line by line. An answer that isn't there is {"error": …}: the question was wrong, or something that isn't kubelet's.
func serve(in io.Reader, out io.Writer, answer func(json.RawMessage) (any, error)) error {
	lines, encoder := bufio.NewReaderSize(in, 1<<20), json.NewEncoder(out)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		result, err := answer(line)
		if err != nil {
			result = map[string]string{"error": err.Error()}
		}
		if err := encoder.Encode(result); err != nil {
			return err
		}
	}
}

// head is what every question has, and what decides which worker answers it.
type head struct {
	Ask           string `json:"ask"`
	Root          string `json:"root"`
	SwapOff       bool   `json:"swap_off"`
	Configuration struct {
		FeatureGates map[string]bool `json:"featureGates"`
	} `json:"configuration"`
}

// ask answers in the first process: what needs no feature gates here, the rest by a worker.
func ask(request json.RawMessage) (any, error) {
	var h head
	if err := json.Unmarshal(request, &h); err != nil {
		return nil, err
	}
	gates := h.Configuration.FeatureGates
	switch h.Ask {
	case "machine":
		return machine.Ask(h.Root)
	case "configuration":
		wanted, refused, err := configuration.FeatureGates(request)
		if refused != nil || err != nil {
			return refused, err
		}
		gates = wanted
	}
	if questions[h.Ask] == nil {
		return nil, fmt.Errorf("no such question: %q", h.Ask)
	}
	swaps := filepath.Join(h.Root, "proc/swaps")
	if h.SwapOff {
		swaps = none
	}
	return delegate(request, gates, swaps)
}

// work answers in a worker.
func work(request json.RawMessage) (any, error) {
	var h head
	if err := json.Unmarshal(request, &h); err != nil {
		return nil, err
	}
	return questions[h.Ask](request)
}
