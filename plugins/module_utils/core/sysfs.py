# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings below /sys: transparent hugepages, hugepage pools and the CPU frequency governor, live and by tmpfiles.d at boot.

systemd-tmpfiles-setup.service is over before sysinit.target, hence before kubelet, k3s and every container runtime: hugepages that come
later than kubelet are unknown to it. Of two "w" lines for one path the one in the file that sorts first counts, so ours sort early.
Source: tmpfiles.d(5), Documentation/admin-guide/mm/{transhuge,hugetlbpage}.rst, Documentation/admin-guide/pm/cpufreq.rst.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .change import NOT_APPLICABLE, PENDING, REBOOT, Artifact, Effect, File, KernelValue, Observation, Text, always
from .errors import InvalidInput, unknown_name
from .systemd import MARK, Parts

THP = "/sys/kernel/mm/transparent_hugepage"
NODES = "/sys/devices/system/node"
POLICIES = "/sys/devices/system/cpu/cpufreq"

THP_FILE = "/etc/tmpfiles.d/00-gpufleet-transparent-hugepage.conf"
HUGEPAGES_FILE = "/etc/tmpfiles.d/00-gpufleet-hugepages.conf"
GOVERNOR_FILE = "/etc/tmpfiles.d/00-gpufleet-governor.conf"

# The words of current kernels, for a root whose kernel doesn't tell.
_THP_WORDS = {"enabled": ("always", "madvise", "never"), "defrag": ("always", "defer", "defer+madvise", "madvise", "never")}
_POOL = re.compile(r"w %s/node(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages " % NODES)
_GIGANTIC = 1 << 30

Pool = Tuple[int, int]  # page size in bytes, NUMA node id


class SysfsReading(NamedTuple):
    """``thp`` holds the texts of enabled and defrag. ``pools`` are the hugepage pools there are with their pages; ``nodes`` the NUMA
    nodes as {id: (memory bytes, free bytes)}; ``hugepages_file`` the text of our tmpfiles.d file. ``governors`` are the words that each
    cpufreq policy offers, empty where it doesn't tell."""

    thp: Mapping[str, str] = {}
    pools: Mapping[Pool, int] = {}
    nodes: Mapping[int, Tuple[int, int]] = {}
    hugepages_file: Text = None
    governors: Mapping[str, Tuple[str, ...]] = {}


def chosen_word(text: str) -> str:
    """The chosen one of "always [madvise] never"; a text without brackets is itself the word."""
    match = re.search(r"\[(\S+)\]", text)
    return match.group(1) if match else text.strip()


def _same_word(current: str, wanted: str) -> bool:
    return chosen_word(current) == wanted


def _same_number(current: str, wanted: str) -> bool:
    return current.strip().isdigit() and int(current) == int(wanted)


def _tmpfiles(item: str, path: str, lines: Sequence[Tuple[str, str]]) -> File:
    text = MARK + "".join("w %s - - - - %s\n" % line for line in lines) if lines else None
    return File(item, path, always(text))


def transparent_hugepage(wanted: Mapping[str, str], reading: SysfsReading) -> Parts:
    """``enabled`` and ``defrag``, of the words that this kernel offers.

    :raises InvalidInput: another key, or a word that the kernel doesn't have there
    """
    for name, word in wanted.items():
        if name not in _THP_WORDS:
            raise unknown_name("setting of transparent hugepages", name, _THP_WORDS)
        text = reading.thp.get(name, "")
        offered = text.replace("[", " ").replace("]", " ").split() if "[" in text else _THP_WORDS[name]
        if word not in offered:
            raise InvalidInput(
                "Transparent hugepages' %s can't be \"%s\" on this kernel." % (name, word), "Choose from %s." % ", ".join(offered)
            )
    values = [("%s/%s" % (THP, name), word) for name, word in sorted(wanted.items(), reverse=True)]
    return Parts(
        files=[_tmpfiles("transparent hugepages at boot", THP_FILE, values)],
        live=[
            KernelValue("transparent hugepages %s" % path.rsplit("/", 1)[1], path, (word,), _same_word, shown=chosen_word)
            for path, word in values
        ],
    )


def governor(word: str, reading: SysfsReading) -> Parts:
    """The governor of every cpufreq policy that offers it; a node without cpufreq has none to set.

    :raises InvalidInput: no policy of this node offers it, or it isn't a word
    """
    if not word:
        return Parts(files=[_tmpfiles("governor at boot", GOVERNOR_FILE, [])])
    if not re.match(r"[a-z_]+\Z", word):
        raise InvalidInput('"%s" is not the name of a governor.' % word, 'Give one word, like "performance".')
    having = [policy for policy, offered in reading.governors.items() if not offered or word in offered]
    if reading.governors and not having:
        offered = sorted({name for names in reading.governors.values() for name in names})
        raise InvalidInput('No CPU of this node has the governor "%s".' % word, "Choose from %s." % ", ".join(offered))
    live: List[Artifact] = [
        KernelValue("governor of %s" % policy, "%s/%s/scaling_governor" % (POLICIES, policy), (word,), _same_word) for policy in having
    ]
    live.extend(
        Observation("governor of %s" % policy, NOT_APPLICABLE, "it offers %s only" % ", ".join(offered))
        for policy, offered in reading.governors.items()
        if policy not in having
    )
    if not reading.governors:
        live.append(Observation("governor", NOT_APPLICABLE, "this node has no cpufreq: its firmware or hypervisor chooses frequencies"))
    return Parts([_tmpfiles("governor at boot", GOVERNOR_FILE, [("%s/policy*/scaling_governor" % POLICIES, word)])], live)


def hugepages(wanted: Mapping[Any, Mapping[Any, Any]], reading: SysfsReading) -> Parts:
    """The pools of each size and NUMA node. A node that isn't named gets none of the sizes that are; a pool of our former file goes.

    :raises InvalidInput: a size that the kernel lacks, a node that isn't there, or more than its memory
    """
    counts = _counts(wanted)
    _check_pools(counts, reading)
    sizes = {size for size, _node in counts}
    full = {**{pool: 0 for pool in reading.pools if pool[0] in sizes}, **counts}
    former = {(int(kib) * 1024, int(node)) for node, kib in _POOL.findall(reading.hugepages_file or "")}
    gone = sorted(pool for pool in former - set(full) if pool in reading.pools)
    # A pool that goes is emptied before our file forgets it, so that a run that was killed ends the next time.
    files: List[Artifact] = [_pool_value(pool, 0) for pool in gone]
    files.append(_tmpfiles("hugepages at boot", HUGEPAGES_FILE, [(_pool_path(pool), str(count)) for pool, count in sorted(full.items())]))
    return Parts(files, [_pool_artifact(pool, count, reading) for pool, count in sorted(full.items())])


def _counts(wanted: Mapping[Any, Any]) -> Dict[Pool, int]:
    counts = {}
    for size, by_node in wanted.items():
        pools = by_node if isinstance(by_node, dict) else {"every node": by_node}
        for node, count in pools.items():
            if not all(re.match(r"\d+\Z", str(number)) for number in (size, node, count)) or not int(size):
                raise InvalidInput(
                    "Hugepages {%s: {%s: %s}} are not whole numbers." % (size, node, count),
                    'Give {"page size in bytes": {"NUMA node": pages}}, like {"2097152": {"0": 512}}.',
                )
            counts[int(size), int(node)] = int(count)
    return counts


def _check_pools(counts: Mapping[Pool, int], reading: SysfsReading) -> None:
    offered = sorted({size for size, _node in reading.pools})
    needed: Dict[int, int] = {}
    for (size, node), count in counts.items():
        if offered and size not in offered:
            raise InvalidInput("This kernel has no hugepages of %d bytes." % size, "Choose from %s." % ", ".join(map(str, offered)))
        if reading.nodes and node not in reading.nodes:
            raise InvalidInput(
                "This node has no NUMA node %d for hugepages." % node, "Choose from %s." % ", ".join(map(str, sorted(reading.nodes)))
            )
        needed[node] = needed.get(node, 0) + size * count
    for node, need in needed.items():
        memory = reading.nodes[node][0] if reading.nodes else need
        if need > memory:
            raise InvalidInput(
                "%d bytes of hugepages on NUMA node %d are more than its %d bytes of memory." % (need, node, memory), "Ask for fewer there."
            )


def _pool_path(pool: Pool) -> str:
    return "%s/node%d/hugepages/hugepages-%dkB/nr_hugepages" % (NODES, pool[1], pool[0] // 1024)


def _pool_item(pool: Pool) -> str:
    return "hugepages of %d KiB on NUMA node %d" % (pool[0] // 1024, pool[1])


def _pool_value(pool: Pool, count: int) -> KernelValue:
    return KernelValue(_pool_item(pool), _pool_path(pool), (str(count),), _same_number)


def _pool_artifact(pool: Pool, count: int, reading: SysfsReading) -> Artifact:
    """Written live where the memory can be had: gigantic pages, or more than is free, come at the next boot only."""
    has = reading.pools.get(pool)
    missing: Optional[int] = None if has is None else (count - has) * pool[0]
    free = reading.nodes.get(pool[1], (0, 0))[1]
    if missing is None or missing <= 0 or (pool[0] < _GIGANTIC and missing <= free):
        return _pool_value(pool, count)
    return Effect(
        _pool_item(pool),
        _pool_path(pool),
        lambda text: text is not None and _same_number(text, str(count)),
        unmet=PENDING,
        until=REBOOT,
        message="%d of %d pages: the kernel finds room for the rest at the next boot" % (has or 0, count),
    )
