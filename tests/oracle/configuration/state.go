package configuration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"gpufleet.node/oracle/decisions"
	"gpufleet.node/oracle/machine"
	"gpufleet.node/oracle/node"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// state lets the managers read copies of the state files in a folder ("": there are none).
func state(ctx context.Context, states string, info *machine.Info, s *server, manager cm.ContainerManager) error {
	folder, err := os.MkdirTemp("", "oracle-state-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for _, name := range []string{"cpu_manager_state", "memory_manager_state"} {
		text, err := os.ReadFile(filepath.Join(states, name))
		if states == "" || os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		write(folder, name, string(text))
	}
	n := &node.Node{
		Machine:       info,
		Configuration: &s.KubeletConfiguration,
		Manager:       manager.GetNodeConfig(),
		Reservation:   manager.GetNodeAllocatableReservation(),
	}
	refused, err := decisions.Start(ctx, n, folder)
	if err != nil {
		return err
	}
	if refused != nil {
		return fmt.Errorf("%s: %s", refused.File, refused.Message)
	}
	return nil
}
