# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Facts, plan and verdict as text for people: lists of lines, at most about 120 columns wide."""

from __future__ import annotations

import textwrap
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .change import DRIFT, FOREIGN, IN_PLACE, NOT_APPLICABLE, PENDING, REMOVAL
from .cpuset import CpuSet

WIDTH = 118
_LABEL = 19
_NAMED_ITEMS = 3
_LISTED_ITEMS = 16
_LIST_WIDTH = 32
_NONE = "-"
_SEVERITIES = ("error", "warning", "info")

# One character per physical core in the map of a NUMA node.
_RESERVED, _ISOLATED, _POOL, _PARTLY = "R", "I", "o", "?"

_STATUS_WORDS = {IN_PLACE: "in place", DRIFT: "drift", PENDING: "pending", FOREIGN: "someone else's", NOT_APPLICABLE: "not applicable"}


def human_size(count: int) -> str:
    """Bytes in the largest binary unit that keeps one digit ("1.1 TiB", "512 GiB")."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return "%d %s" % (value, unit) if value >= 10 or value == int(value) else "%.1f %s" % (value, unit)
        value /= 1024
    raise AssertionError("the loop returns at TiB")


def plan_lines(plan: Mapping[str, Any], topology: Mapping[str, Any]) -> List[str]:
    """The whole plan of a node: what is there, who gets which CPUs and why, every setting, every note."""
    return [
        *_headline(plan, topology),
        "",
        *_cpu_map(plan, topology),
        "",
        *_table(_numa_rows(plan)),
        "",
        *_labelled("GPU jobs", _job_sizes(plan)),
        *_labelled("kernel arguments", " ".join(plan["kernel_arguments"]) or "none"),
        *_labelled("kubelet", _kubelet(plan)),
        *_labelled("interrupts", _interrupts(plan)),
        *_labelled("memory", _memory(plan)),
        *_labelled("system", _system(plan)),
        *_labelled("sysctls", ", ".join("%s %s" % item for item in plan["sysctl"].items()) or "none"),
        *_notes(plan["notes"]),
    ]


def verdict_lines(concerns: Mapping[str, Any]) -> List[str]:
    """One line per item, grouped by concern: those that are in place where the result lists them, and of many that aren't and are alike,
    the first."""
    lines = []
    for name, result in concerns.items():
        alike: Dict[Tuple[str, str], int] = {}
        lines.append("%-9s %d in place" % (name, result["in_place"]))
        if result.get("refused"):
            lines += _wrapped("          refused: ", result["refused"])
        for item in result["findings"]:
            if item["status"] != IN_PLACE:
                kind = item["status"], item["item"].split()[0]
                alike[kind] = alike.get(kind, 0) + 1
                if alike[kind] > _LISTED_ITEMS:
                    continue
            said = ": ".join(text for text in (item["item"], item["message"]) if text)
            lines += _wrapped("          %-15s" % _STATUS_WORDS[item["status"]], said)
        lines += [
            "          %-15s%s: %d more; gpufleet_report_dir gets them all" % (_STATUS_WORDS[status], word, count - _LISTED_ITEMS)
            for (status, word), count in alike.items()
            if count > _LISTED_ITEMS
        ]
    return lines


def summary_lines(before: Mapping[str, Any], after: Optional[Mapping[str, Any]] = None) -> List[str]:
    """A run in a few lines: what it changed, what is pending, what to do next.

    :param before: node_verify's result at the start of the run
    :param after: its result at the end; without one nothing was done yet, and the lines say what is to be changed
    """
    if after is None and before["differing"]:
        return [*_labelled("to change", ", ".join(before["differing"])), *_in_place(before), *_others(before)]
    after = after or before
    changed = [name for name in before["differing"] if name not in after["differing"]]
    changed += ["%s (in part)" % name for name in after["differing"] if _mended_in_part(before["concerns"][name], after["concerns"][name])]
    return [
        *_labelled("changed", ", ".join(changed) or "nothing" + ("" if after["differing"] else ": the node is as planned")),
        *_in_place(after),
        *_grouped("pending", _with_status(after, PENDING)),
        *_others(after),
        *_labelled("next", _next_step(after)),
    ]


def _mended_in_part(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether an item of a concern drifts no more; one that is refused now doesn't say."""
    drifted, drifting = ({finding["item"] for finding in result["findings"] if finding["status"] == DRIFT} for result in (before, after))
    return not after.get("refused") and not drifted <= drifting


def _in_place(result: Mapping[str, Any]) -> List[str]:
    return _labelled("in place", "%d of %d items" % (result["counts"]["in_place"], sum(result["counts"].values())))


def _others(result: Mapping[str, Any]) -> List[str]:
    """What isn't ours to change: settings that someone else is in charge of, and concerns that were refused."""
    refused = [concern["refused"] for concern in result["concerns"].values() if concern.get("refused")]
    return [
        *_grouped("someone else's", _with_status(result, FOREIGN)),
        *(line for sentence in refused for line in _labelled("refused", sentence)),
    ]


def _with_status(result: Mapping[str, Any], status: str) -> List[Mapping[str, Any]]:
    return [finding for concern in result["concerns"].values() for finding in concern["findings"] if finding["status"] == status]


def rollback_lines(result: Mapping[str, Any]) -> List[str]:
    """The end of a roll-back (node_rollback's result): what other people's changes left, what is pending, what to do next."""
    findings = result["findings"]
    return [
        *_labelled("rolled back", "what was still ours" if result["changed"] else "nothing: nothing of ours was there"),
        *_labelled("as at first", "%d items" % result["in_place"]),
        *_grouped("pending", [finding for finding in findings if finding["status"] == PENDING]),
        *_grouped("someone else's", [finding for finding in findings if finding["status"] == FOREIGN]),
        *(_labelled("left installed", ", ".join(result["packages"])) if result["packages"] else ()),
        *(line for left in result["left"] for line in ("", left["path"], *left["diff"].splitlines())),
        *_labelled("next", _when_it_suits(result) or "nothing"),
    ]


def _grouped(label: str, findings: Sequence[Mapping[str, Any]]) -> List[str]:
    """One entry per message; what many items share is said once, with their number."""
    by_message: Dict[str, List[str]] = {}
    for finding in findings:
        by_message.setdefault(finding["message"], []).append(finding["item"])
    lines: List[str] = []
    for message, items in by_message.items():
        shown = (
            ", ".join(items)
            if len(items) <= _NAMED_ITEMS
            else "%s and %d more" % (", ".join(items[:_NAMED_ITEMS]), len(items) - _NAMED_ITEMS)
        )
        lines += _labelled(label, "%s: %s" % (shown, message))
    return lines


def _next_step(after: Mapping[str, Any]) -> str:
    if any(result.get("refused") for result in after["concerns"].values()):
        return "mend what was refused, then run site.yml again"
    if after["differing"]:
        return "%s still differ: verify.yml says in what; a run without --tags changes all" % ", ".join(after["differing"])
    waiting = _when_it_suits(after)
    return waiting + (", then run verify.yml" if after["reboot_required"] else "") if waiting else "nothing"


def _when_it_suits(result: Mapping[str, Any]) -> str:
    """What waits for somebody to choose the moment. A reboot restarts what waits for a restart, too."""
    steps = []
    if result["pending_commands"]:
        commands = "; ".join(" ".join(command) for command in result["pending_commands"])
        steps.append("boot a node from this root, or run on it: %s" % commands)
    if result["reboot_required"]:
        steps.append("reboot when it suits")
    else:
        steps += ["restart %s when it suits" % unit for unit in result["restart_required"]]
        steps += ["restart kubelet without %s (gpufleet_kubelet_restart: when_needed does)" % name for name in _to_remove(result)]
    return "; then ".join(steps)


def _to_remove(result: Mapping[str, Any]) -> List[str]:
    """Files that a unit would not start on."""
    found = [*result.get("findings", ()), *(item for concern in result.get("concerns", {}).values() for item in concern["findings"])]
    return [finding["item"] for finding in found if finding["status"] == PENDING and finding.get("until") == REMOVAL]


def _headline(plan: Mapping[str, Any], topology: Mapping[str, Any]) -> List[str]:
    return [
        "%s, kernel %s: %s, %s x %s, %d of %d CPUs online, %s, %s, %s, %s"
        % (
            topology["architecture"],
            topology["kernel_release"] or "unknown",
            _number(len(topology["packages"]), "package"),
            _number(len(topology["cores"]), "core"),
            _number(topology["threads_per_core"], "thread"),
            len(CpuSet.parse(topology["cpus"]["online"])),
            len(CpuSet.parse(topology["cpus"]["present"])),
            human_size(topology["memory_bytes"]),
            _number(len(topology["gpus"]), "GPU"),
            _number(len(topology["nics"]), "NIC"),
            _number(len(topology["nvmes"]), "NVMe drive"),
        ),
        "profile %s, workload %s, fingerprint %s" % (plan["profile"], plan["workload"], plan["fingerprint"][:12]),
    ]


def _cpu_map(plan: Mapping[str, Any], topology: Mapping[str, Any]) -> List[str]:
    cores = [CpuSet.parse(core) for core in topology["cores"]]
    groups = [CpuSet.parse(group["cpus"]) for group in topology["l3_groups"]]
    owners = [
        (letter, CpuSet.parse(plan["cpus"][name])) for letter, name in ((_RESERVED, "reserved"), (_ISOLATED, "isolated"), (_POOL, "pool"))
    ]
    lines = ["one letter per core, one word per L3 group: R reserved for the system, I isolated, o shared pool"]
    for node in topology["numa_nodes"]:
        cpus = CpuSet.parse(node["cpus"])
        words = [_core_letters([core for core in cores if core <= group], owners) for group in groups if group <= cpus and group]
        words = words or [_core_letters([core for core in cores if core <= cpus], owners)]
        about = " ".join(words) if cpus else "no CPUs, %s (%s)" % (human_size(node["memory_bytes"]), node["kind"])
        lines += _wrapped("NUMA node %-3d " % node["id"], about)
    return _folded_empty(lines)


def _folded_empty(lines: List[str]) -> List[str]:
    """A machine with thirty CPU-less nodes of one kind needs no thirty lines."""
    folded: List[str] = []
    for line in lines:
        about = line.partition("no CPUs")[2]
        if about and folded and folded[-1].partition("no CPUs")[2].split(" ... ")[0] == about:
            first = folded[-1].split(" ... ")[0]
            folded[-1] = first + " ... to NUMA node %s" % line.split()[2]
        else:
            folded.append(line)
    return folded


def _core_letters(cores: Iterable[CpuSet], owners: Sequence[Any]) -> str:
    return "".join(next((letter for letter, cpus in owners if core <= cpus), _PARTLY) for core in cores)


def _numa_rows(plan: Mapping[str, Any]) -> List[List[str]]:
    rows = [["NUMA node", "reserved", "left for jobs", "CPUs left", "whole L3", "GPUs", "CPUs per GPU", "memory reserved"]]
    for node in plan["numa_nodes"]:
        if not node["cpus"]:
            continue
        rows.append(
            [
                str(node["id"]),
                _shortened(node["reserved"]),
                _shortened(node["available"]),
                str(node["available_count"]),
                str(node["whole_l3_groups"] or _NONE),
                str(len(node["gpus"])),
                _share_of_gpu(node),
                human_size(node["reserved_memory_bytes"]) if node["reserved_memory_bytes"] else _NONE,
            ]
        )
    return rows


def _share_of_gpu(node: Mapping[str, Any]) -> str:
    share = node["cpus_per_gpu"]
    if not node["gpus"] or not share:
        return _NONE
    return str(share["whole_cores"]) + (" (%s in whole L3)" % share["whole_l3_groups"] if node["whole_l3_groups"] else "")


def _shortened(cpus: str) -> str:
    """A list of CPUs for a column: of a long one the first ranges that fit, and the last."""
    if len(cpus) <= _LIST_WIDTH:
        return cpus
    *ranges, last = cpus.split(",")
    kept = cpus[: _LIST_WIDTH - len(last) - len(" ... ")].rpartition(",")[0] or ranges[0]
    return "%s ... %s" % (kept, last)


def _number(count: int, noun: str) -> str:
    return "%d %s%s" % (count, noun, "" if count == 1 else "s")


def _table(rows: List[List[str]]) -> List[str]:
    """Rows below their heading; a column without any entry is left out."""
    columns = [column for column in zip(*rows) if set(column[1:]) != {_NONE}]
    rows = [list(row) for row in zip(*columns)]
    widths = [max(len(cell) for cell in column) for column in columns]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _steps(sizes: Sequence[int]) -> str:
    if len(sizes) < 4:
        return ", ".join(str(size) for size in sizes) or "none"
    return "%d, %d ... %d" % (sizes[0], sizes[1], sizes[-1])


def _job_sizes(plan: Mapping[str, Any]) -> str:
    by_node: Dict[str, List[str]] = {}
    for node in plan["numa_nodes"]:
        if node["aligned_job_sizes"]:
            by_node.setdefault(_steps(node["aligned_job_sizes"]), []).append(str(node["id"]))
    parts = ["%s CPUs on node %s" % (sizes, " or ".join(nodes)) for sizes, nodes in by_node.items()]
    if plan["aligned_job_sizes_across_nodes"]:
        parts.append("%s across nodes" % _steps(plan["aligned_job_sizes_across_nodes"]))
    condition = next(
        ("See %s below." % note["code"] for note in plan["notes"] if note["message"] == plan["alignment"]["condition"]),
        plan["alignment"]["condition"],
    )
    if not parts:
        return "any size on one NUMA node. " + condition if plan["alignment"]["holds"] else condition
    kind = "L3-aligned sizes" if plan["alignment"]["holds"] else "whole L3 groups, not aligned as things stand"
    return "%s: %s. %s" % (kind, "; ".join(parts), condition)


def _kubelet(plan: Mapping[str, Any]) -> str:
    kubelet = plan["kubelet"]
    if not kubelet:
        return "none on this node"
    configuration = kubelet["configuration"]
    shown = {key: value for key, value in configuration.items() if key not in ("apiVersion", "kind")}
    return "%s %s: %s" % (kubelet["distribution"], kubelet["version"] or "(version unknown)", _inline(shown))


def _inline(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(
            "%s %s" % (key, "{%s}" % _inline(item) if isinstance(item, (Mapping, list)) else item) for key, item in value.items()
        )
    if isinstance(value, list):
        return "; ".join(_inline(item) for item in value)
    return str(value)


def _interrupts(plan: Mapping[str, Any]) -> str:
    interrupts = plan["interrupts"]
    if interrupts["placement"] == "none":
        return "left alone. irqbalance %s" % interrupts["irqbalance"]
    by_cpus: Dict[str, int] = {}
    for device in interrupts["devices"]:
        by_cpus[device["cpus"]] = by_cpus.get(device["cpus"], 0) + 1
    placed = "; ".join(
        "%s on CPUs %s" % (_number(count, "device"), cpus)
        for cpus, count in sorted(by_cpus.items(), key=lambda item: CpuSet.parse(item[0]).first)
    )
    return "%s: %s. irqbalance %s, everything else on %s" % (
        interrupts["placement"],
        placed or "no devices with a known NUMA node",
        interrupts["irqbalance"],
        interrupts["default_affinity"],
    )


def _memory(plan: Mapping[str, Any]) -> str:
    thp = plan["transparent_hugepage"]
    pages = [
        "%s x %s on node %s" % (count, human_size(int(size)), node)
        for size, nodes in plan["hugepages"].items()
        for node, count in nodes.items()
    ]
    return "transparent hugepages %s; hugepages %s; swap %s" % (
        "%s, defrag %s" % (thp["enabled"], thp["defrag"]) if thp else "as they are",
        ", ".join(pages) or "none",
        plan["swap"],
    )


def _system(plan: Mapping[str, Any]) -> str:
    limits, confine = plan["limits"], plan["confine"]
    return "governor %s; %s; %s" % (
        plan["governor"] or "as it is",
        "memlock %s, nofile %s" % (limits["memlock"], limits["nofile"]) if limits else "limits as they are",
        "system daemons and logins confined to %s" % confine["cpus"] if confine else "system daemons not confined",
    )


def _notes(notes: Sequence[Mapping[str, Any]]) -> List[str]:
    """What to act on comes first."""
    lines: List[str] = []
    for note in sorted(notes, key=lambda note: _SEVERITIES.index(note["severity"])):
        lines += _labelled(note["severity"], "%s: %s" % (note["code"], note["message"]))
    return ["", *lines] if lines else []


def _labelled(label: str, text: str) -> List[str]:
    return _wrapped(label.ljust(_LABEL), text)


def _wrapped(head: str, text: str) -> List[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False, break_on_hyphens=False
    ) or [head.rstrip()]
