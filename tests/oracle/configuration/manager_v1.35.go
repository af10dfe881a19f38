//go:build v1.35 || v1.36 || v1.37

package configuration

import (
	"context"

	"gpufleet.node/oracle/machine"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/mount-utils"
)

func newContainerManager(ctx context.Context, info *machine.Info, c cm.NodeConfig, failSwapOn bool) (cm.ContainerManager, error) {
	return cm.NewContainerManager(ctx, mount.New(""), stub{info: info}, c, failSwapOn, record.NewFakeRecorder(100), nil)
}
