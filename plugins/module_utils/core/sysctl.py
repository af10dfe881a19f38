# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel parameters: one file of ours in sysctl.d, and the live values below /proc/sys.

Order of files: sysctl.d(5). systemd-sysctl sorts them by name over all folders and the last assignment wins; procps' ``sysctl --system``
reads /etc/sysctl.conf after all of them. A "-" before the name lets the other lines stand on a kernel that lacks this one.
"""

from __future__ import annotations

import fnmatch
import re
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from .change import FOREIGN, File, KernelValue, Observation, always
from .errors import InvalidInput
from .systemd import MARK, Parts

# Sorts after 99-sysctl.conf, Debian's link to /etc/sysctl.conf, and after names that begin with a letter.
PATH = "/etc/sysctl.d/zz-gpufleet.conf"
MAIN = "/etc/sysctl.conf"
FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d")

# Setting one of a pair makes the kernel read 0 for the other. Source: Documentation/admin-guide/sysctl/vm.rst.
_PAIRS = (("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_background_bytes", "vm.dirty_background_ratio"))
TWINS: Dict[str, str] = {**dict(_PAIRS), **{ratio: size for size, ratio in _PAIRS}}

# Whole-number ranges that the kernel enforces (kernel/sysctl.c, mm/page-writeback.c; dirty_bytes: two pages of at least 4 KiB).
_RANGES: Dict[str, Tuple[int, int]] = {
    "vm.swappiness": (0, 200),
    "vm.dirty_ratio": (0, 100),
    "vm.dirty_background_ratio": (0, 100),
    "vm.dirty_bytes": (8192, 2**63 - 1),
    "vm.dirty_background_bytes": (1, 2**63 - 1),
}
_NAME = re.compile(r"[a-z][a-z0-9_-]*([./][A-Za-z0-9_./:@-]+)+\Z")


def proc_path(name: str) -> str:
    """The file of a parameter. The first separator decides: after "net/" a dot is part of a name, as in net/ipv4/conf/eth0.1/forwarding."""
    first = re.search(r"[./]", name)
    if first and first.group() == ".":
        name = name.translate(str.maketrans("./", "/."))
    return "/proc/sys/" + name


def same_tokens(current: str, wanted: str) -> bool:
    """Equal but for white space: the kernel prints tabs between numbers."""
    return current.split() == wanted.split()


def looks_like(name: str, others: Iterable[str]) -> Optional[str]:
    """The parameter that is meant where the kernel lacks this one; None: it may be one of another kernel or of a module.

    :param others: the names of the files in the folder where its file would be
    """
    import difflib  # here, since few kernels lack one

    last = proc_path(name).rsplit("/", 1)[1]
    near = difflib.get_close_matches(last, list(others), n=1, cutoff=0.9)
    return name[: -len(last)] + near[0] if near else None


def artifacts(settings: Mapping[str, str], files: Sequence[Tuple[str, str]], misspelt: Optional[Mapping[str, str]] = None) -> Parts:
    """Our file and the live values. ``files`` are all sysctl files of the node as (path, text), in the order that systemd applies them,
    /etc/sysctl.conf last. ``misspelt``: names that this kernel doesn't have, with the one that it has.

    :raises InvalidInput: a value that the kernel refuses, both of a pair, one that cuts containers off the network, or a misspelt one
    """
    for name, meant in sorted((misspelt or {}).items()):
        raise InvalidInput("The kernel of this node has no parameter %s." % name, 'Did you mean "%s"?' % meant)
    wanted = {name: " ".join(str(value).split()) for name, value in settings.items()}
    _check(wanted)
    text = MARK + "".join("-%s = %s\n" % setting for setting in sorted(wanted.items()))
    return Parts(
        files=[File("sysctl file", PATH, always(text if wanted else None))],
        live=[
            *(_live(name, value) for name, value in sorted(wanted.items())),
            *_overriders(wanted, files),
        ],
    )


def _live(name: str, value: str) -> KernelValue:
    twin = TWINS.get(name)
    return KernelValue("sysctl %s" % name, proc_path(name), (value,), same_tokens, tied=(proc_path(twin),) if twin else ())


def _check(wanted: Mapping[str, str]) -> None:
    for name, value in wanted.items():
        if not _NAME.match(name) or ".." in name:
            raise InvalidInput('"%s" is not the name of a kernel parameter.' % name, 'Write it like "vm.swappiness".')
        if not value:
            raise InvalidInput("The kernel parameter %s has no value." % name, "Give one, or leave it out.")
        if name in _RANGES:
            low, high = _RANGES[name]
            if not re.match(r"\d+\Z", value) or not low <= int(value) <= high:
                remedy = "Give a whole number from %d%s." % (low, " to %d" % high if high < 2**63 - 1 else " on")
                if value == "0" and name in TWINS:  # F12
                    remedy = "Set %s instead: the kernel then turns this one off by itself." % TWINS[name]
                raise InvalidInput("The kernel refuses %s = %s." % (name, value), remedy)
        if TWINS.get(name, "") in wanted:
            raise InvalidInput(
                "%s and %s are given together, and the kernel keeps only the one set last." % tuple(sorted((name, TWINS[name]))),
                "Give one.",
            )
        if name == "net.ipv4.ip_forward" and value == "0":  # F17
            raise InvalidInput("net.ipv4.ip_forward = 0 cuts containers off the network.", "Leave it out, or set it to 1.")


def parse(text: str) -> Iterator[Tuple[str, str]]:
    """The assignments in a sysctl file as (name with dots, value), in order. Names may hold a glob."""
    for line in text.split("\n"):
        line = line.strip()
        if not line or line[0] in "#;" or "=" not in line:
            continue
        name, value = (part.strip() for part in line.lstrip("-").split("=", 1))
        first = re.search(r"[./]", name)
        yield (name.translate(str.maketrans("./", "/.")) if first and first.group() == "/" else name), value


def _overriders(wanted: Mapping[str, str], files: Sequence[Tuple[str, str]]) -> List[Observation]:
    """Files of others that win over ours with another value: they are theirs to mend."""
    ours = PATH.rsplit("/", 1)[1]
    found = []
    for path, text in files:
        if path != MAIN and path.rsplit("/", 1)[1] <= ours:
            continue
        last = dict(parse(text))
        for name, value in sorted(wanted.items()):
            for pattern, theirs in last.items():
                if fnmatch.fnmatchcase(name, pattern) and not same_tokens(theirs, value):
                    clash = "%s = %s" % (pattern, theirs)
                elif pattern == TWINS.get(name) and theirs != "0":
                    clash = "%s = %s, which turns %s off" % (pattern, theirs, name)
                else:
                    continue
                when = "whenever `sysctl --system` runs" if path == MAIN else "at each boot, since its name sorts after ours"
                found.append(Observation("sysctl %s" % name, FOREIGN, "%s sets %s and wins %s: take that line out." % (path, clash, when)))
    return found
