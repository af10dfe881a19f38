# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel command line as an ordered list of tokens: what is ours in it, what we displace, what the running kernel lacks.

Nothing is ever sorted or made a set: a hugepages argument belongs to the hugepagesz before it. Sources: next_arg() and parameq() in the
kernel's lib/cmdline.c and kernel/params.c, kernel/sched/isolation.c, mm/hugetlb.c, Documentation/admin-guide/kernel-parameters.txt.
"""

from __future__ import annotations

import json
import re
from typing import Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from .cpuset import CpuSet
from .errors import InvalidInput, UnreadableRoot
from .kernel_config import Version

Tokens = Tuple[str, ...]

# Our keys, and which of several arguments with that key the kernel takes. pair: hugepages counts pages of the size right before it.
MANAGED: Dict[str, str] = {
    "isolcpus": "first",
    "nohz_full": "first",
    "rcu_nocbs": "last",
    "irqaffinity": "last",
    "intel_idle.max_cstate": "last",
    "processor.max_cstate": "last",
    "idle": "last",
    "default_hugepagesz": "first",
    "hugepagesz": "pair",
    "hugepages": "pair",
}
# One alone means nothing, so they are displaced and compared together.
_HUGEPAGES = frozenset({"default_hugepagesz", "hugepagesz", "hugepages"})
# An older kernel ignores the second of these when it names other CPUs than the first, so ours of one displaces others' of both.
_ISOLATION = frozenset({"isolcpus", "nohz_full"})
ISOLATIONS_MAY_DIFFER_SINCE: Version = (5, 18)
# Arguments that may stand several times, or that the node doesn't boot without. To own a key is to take others' values out.
_NOT_OURS = frozenset(
    "BOOT_IMAGE console earlyprintk earlycon init initrd memmap modprobe.blacklist module_blacklist ostree rd.luks.uuid rd.lvm.lv ro root "
    "rootflags rootfstype rw".split()
)
_CPU_LISTS = ("isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity")
_ISOLCPUS_FLAGS = ("domain", "managed_irq", "nohz")

_TOKEN = re.compile(r'(?:[^\s"]|"[^"]*(?:"|\Z))+', re.ASCII)
_KEY = re.compile(r'"?([^="]*)')
# No blank, and nothing that the kernel, a shell or GRUB's own script language gives a meaning.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*(?:=[A-Za-z0-9_.,:=/+@%!~^-]*)?\Z")
_END_OF_KERNEL = "--"  # what follows is init's


def split(line: str) -> List[str]:
    """The tokens of a command line, each as it is written: blanks separate, except inside double quotes."""
    return _TOKEN.findall(line)


def key(token: str) -> str:
    """The name of an argument. The kernel doesn't tell "-" from "_"."""
    match = _KEY.match(token)
    return match.group(1).replace("-", "_") if match else token


def keys_in(tokens: Sequence[str]) -> FrozenSet[str]:
    """The keys that these tokens speak of."""
    keys = frozenset(key(token) for token in tokens)
    return keys | _HUGEPAGES if keys & _HUGEPAGES else keys


def keys_of(tokens: Sequence[str]) -> FrozenSet[str]:
    """The keys whose arguments are ours when these tokens are wanted."""
    keys = keys_in(tokens)
    return keys | _ISOLATION if keys & _ISOLATION else keys


def _kernel_part(tokens: Sequence[str]) -> Tuple[List[str], List[str]]:
    end = list(tokens).index(_END_OF_KERNEL) if _END_OF_KERNEL in tokens else len(tokens)
    return list(tokens[:end]), list(tokens[end:])


class Record(NamedTuple):
    """What this node remembers of our arguments: those written last, those written before, and others' values that we displaced."""

    arguments: Tokens = ()
    former: Tokens = ()
    displaced: Tokens = ()

    @classmethod
    def parse(cls, text: Optional[str]) -> Record:
        """The record from its file; None (no file) is the empty record.

        :raises UnreadableRoot: not what ``render`` wrote
        """
        if text is None:
            return cls()
        try:
            data = json.loads(text)
            return cls(tuple(data["arguments"]), tuple(data["former"]), tuple(data["displaced"]))
        except (ValueError, KeyError, TypeError) as problem:
            raise UnreadableRoot(
                "The record of our kernel arguments can't be read: %s." % problem, "Restore the file from a backup, or remove it."
            ) from problem

    def render(self) -> str:
        """The file's content."""
        data = {"arguments": self.arguments, "former": self.former, "displaced": self.displaced}
        return json.dumps(data, indent=1, sort_keys=True) + "\n"

    def next(self, wanted: Sequence[str], displaced: Sequence[str]) -> Record:
        """The record of a node that is to have ``wanted``, where ``displaced`` are others' values found now."""
        ours = dict.fromkeys(self.arguments + self.former)
        # What is known stays as it was found first: a value that says the same as ours once did can't be told from ours later.
        again = keys_in([token for token in displaced if token not in self.displaced])
        known, found = (token for token in self.displaced if key(token) not in again), (token for token in displaced if key(token) in again)
        return Record(
            tuple(wanted),
            tuple(token for token in ours if token not in wanted),
            (*known, *found),
        )

    def leaving(self, wanted: Sequence[str]) -> Tokens:
        """Tokens of ours that have to go because no argument with their key is wanted any more."""
        keys = keys_of(wanted)
        return tuple(dict.fromkeys(token for token in self.arguments + self.former if key(token) not in keys))


NO_RECORD = Record()


def displaced_by(wanted: Sequence[str], current: Sequence[str], record: Record = NO_RECORD) -> Tokens:
    """Tokens in ``current`` with a key of ``wanted`` that we didn't write; one that says the same as ours is among them."""
    keys, ours = keys_of(wanted), {*record.arguments, *record.former}
    return tuple(token for token in _kernel_part(current)[0] if key(token) in keys and token not in ours)


def without(current: Sequence[str], wanted: Sequence[str], record: Record = NO_RECORD) -> List[str]:
    """``current`` less every argument with a key of ``wanted``, and less what is leaving; the rest keeps its order."""
    keys, leaving = keys_of(wanted), record.leaving(wanted)
    kernel, init = _kernel_part(current)
    return [token for token in kernel if key(token) not in keys and token not in leaving] + init


def merge(current: Sequence[str], wanted: Sequence[str], record: Record = NO_RECORD) -> List[str]:
    """The command line with ``wanted`` in it, each of its keys there only as wanted; the very same when that is so already.

    Where tokens of ours leave for good, the values they displaced come back.
    """
    kernel, init = _kernel_part(current)
    leave = any(token in kernel for token in record.leaving(wanted))
    if of(kernel, wanted) == tuple(wanted) and not leave:
        return list(current)
    keys, kept = keys_of(wanted), without(kernel, wanted, record)
    back = [token for token in record.displaced if leave and key(token) not in keys]
    # Those that a run before, which was killed, has put back already: once, and in the order in which they were found.
    return [*(token for token in kept if token not in back), *back, *wanted, *init]


def of(line: Sequence[str], wanted: Sequence[str]) -> Tokens:
    """The arguments in ``line`` with a key of ``wanted``, in their order."""
    keys = keys_of(wanted)
    return tuple(token for token in _kernel_part(line)[0] if key(token) in keys)


def differing(running: Sequence[str], wanted: Sequence[str], leaving: Sequence[str] = ()) -> List[str]:
    """The keys by which the running command line differs: wanted otherwise, or (``leaving``) wanted no more."""
    now = of(running, wanted)
    names = [name for name in dict.fromkeys(map(key, (*wanted, *now))) if _of_key(now, name) != _of_key(wanted, name)]
    if not names and [token for token in now if key(token) in _HUGEPAGES] != [token for token in wanted if key(token) in _HUGEPAGES]:
        names = ["hugepages"]  # the same tokens, paired otherwise
    return names + [name for name in dict.fromkeys(map(key, leaving)) if set(leaving) & set(_of_key(running, name))]


def _of_key(tokens: Sequence[str], name: str) -> List[str]:
    return [token for token in tokens if key(token) == name]


def isolated(tokens: Sequence[str], name: str) -> CpuSet:
    """The CPUs that isolcpus (if it has the flag domain, or none) or nohz_full takes out of use; empty when neither does."""
    values = [token.partition("=")[2].split(",") for token in tokens if key(token) == name]
    flags = [part for value in values for part in value if part in _ISOLCPUS_FLAGS]
    if not values or (flags and "domain" not in flags):
        return CpuSet()
    return _cpus(name, ",".join(values[0]))


def check(tokens: Sequence[str], kernel: Version) -> Tokens:
    """The tokens, when a node that boots this kernel can be given them.

    :raises InvalidInput: a character with a meaning to kernel, shell or GRUB; a key that isn't ours to take; a key twice; a malformed CPU
        list; hugepages without their size; interrupts sent to isolated CPUs; callbacks kept on tickless CPUs; two isolations of which the
        kernel takes one
    """
    for token in tokens:
        if not _PLAIN.match(token):
            raise InvalidInput(
                'The kernel argument "%s" has a blank, a quote or another character that can\'t be passed on safely.' % token,
                'Give one list item per argument, like "isolcpus=2-7", made of letters, digits and ._,:=/+@%!~^-.',
            )
        if key(token) in _NOT_OURS:
            raise InvalidInput(
                'The kernel argument "%s" isn\'t ours to set: other values of %s on the node would be taken out.' % (token, key(token)),
                "Set it where the distribution keeps it.",
            )
    _check_repeated(tokens)
    sets = {name: _cpus(name, value) for name, value in (token.split("=", 1) for token in tokens if "=" in token) if name in _CPU_LISTS}
    _check_cpus(sets, kernel)
    return tuple(tokens)


def _check_repeated(tokens: Sequence[str]) -> None:
    seen: List[str] = []
    for token, before in zip(tokens, ("", *tokens)):
        name = key(token)
        if name == "hugepages":
            if key(before) not in ("hugepagesz", "default_hugepagesz") and seen:
                raise InvalidInput(
                    '"%s" doesn\'t follow a page size, so the kernel would count pages of another size or none.' % token,
                    "Write hugepagesz=SIZE right before it.",
                )
        elif token in seen or (name != "hugepagesz" and name in map(key, seen)):
            taken = MANAGED.get(name, "last")
            which = "size once" if taken == "pair" else taken
            raise InvalidInput("The kernel argument %s is given twice; the kernel takes the %s." % (name, which), "Give one value.")
        seen.append(token)
        if name == "hugepagesz" and key((*tokens, "")[len(seen)]) != "hugepages":
            raise InvalidInput('"%s" isn\'t followed by a number of pages.' % token, "Write hugepages=N right after it.")


def _cpus(name: str, value: str) -> CpuSet:
    parts = value.split(",")
    while name == "isolcpus" and parts and parts[0] in _ISOLCPUS_FLAGS:
        del parts[0]
    cpus = CpuSet.parse(",".join(parts))
    if not cpus:
        raise InvalidInput("The kernel argument %s=%s names no CPU." % (name, value), "Give a CPU list, or leave the argument out.")
    return cpus


def _check_cpus(sets: Dict[str, CpuSet], kernel: Version) -> None:
    none = CpuSet()
    isolated = sets.get("isolcpus", none) | sets.get("nohz_full", none)
    both = sets.get("irqaffinity", none) & isolated
    if both:
        raise InvalidInput("irqaffinity sends interrupts to the isolated CPUs %s." % both, "Give irqaffinity the other CPUs.")
    kept = sets.get("nohz_full", none) - sets.get("rcu_nocbs", sets.get("nohz_full", none))
    if kept:
        raise InvalidInput("rcu_nocbs leaves out the CPUs %s of nohz_full." % kept, "Give both the same CPU list.")
    isolcpus, nohz_full = sets.get("isolcpus"), sets.get("nohz_full")
    if isolcpus and nohz_full and isolcpus != nohz_full and kernel < ISOLATIONS_MAY_DIFFER_SINCE:
        raise InvalidInput(
            "isolcpus names the CPUs %s and nohz_full %s, and kernels before %d.%d ignore one of them then."
            % (isolcpus, nohz_full, *ISOLATIONS_MAY_DIFFER_SINCE),
            "Give both the same CPU list.",
        )
