# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""In which order jobs may start so that each finds memory beside its CPUs: per NUMA node, under first touch, interleave and bind.

A job that owns CPUs touches its memory from them: on each NUMA node as much as its share of the CPUs. A job in the shared pool does as
one of three policies says; under first touch the worst is assumed, which is common: one thread loads all data, on the NUMA node where
it runs. Each job has touched all of its memory before the next starts, and those that run already before the first.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence, Tuple

from .quantity import GIB

FIRST_TOUCH, INTERLEAVE, BIND = "first_touch", "interleave", "bind"
POLICIES = (FIRST_TOUCH, INTERLEAVE, BIND)


@dataclass(frozen=True)
class Job:
    """A job. ``cpus``: its own CPUs by NUMA node; empty: it runs in the shared pool."""

    name: str
    memory: int
    cpus: Mapping[int, int]


@dataclass(frozen=True)
class NodeUse:
    """A NUMA node's memory in bytes, and what each job has of it in the end."""

    id: int
    memory_bytes: int
    jobs: Dict[str, int]


@dataclass(frozen=True)
class StartOrder:
    """One order of start with one policy for the jobs of the shared pool. ``problem`` says what goes wrong; "" when ``safe``."""

    order: Tuple[str, ...]
    policy: str
    safe: bool
    problem: str
    numa_nodes: Tuple[NodeUse, ...]


def start_orders(capacity: Mapping[int, int], jobs: Sequence[Job], running: Sequence[Job] = ()) -> Tuple[StartOrder, ...]:
    """Every order of the jobs under every policy, beside jobs that run. ``capacity``: memory for all of them in bytes by NUMA node."""
    return tuple(_run(capacity, running, order, policy) for order in itertools.permutations(jobs) for policy in POLICIES)


def _run(capacity: Mapping[int, int], running: Sequence[Job], order: Sequence[Job], policy: str) -> StartOrder:
    free = dict(capacity)
    got: Dict[int, Dict[str, int]] = {node: {} for node in capacity}
    problems: List[str] = []
    for number, job in enumerate([*running, *order]):
        if number == len(running):
            problems.clear()  # those that run have what they have
        wanted = _wanted(job, free, policy)
        short = {node: amount - free[node] for node, amount in wanted.items() if amount > free[node]}
        for node, amount in wanted.items():
            _give(job, node, min(amount, free[node]), free, got)
        missing = sum(short.values())
        if missing and job.cpus:
            lacks = ", ".join("%s on NUMA node %d" % (_size(amount), node) for node, amount in short.items())
            problems.append("%s lacks %s beside its CPUs." % (job.name, lacks))
        elif missing and policy == BIND:
            problems.append("%s is killed: the NUMA node it is bound to has %s less than it needs." % (job.name, _size(missing)))
            continue
        for node in sorted(free, key=lambda one: (-free[one], one)):  # the kernel falls back to other nodes
            part = min(missing, free[node])
            _give(job, node, part, free, got)
            missing -= part
        if missing:
            problems.append("%s is killed: the machine has %s less than it needs." % (job.name, _size(missing)))
    uses = tuple(NodeUse(node, capacity[node], jobs) for node, jobs in got.items())
    return StartOrder(tuple(job.name for job in order), policy, not problems, " ".join(problems), uses)


def _wanted(job: Job, free: Mapping[int, int], policy: str) -> Dict[int, int]:
    """Where a job's memory is to come from, whatever is free there."""
    if job.cpus:
        total = sum(job.cpus.values())
        return {node: job.memory * cpus // total for node, cpus in job.cpus.items()}
    if policy == INTERLEAVE:
        return _evenly(job.memory, free)
    # The node where the loading thread runs, or that is chosen to bind to: the emptiest, the best that can be hoped for.
    return {max(free, key=lambda node: (free[node], -node)): job.memory}


def _evenly(memory: int, free: Mapping[int, int]) -> Dict[int, int]:
    """Page after page from each node in turn; a full one is left out."""
    wanted = dict.fromkeys(free, 0)
    for position, node in enumerate(sorted(free, key=lambda one: free[one])):
        wanted[node] = min(free[node], memory // (len(free) - position))
        memory -= wanted[node]
    wanted[max(free, key=lambda one: free[one])] += memory
    return wanted


def _give(job: Job, node: int, amount: int, free: Dict[int, int], got: Dict[int, Dict[str, int]]) -> None:
    if amount > 0:
        free[node] -= amount
        got[node][job.name] = got[node].get(job.name, 0) + amount


def _size(count: int) -> str:
    return "%.0fGi" % (count / GIB)
