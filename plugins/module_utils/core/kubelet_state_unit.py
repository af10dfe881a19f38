# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The unit that, once per boot and before kubelet, takes away state files that the reboot made unusable.

A reboot changes what kubelet holds its state against: NUMA nodes have a few MiB more or less memory (B4), hugepages or CPUs are missing
(A26, A5), a GPU's memory is a NUMA node or isn't yet. All containers are gone then, so nobody holds what a file says. The unit stays
active after its run: a restart of kubelet within the boot doesn't run it again.
"""

from __future__ import annotations

from typing import List, Mapping

from .change import Artifact, File, Link, Text, always
from .systemd import MARK, SANDBOX, UNIT_FOLDER

PROGRAM = "/usr/local/lib/gpufleet/kubelet_state.pyz"
SERVICE = "gpufleet-kubelet-state.service"
# The kubelets that there may be: a link that was for another one goes.
KUBELETS = ("kubelet.service", "k3s.service", "k3s-agent.service", "rke2-server.service", "rke2-agent.service")

# nvidia-persistenced loads the driver, which may bring GPU memory online as NUMA nodes: those count.
_SERVICE = (
    MARK
    + """\
[Unit]
Description=Take away kubelet state files that a reboot made unusable
Before=%(kubelet)s
After=systemd-modules-load.service systemd-sysctl.service systemd-tmpfiles-setup.service nvidia-persistenced.service
RequiresMountsFor=%(folder)s /var/lib/gpufleet

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=%(interpreter)s -I /usr/local/lib/gpufleet/kubelet_state.pyz
TimeoutStartSec=2min
StateDirectory=gpufleet
ReadWritePaths=-%(folder)s
ProtectKernelTunables=yes
PrivateNetwork=yes
"""
    + SANDBOX
    + """\

[Install]
WantedBy=%(kubelet)s
"""
)


def artifacts(kubelet: Mapping[str, str], program: Text, interpreter: str) -> List[Artifact]:
    """Program, unit and the link by which kubelet's unit wants it; of an empty section none of them.

    systemd isn't told to read its units again: they are for the next boot.
    """
    unit = kubelet["unit"] if kubelet else ""
    text = _SERVICE % {"kubelet": unit, "folder": kubelet["root_dir"], "interpreter": interpreter} if kubelet else None
    links = [(one, "%s/%s.wants/%s" % (UNIT_FOLDER, one, SERVICE)) for one in dict.fromkeys((*KUBELETS, *([unit] if unit else [])))]
    return [
        File("boot check of kubelet's state", PROGRAM, always(program if kubelet else None), mode=0o755, enforce_mode=True),
        File(SERVICE, "%s/%s" % (UNIT_FOLDER, SERVICE), always(text)),
        *(Link("%s wants it" % one, path, "%s/%s" % (UNIT_FOLDER, SERVICE) if one == unit else None) for one, path in links),
    ]


PATHS = (PROGRAM, "%s/%s" % (UNIT_FOLDER, SERVICE))
