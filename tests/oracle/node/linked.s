// This file lets functions without a body be declared beside it: they are kubelet's own, see kubelet.go.
