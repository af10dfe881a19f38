# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The answers of pod_fit as text for people: a table of containers, then what to know about refused pods, orders of start and the rest."""

from __future__ import annotations

import textwrap
from typing import Any, Dict, Iterable, List, Mapping, Sequence

WIDTH = 118
_NONE = "-"
_LIST_WIDTH = 34
_HEAD = ("pod", "container", "kubelet", "CPUs", "NUMA: CPUs", "memory", "devices", "L3")


def fit_lines(result: Mapping[str, Any]) -> List[str]:
    """The table, then sentences. ``result`` is what gpufleet.node.pod_fit returned."""
    rows: List[Sequence[str]] = [_HEAD]
    for pod in result["pods"]:
        rows += [_container_row(pod, one) for one in pod["containers"]] or [(pod["name"], _NONE, pod["reason"], *[_NONE] * 5)]
    lines = _table(rows)
    for pod in result["pods"]:
        if not pod["admitted"]:
            lines += _wrapped("%s: " % pod["name"], "%s %s" % (pod["message"], pod["change"]))
        elif pod["change"]:
            lines += _wrapped("%s: " % pod["name"], pod["change"])
        elif pod["scheduler"]["required"] not in ("runs", "unknown"):
            lines += _wrapped("%s: " % pod["name"], "not aligned; a scheduler that requires it says %s." % pod["scheduler"]["required"])
        if pod["ends"]:
            lines += _wrapped("%s: " % pod["name"], "kubelet ends %s for it." % ", ".join(pod["ends"]))
        if any(not one["devices_certain"] for one in pod["containers"]):
            lines += _wrapped("%s: " % pod["name"], "kubelet chooses between NUMA nodes; the devices are what NVIDIA's plugin prefers.")
    lines += [line for order in result["start_orders"] for line in _order_lines(order)]
    return lines + [line for note in result["notes"] for line in _wrapped("note: ", note["message"])]


def _container_row(pod: Mapping[str, Any], one: Mapping[str, Any]) -> Sequence[str]:
    devices = ["%d on %s" % (count, node) for counts in one["devices"].values() for node, count in counts.items()]
    return (
        pod["name"],
        one["name"] if one["kind"] == "app" else "%s (%s)" % (one["name"], one["kind"]),
        "admits",
        _short(one["cpus"]) + ("" if one["exclusive"] or not one["cpus"] else " (its pod's)") if one["cpus"] else "shared pool",
        _ids(one["cpu_numa_nodes"]),
        _ids(one["memory_numa_nodes"]),
        ", ".join(devices) or _NONE,
        {True: "aligned", False: "split", None: _NONE}[one["l3_aligned"]],
    )


def _order_lines(order: Mapping[str, Any]) -> List[str]:
    words: Dict[str, str] = {"first_touch": "first touch", "interleave": "interleaved", "bind": "bound to one NUMA node"}
    head = "start %s, %s: " % (" then ".join(order["order"]), words[order["policy"]])
    return _wrapped(head, "safe." if order["safe"] else order["problem"])


def _ids(nodes: Iterable[int]) -> str:
    return ",".join(map(str, nodes)) or _NONE


def _short(cpus: str) -> str:
    return (
        cpus if len(cpus) <= _LIST_WIDTH else textwrap.shorten(cpus.replace(",", ", "), _LIST_WIDTH, placeholder="...").replace(", ", ",")
    )


def _table(rows: Sequence[Sequence[str]]) -> List[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _wrapped(head: str, text: str) -> List[str]:
    return textwrap.wrap(head + text, WIDTH, subsequent_indent="    ")
