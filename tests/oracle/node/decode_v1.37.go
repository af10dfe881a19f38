//go:build v1.37

package node

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/util/codec"
)

func decodeConfiguration(ctx context.Context, codecs *serializer.CodecFactory, text []byte) (*kubeletconfig.KubeletConfiguration, error) {
	return codec.DecodeKubeletConfiguration(ctx, codecs, text)
}
