"""The node of the real kubelet, with its second disk and the container image on it."""

from __future__ import annotations

import subprocess

from image import image
from machine import Machine

from .payload import disk
from .recipe import RECIPE

_BOOT_TIME = 900  # seconds: eight CPUs, emulated on two busy cores
_IMPORT = "systemctl start opt-kubelet.mount containerd && ctr -n k8s.io images import /opt/kubelet/image.tar"


def boot(machine: Machine) -> None:
    """Boot it on a fresh disk. kubelet is built before, which may take half an hour."""
    payload = disk()
    second = ("-drive", f"file={payload},if=none,id=payload,format=raw,readonly=on", "-device", "virtio-blk-pci,drive=payload,bus=pcie.0")
    machine.start(image(machine.shape["image"], RECIPE), second)
    machine.wait(_BOOT_TIME)
    subprocess.run(machine.ssh(_IMPORT), check=True)
