# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Boot loader entries (the UAPI group's Boot Loader Specification, type 1) and the variables that GRUB's blscfg puts into them.

Red Hat 8 entries say ``options $kernelopts $tuned_params`` with the values in grubenv; from Red Hat 9 and Fedora 33 on the line is written
out and only $tuned_params is left. grubenv is a block of 1024 bytes, filled up with "#".
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Sequence

from . import kernel_args
from .errors import GpufleetError
from .kernel_args import NO_RECORD, Record

_OPTIONS = re.compile(r"^([ \t]*options[ \t]+)(.*)$", re.MULTILINE)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]+)\}|([A-Za-z_]+))")
KERNELOPTS = ("$kernelopts", "${kernelopts}")


def is_rescue(path: str) -> bool:
    """True for the entry of the rescue kernel: like GRUB's recovery entries it keeps a command line that boots."""
    return "-0-rescue" in path


def options(entry: str) -> List[str]:
    """The tokens of an entry, variables as they are written. Several options lines are one."""
    return [token for match in _OPTIONS.finditer(entry) for token in kernel_args.split(match.group(2))]


def resolve(tokens: Sequence[str], variables: Mapping[str, str]) -> List[str]:
    """The tokens with $variables replaced as GRUB does."""
    return kernel_args.split(_VARIABLE.sub(lambda match: variables.get(match.group(1) or match.group(2), ""), " ".join(tokens)))


def edit(entry: str, wanted: Sequence[str], record: Record = NO_RECORD) -> str:
    """The entry with our arguments. Those of an entry that takes its line from $kernelopts belong there, so it only loses other values."""
    current = options(entry)
    if any(name in current for name in KERNELOPTS):
        merged = kernel_args.without(current, wanted, record)
    else:
        merged = kernel_args.merge(current, wanted, record)
    if merged == current:
        return entry
    line = " ".join(merged)
    first = _OPTIONS.search(entry)
    if first is None:
        return entry + ("" if entry.endswith("\n") else "\n") + "options %s\n" % line
    rest = re.sub(_OPTIONS.pattern + r"\n?", "", entry[first.end() :], flags=re.MULTILINE)
    return entry[: first.start()] + first.group(1) + line + rest


def edit_line(text: str, wanted: Sequence[str], record: Record = NO_RECORD) -> str:
    """A file that holds one command line and nothing else (/etc/kernel/cmdline) with our arguments."""
    current = kernel_args.split(text)
    merged = kernel_args.merge(current, wanted, record)
    return text if merged == current else " ".join(merged) + "\n"


# grubenv -------------------------------------------------------------------------------------------------------------------

_SIZE = 1024


def environment(grubenv: str) -> Dict[str, str]:
    """The variables of a GRUB environment block."""
    pairs = (line.partition("=") for line in _unescape(grubenv).split("\n") if "=" in line and not line.startswith("#"))
    return {name: value for name, _equals, value in pairs}


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def edit_grubenv(grubenv: str, wanted: Sequence[str], record: Record = NO_RECORD) -> str:
    """The environment block with our arguments in kernelopts; its size stays.

    :raises GpufleetError: there is no kernelopts, or no room for it
    """
    value = environment(grubenv).get("kernelopts")
    if value is None:
        raise GpufleetError(
            "The boot entries refer to $kernelopts, which grubenv doesn't have.", "Run grub2-mkconfig -o /boot/grub2/grub.cfg, then again."
        )
    current = kernel_args.split(value)
    merged = kernel_args.merge(current, wanted, record)
    if merged == current:
        return grubenv
    line = "kernelopts=" + " ".join(merged).replace("\\", "\\\\")
    lines = [line if old.startswith("kernelopts=") else old for old in grubenv.rstrip("#").splitlines()]
    text = "\n".join(lines) + "\n"
    size = max(_SIZE, len(grubenv))
    if len(text) > size:
        raise GpufleetError(
            "With our arguments kernelopts is longer than the %d bytes of grubenv." % size,
            "Ask for fewer arguments, or write the entries out with grubby --update-kernel=ALL --args=.",
        )
    return text.ljust(size, "#")
