package decisions

import (
	"context"

	"gpufleet.node/oracle/node"
)

// Start says which of the state files in a folder keeps a manager of this node from starting, nil: none.
func Start(ctx context.Context, n *node.Node, directory string) (*StartError, error) {
	k, err := newKubelet(ctx, n, directory)
	if err != nil {
		return nil, err
	}
	if err := startCPUManager(ctx, k.cpus, k.activePods); err != nil {
		return &StartError{cpuState, err.Error()}, nil
	}
	if err := startMemoryManager(ctx, k.memory, k.activePods); err != nil {
		return &StartError{memoryState, err.Error()}, nil
	}
	return nil, nil
}
