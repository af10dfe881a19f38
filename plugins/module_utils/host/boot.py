# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The boot concern: what a node boots from, read from its files; on a live ostree node rpm-ostree is asked too."""

from __future__ import annotations

import json
import posixpath
from typing import Any, Dict, List, Tuple

from ..core import bls, boot, grub
from ..core.boot import BLS, GRUB, KERNEL_INSTALL, OSTREE, UNKNOWN, Reading
from .command import Command
from .concern import Concern, Section
from .root import Root

# The folders that hold boot loader entries, by who mounts the EFI system partition where. Only the first that has any counts.
_ENTRIES = ("/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries")
# Never the files below /boot/efi/EFI: from Red Hat 9 on those are stubs that lead to this one.
_GRUB_CONFIGS = ("/boot/grub/grub.cfg", "/boot/grub2/grub.cfg")
_GRUBENV = "/boot/grub2/grubenv"
_TUNED = "/etc/tuned/bootcmdline"


def loader(root: Root) -> str:
    """How the node gets its kernel command line: grub, bls, ostree, kernel_cmdline or unknown (Boot.loader in the facts)."""
    if root.exists("/run/ostree-booted") or root.exists("/ostree/repo"):
        return OSTREE
    defaults = root.read(grub.DEFAULTS)
    if defaults is not None:
        said = grub.source(defaults, {}).get("GRUB_ENABLE_BLSCFG")
        # Not said: then grub.cfg says it. It is read only when it has to be, since on many nodes root alone may.
        blscfg = said == "true" or (said is None and _entries(root) and "blscfg" in (root.read(_grub_config(root)) or ""))
        return BLS if blscfg else GRUB
    return KERNEL_INSTALL if root.exists(boot.KERNEL_CMDLINE) else UNKNOWN


def read(root: Root, command: Command, section: Section) -> Reading:
    """What the node boots from.

    :raises UnreadableRoot: a file is there and can't be read
    """
    kind = loader(root)
    config = _grub_config(root)
    grubenv = root.resolve(_GRUBENV) or _GRUBENV  # a link to the EFI system partition on Red Hat 8
    entries = _entries(root)
    deployment, probe = _deployment(root, command, entries) if kind == OSTREE else ("", "")
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
        entries=entries,
        kernel_cmdline=root.read(boot.KERNEL_CMDLINE),
        kernels=tuple(name for name in root.names("/usr/lib/modules") if root.exists("/usr/lib/modules/%s/vmlinuz" % name)),
        deployment=deployment,
        deployment_probe=probe,
        waiting=kind == OSTREE and _waiting(command),
        tuned=_tuned(root, kind, texts[1], variables),
    )


def _grub_config(root: Root) -> str:
    return next((path for path in _GRUB_CONFIGS if root.exists(path)), _GRUB_CONFIGS[0])


def _drop_ins(root: Root) -> Dict[str, str]:
    """The files that the shell's pattern *.cfg matches, in its order."""
    names = [name for name in root.names(grub.DROP_INS) if name.endswith(".cfg") and not name.startswith(".")]
    return {
        path: text for path in (posixpath.join(grub.DROP_INS, name) for name in names) for text in [root.read(path)] if text is not None
    }


def _entries(root: Root) -> Dict[str, str]:
    for folder in _ENTRIES:
        paths = [posixpath.join(folder, name) for name in root.names(folder) if name.endswith(".conf")]
        entries = {path: text for path in paths for text in [root.read(path)] if text is not None and "linux" in text}
        if entries:
            return entries
    return {}


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
