"""The disk image of the node: Debian with its containerd, and a kubelet that needs no API server.

kubelet and the container image come on a second disk (payload.py), so that another kubelet needs no other image.
"""

from __future__ import annotations

from image import Recipe

from .payload import IMAGE, LABEL

CONFIGURATION = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
authentication:
  anonymous:
    enabled: true
  webhook:
    enabled: false
authorization:
  mode: AlwaysAllow
cgroupDriver: systemd
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
staticPodPath: /etc/kubernetes/manifests
"""
SERVICE = f"""\
[Unit]
Wants=containerd.service
After=containerd.service
RequiresMountsFor=/opt/{LABEL}
ConditionPathExists=/opt/{LABEL}/kubelet
[Service]
ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --config-dir=/etc/kubernetes/kubelet.conf.d
Restart=always
RestartSec=10
[Install]
WantedBy=multi-user.target
"""
CONTAINERD = f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
"""

RECIPE = Recipe(
    "trixie",
    packages=("containerd", "runc"),
    files={
        # No swap: kubelet would not start before the first run.
        "/etc/fstab": "/dev/vda2 / ext4 errors=remount-ro 0 1\n"
        f"LABEL={LABEL} /opt/{LABEL} ext4 ro,nofail,x-systemd.device-timeout=180s 0 0\n",
        "/etc/containerd/config.toml": CONTAINERD,
        "/etc/systemd/system/kubelet.service": SERVICE,
        "/var/lib/kubelet/config.yaml": CONFIGURATION,
    },
    commands=(
        f"mkdir -p /opt/{LABEL} /etc/kubernetes/manifests /etc/kubernetes/kubelet.conf.d",
        f"ln -s /opt/{LABEL}/kubelet /usr/bin/kubelet",
        "systemctl mask swap.target",
        "systemctl enable containerd kubelet",
    ),
)
