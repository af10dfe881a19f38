# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot concern: what a node boots from, read from its files; on a live ostree node rpm-ostree is asked too."""

from __future__ import annotations

import json
import posixpath
from typing import Any, Dict, List, Tuple

from ..core import bls, boot, grub
from ..core.boot import Reading
from ..core.loader import BLS, GRUB, OSTREE
from .command import Command
from .concern import Concern, Section
from .loader import GRUBENV, entries, grub_config, loader, next_release
from .root import Root

_TUNED = "/etc/tuned/bootcmdline"


def read(root: Root, command: Command, section: Section) -> Reading:
    """What the node boots from.

    :raises UnreadableRoot: a file is there and can't be read
    """
    kind = loader(root)
    config = grub_config(root)
    grubenv = root.resolve(GRUBENV) or GRUBENV  # a link to the EFI system partition on Red Hat 8
    found = entries(root)
    deployment, probe = _deployment(root, command, found) if kind == OSTREE else ("", "")
    texts = config, root.read(config) or ""
    variables = root.read(grubenv) or ""
    return Reading(
        loader=kind,
        running=root.read(boot.CMDLINE) or "",
        record=root.read(boot.RECORD),
        defaults=root.read(grub.DEFAULTS),
        drop_ins=_drop_ins(root),
        grub_cfg=texts,
        grubenv=(grubenv, variables),
        entries=found,
        kernel_cmdline=root.read(boot.KERNEL_CMDLINE),
        kernels=tuple(name for name in root.names("/usr/lib/modules") if root.exists("/usr/lib/modules/%s/vmlinuz" % name)),
        deployment=deployment,
        deployment_probe=probe,
        waiting=kind == OSTREE and _waiting(command),
        tuned=_tuned(root, kind, texts[1], variables),
        kernel=next_release(root, kind) or root.read("/proc/sys/kernel/osrelease") or "",
    )


def _drop_ins(root: Root) -> Dict[str, str]:
    """The files that the shell's pattern *.cfg matches, in its order."""
    names = [name for name in root.names(grub.DROP_INS) if name.endswith(".cfg") and not name.startswith(".")]
    return {
        path: text for path in (posixpath.join(grub.DROP_INS, name) for name in names) for text in [root.read(path)] if text is not None
    }


def _deployment(root: Root, command: Command, entries: Dict[str, str]) -> Tuple[str, Any]:
    """The command line of the deployment that boots next, and where it is seen. The entry with the highest number boots first."""
    ask = ("rpm-ostree", "kargs")
    if command.find(ask[0]):
        return command.query(ask) or "", ask
    newest = max(entries, key=lambda path: (len(path), path), default="")
    return " ".join(bls.options(entries.get(newest, ""))), newest or "/boot/loader/entries/ostree-1.conf"


def _waiting(command: Command) -> bool:
    """Whether the deployment that boots next isn't the running one."""
    answer = command.query(("rpm-ostree", "status", "--json"))
    try:
        deployments: List[Dict[str, Any]] = json.loads(answer or "{}").get("deployments", [])
    except ValueError:
        return False
    return bool(deployments) and not deployments[0].get("booted", True)


def _tuned(root: Root, kind: str, config: str, grubenv: str) -> str:
    """The arguments that tuned's boot loader plugin adds: a variable that the entries refer to; elsewhere the file that it keeps."""
    if kind == BLS:
        return bls.environment(grubenv).get("tuned_params", "")
    if kind == GRUB:
        return grub.variable(config, "tuned_params")
    return grub.source(root.read(_TUNED) or "", {}).get("TUNED_BOOT_CMDLINE") or ""


CONCERN = Concern("boot", ("kernel_arguments",), read, boot.artifacts)
