package decisions

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"gpufleet.node/oracle/machine"
	"gpufleet.node/oracle/node"
)

// DecisionsAnswer has a decision for each pod that arrived, in order, unless kubelet didn't start.
type DecisionsAnswer struct {
	Refused string     `json:"refused,omitempty"`
	Events  []Decision `json:"events"`
}

// StateAnswer says whether each manager accepted what it found, and the state files after the events.
type StateAnswer struct {
	Refused  string            `json:"refused,omitempty"`
	Rejected *StartError       `json:"rejected,omitempty"`
	Events   []Decision        `json:"events"`
	Files    map[string]string `json:"files"`
}

// Decisions answers what kubelet does with the pods.
func Decisions(request json.RawMessage) (any, error) {
	answer, err := run(request)
	if err != nil {
		return nil, err
	}
	if answer.Rejected != nil {
		answer.Refused = answer.Rejected.Message
	}
	return DecisionsAnswer{answer.Refused, answer.Events}, nil
}

// State answers what kubelet says of the state files that it finds, and what it has written after the events.
func State(request json.RawMessage) (any, error) { return run(request) }

func run(request json.RawMessage) (*StateAnswer, error) {
	var question Question
	if err := json.Unmarshal(request, &question); err != nil {
		return nil, err
	}
	ctx := context.Background()
	info, err := machine.Known(question.Root)
	if err != nil {
		return nil, err
	}
	answer := &StateAnswer{Events: []Decision{}}
	n, err := node.Read(ctx, info, question.Configuration)
	if err != nil {
		return nil, err
	}
	directory, err := stateDirectory(question.Files)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(directory)
	k, err := newKubelet(ctx, n, directory)
	if err != nil {
		answer.Refused = err.Error()
		return answer, nil
	}
	defer k.stop()
	if answer.Rejected, err = k.start(n, question.Devices); err != nil {
		return nil, err
	}
	if answer.Rejected == nil {
		for _, event := range question.Events {
			if event.Add != nil {
				answer.Events = append(answer.Events, k.add(event.Add))
			} else {
				k.remove(event.Remove)
			}
		}
	}
	answer.Files = k.stateFiles()
	return answer, nil
}

// stateDirectory is kubelet's root directory with the given state files, in the sandbox's memory.
func stateDirectory(files map[string]string) (string, error) {
	if err := os.RemoveAll(devicePlugins); err != nil {
		return "", err
	}
	directory, err := os.MkdirTemp("/var/lib", "kubelet-")
	for name, text := range files {
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600)
		}
	}
	return directory, err
}
