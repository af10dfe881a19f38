"""CPU jobs beside pods"""

from __future__ import annotations

import json
from typing import Any, Callable, Iterator

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet

Figure = Callable[[str], None]
SLICE = "/sys/fs/cgroup/gpufleet.slice/gpufleet-batch.slice"
WANTED = "/run/busy"  # nodes.yml: the service computes while it is there
LEFT_WITHIN = 5  # seconds
SLOW = 0.8  # seconds that Python takes to start and load a little; on an emulated machine on idle cores it is 0.6
STATE = "/var/lib/kubelet/cpu_manager_state"
# Where a job that always computes has been in the last moment, 20 times.
WHERE = "for i in $(seq 20); do ps -o psr= -C sha256sum; sleep 0.1; done | sort -u"


@pytest.fixture(scope="module", autouse=True)
def jobs(node: Any) -> Iterator[None]:
    """The batch service computes, and kubelet's state is as when no pod has CPUs to itself."""
    if not node.plan["units"].get("slice"):
        pytest.skip("this profile has no batch services")
    node.run(f"test ! -e {STATE}")
    _write_state(node, CpuSet.parse(node.plan["cpus"]["online"]), CpuSet())
    groups, unused = node.until(f"touch {WANTED}; ps -ww -o cgroup= -C sha256sum | sort -u", lambda text: "/" in text, 60)
    assert groups.split() == [f"0::{SLICE.removeprefix('/sys/fs/cgroup')}/gpufleet-busy.service"]
    yield
    node.run(f"rm -f {WANTED} {STATE}")


def test_pool(node: Any, figure: Figure) -> None:
    """Batch services run on the shared pool's CPUs only"""
    pool = CpuSet.parse(node.plan["cpus"]["pool"])
    _until_slice_has(node, pool)
    used = CpuSet(int(cpu) for cpu in node.run(WHERE).split())
    assert used and used <= pool
    figure(f"pool {pool}, seen on {used}")


def test_exclusive_cpus(node: Any, figure: Figure) -> None:
    """They leave CPUs that kubelet's CPU manager gives to a pod, and come back when the pod is gone"""
    online, pool = (CpuSet.parse(node.plan["cpus"][name]) for name in ("online", "pool"))
    given = CpuSet([max(pool)])
    _write_state(node, online - given, given)
    seconds = _until_slice_has(node, pool - given)
    used = CpuSet(int(cpu) for cpu in node.run(WHERE).split())
    assert used and used <= pool - given
    figure(f"CPU {given} left after {seconds:.1f} s, seen on {used}")
    _write_state(node, online, CpuSet())
    figure(f"back after {_until_slice_has(node, pool):.1f} s")
    start = float(node.run("s=$(date +%s.%N); python3 -c 'import argparse, json, subprocess'; awk \"BEGIN {print $(date +%s.%N) - $s}\""))
    if seconds > LEFT_WITHIN and start > SLOW:
        pytest.skip(f"they left after {seconds:.1f} s, on a machine where Python alone takes {start:.1f} s to start: too slow to tell")
    assert seconds <= LEFT_WITHIN


def _write_state(node: Any, default: CpuSet, given: CpuSet) -> None:
    """As kubelet does it: a file beside it that is renamed."""
    entries = {"7a5c": {"trainer": str(given)}} if given else {}
    text = json.dumps({"policyName": "static", "defaultCpuSet": str(default), "entries": entries, "checksum": 0})
    node.run(f"printf %s '{text}' >{STATE}.new && mv {STATE}.new {STATE}; date +%s.%N >/run/written")


def _until_slice_has(node: Any, cpus: CpuSet, seconds: float = 60) -> float:
    """The time from the writing of kubelet's state until the slice has these CPUs, by the node's own clock."""
    said = node.run(
        f'for i in $(seq {int(seconds * 5)}); do now=$(cat {SLICE}/cpuset.cpus.effective); test "$now" = {cpus} && break; sleep 0.2; done; '
        'echo "$now" $(awk "{print $(date +%s.%N) - \\$1}" /run/written)'
    ).split()
    assert said[0] == str(cpus)
    return float(said[1])
