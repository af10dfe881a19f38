"""Unit texts and artifacts of services, as far as they need no folder."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core import allocators
from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_services import Batch, Pinned
from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_units import Slice, Units, parse, service_unit
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT, FOREIGN, PENDING, RESTART, Effect, File, Observation
from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.units import Reading, artifacts

SLICE = Slice(CpuSet.parse("1-7"), CpuSet([0]), CpuSet.parse("0-1"), CpuSet.parse("0-1"), 20, 20, False, "")
FOLLOWING = Slice(CpuSet.parse("1-7"), CpuSet([0]), CpuSet.parse("0-1"), CpuSet.parse("0-1"), 20, 20, True, "/var/lib/kubelet")


def settings(text: str) -> dict[str, list[str]]:
    """Values by name; a name may occur again."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            name, _sign, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def batch(units: Units | None = None, library: str | None = None, **keys: Any) -> dict[str, list[str]]:
    given = {"name": "prep", "command": ("/bin/prep",), "user": "jobs", **keys}
    return settings(service_unit(Batch(**given), units or Units("x86_64", "/usr/local/bin/numaspread", False, SLICE), library))


def pinned(**keys: Any) -> dict[str, list[str]]:
    given = {"name": "feed", "command": ("/bin/feed",), "user": "jobs", "cpus": CpuSet.parse("2-3"), "memory_nodes": CpuSet([1]), **keys}
    return settings(service_unit(Pinned(**given), Units()))


def wanted(units: Units, **reading: Any) -> list[Any]:
    return artifacts({"units": to_json(units)}, Reading(**reading))


def text_of(found: list[Any], name: str) -> str | None:
    return next(one.edit(None) for one in found if isinstance(one, File) and one.path.endswith("/" + name))


def effect(found: list[Any], item: str) -> Effect:
    return next(one for one in found if isinstance(one, Effect) and one.item == item)


def test_a_batch_service_starts_through_the_launcher_and_is_pinned_nowhere() -> None:  # D12, D13, I1
    found = batch()
    assert found["ExecStart"] == ['"/usr/local/bin/numaspread" "--mode" "interleave" "--" "/bin/prep"']
    assert found["Slice"] == ["gpufleet-batch.slice"] and found["User"] == ["jobs"]
    assert "AllowedCPUs" not in found and "CPUAffinity" not in found and "NUMAPolicy" not in found
    assert found["AllowedMemoryNodes"] == ["0-1"]
    assert found["OOMScoreAdjust"] == ["1000"] and "MemoryMax" not in found
    assert found["WantedBy"] == ["multi-user.target"] and "WantedBy" not in batch(timer={"on_calendar": "daily"})


def test_launcher_options() -> None:
    assert '"--nodes" "0,2"' in batch(nodes="0,2")["ExecStart"][0] and batch(nodes="0,2")["AllowedMemoryNodes"] == ["0,2"]
    assert '"--nodes"' not in batch(nodes="0", mode="local")["ExecStart"][0]
    assert '"--mode" "weighted" "--best-effort" "--"' in batch(mode="weighted", best_effort=True)["ExecStart"][0]


def test_fences() -> None:
    limits = ({"device": "/dev/nvme0n1", "read_bytes": 1 << 20, "write_iops": 500},)
    found = batch(memory_max=10 << 30, io_limits=limits, cpu_weight=30, io_weight=40)
    assert (found["MemoryHigh"], found["MemoryMax"]) == ([str(9 << 30)], [str(10 << 30)])
    assert (found["IOReadBandwidthMax"], found["IOWriteIOPSMax"]) == (["/dev/nvme0n1 1048576"], ["/dev/nvme0n1 500"])
    assert (found["CPUWeight"], found["IOWeight"]) == (["30"], ["40"])


def test_page_migration_is_refused_unless_asked_for_and_memory_policies_never_are() -> None:
    def calls(**keys: Any) -> list[str]:
        (text,) = batch(**keys)["SystemCallFilter"]
        assert text.startswith("~")
        return text[1:].split()

    assert {"move_pages", "migrate_pages"} <= set(calls())
    assert not {"move_pages", "migrate_pages"} & set(calls(page_migration=True))
    assert not {"set_mempolicy", "mbind", "@resources", "@system-service", "@memlock"} & set(calls())


def test_nothing_breaks_a_jit_hides_data_or_takes_the_gpu_away() -> None:
    for found in (batch(), pinned()):
        assert not {"MemoryDenyWriteExecute", "ProtectHome", "PrivateTmp", "DynamicUser", "PrivateUsers", "ProcSubset"} & set(found)
        assert found["ProtectSystem"] == ["full"] and found["NoNewPrivileges"] == ["yes"]
    # ProtectClock= allows /dev/rtc, by which every device that isn't listed is closed.
    assert not {"ProtectClock", "DevicePolicy", "DeviceAllow", "PrivateDevices"} & set(pinned())


def test_a_pinned_service_is_on_its_cpus_with_the_memory_of_its_gpu() -> None:
    found = pinned()
    assert (found["AllowedCPUs"], found["AllowedMemoryNodes"], found["Slice"]) == (["2-3"], ["1"], ["gpufleet_pinned.slice"])
    assert found["ExecStart"] == ['"/bin/feed"'] and found["Nice"] == ["-5"] and found["RestrictRealtime"] == ["yes"]
    real_time = pinned(policy="fifo", priority=20)
    assert (real_time["CPUSchedulingPolicy"], real_time["CPUSchedulingPriority"]) == (["fifo"], ["20"])
    assert "RestrictRealtime" not in real_time and "Nice" not in real_time
    places = pinned(threads=2)["Environment"]
    assert places == ['"OMP_NUM_THREADS=2"', '"OMP_PLACES={2},{3}"', '"OMP_PROC_BIND=true"']
    with pytest.raises(InvalidInput, match="which systemd reads as all"):
        pinned(cpus=CpuSet())


def test_a_slice_without_cpus_is_refused() -> None:
    service = Batch("prep", ("/bin/prep",), "jobs")
    for here in (None, Slice(CpuSet(), CpuSet([0]), CpuSet(), CpuSet(), 20, 20, False, "")):
        with pytest.raises(InvalidInput, match="which systemd reads as all"):
            parse({"units": to_json(Units("x86_64", "/bin/n", False, here, (service,)))})


def test_the_slice_starts_on_the_reserved_cpus_where_it_follows_kubelet() -> None:  # A18, A25
    service = (Batch("prep", ("/bin/prep",), "jobs"),)
    still = wanted(Units("x86_64", "/bin/n", False, SLICE, service))
    assert "AllowedCPUs=1-7\n" in (text_of(still, "gpufleet-batch.slice") or "") and text_of(still, "gpufleet-batch-cpus.path") is None
    moving = wanted(Units("x86_64", "/bin/n", False, FOLLOWING, service))
    assert "AllowedCPUs=0\n" in (text_of(moving, "gpufleet-batch.slice") or "")
    assert "PathChanged=/var/lib/kubelet/cpu_manager_state\n" in (text_of(moving, "gpufleet-batch-cpus.path") or "")
    assert "After=gpufleet-batch-cpus.service\n" in (text_of(moving, "gpufleet-prep.service") or "")


def test_weights_are_checked_beside_kubepods() -> None:
    units = Units("x86_64", "/bin/n", False, SLICE, (Batch("prep", ("/bin/prep",), "jobs"),))
    found = wanted(units, kubepods_weight=10000)
    weight = effect(found, "cpu.weight of gpufleet.slice")
    assert weight.probe == "/sys/fs/cgroup/gpufleet.slice/cpu.weight"
    assert weight.satisfied("20\n") and weight.satisfied(None) and not weight.satisfied("100\n")
    assert "CPUWeight=20\n" in (text_of(found, "gpufleet.slice") or "")
    heavy = [one for one in wanted(units, kubepods_weight=10) if isinstance(one, Observation)]
    assert [(one.status, one.item) for one in heavy] == [(FOREIGN, "CPU weight of kubepods")]


def test_the_live_slice_is_judged_by_kubelets_state() -> None:
    units = Units("x86_64", "/bin/n", False, FOLLOWING, (Batch("prep", ("/bin/prep",), "jobs"),))
    live = effect(wanted(units, state='{"policyName":"static","defaultCpuSet":"0,4-7"}'), "CPUs of gpufleet-batch.slice")
    assert live.satisfied("4-7\n") and live.satisfied(None) and not live.satisfied("1-7\n")
    assert live.command == ("systemctl", "start", "gpufleet-batch-cpus.service")
    assert effect(wanted(units), "CPUs of gpufleet-batch.slice").satisfied("0\n")  # no state: the reserved CPUs


def test_what_a_former_follower_said_is_overridden() -> None:
    units = Units("x86_64", "/bin/n", False, SLICE, (Batch("prep", ("/bin/prep",), "jobs"),))
    left = effect(wanted(units), "gpufleet-batch.slice no longer follows kubelet")
    assert left.satisfied(None) and left.satisfied("[Slice]\nAllowedCPUs=\nAllowedCPUs=1-3 4-7\n")
    assert not left.satisfied("[Slice]\nAllowedCPUs=\nAllowedCPUs=1-3\n")
    assert left.command == ("systemctl", "set-property", "--runtime", "gpufleet-batch.slice", "AllowedCPUs=1-7")


def test_a_running_service_is_never_restarted_but_said() -> None:
    units = Units("x86_64", "/bin/n", False, SLICE, (Batch("prep", ("/bin/prep",), "jobs"),))
    text = text_of(wanted(units), "gpufleet-prep.service") or ""

    def pending(**reading: Any) -> list[Observation]:
        return [one for one in wanted(units, **reading) if isinstance(one, Observation)]

    unit = "gpufleet-prep.service"
    assert pending(services={unit: text}, running=frozenset({unit})) == []
    for reading in ({"services": {unit: "old"}}, {"services": {unit: text}, "stale": frozenset({unit})}):
        (one,) = pending(running=frozenset({unit}), **reading)
        assert (one.item, one.status, one.until) == (unit, PENDING, RESTART)
    assert pending(services={unit: "old"}) == []


@pytest.mark.parametrize(
    ("shown", "satisfied"),
    [
        ("ActiveState=active\nResult=success\nExecMainStartTimestampMonotonic=5\n", True),
        ("ActiveState=inactive\nResult=success\nExecMainStartTimestampMonotonic=5\n", True),  # a job that is done
        ("ActiveState=inactive\nResult=success\nExecMainStartTimestampMonotonic=0\n", False),
        ("ActiveState=failed\nResult=exit-code\nExecMainStartTimestampMonotonic=5\n", False),
        (None, False),
    ],
)
def test_a_job_that_is_done_is_not_started_again(shown: str | None, satisfied: bool) -> None:
    units = Units("x86_64", "/bin/n", False, SLICE, (Batch("prep", ("/bin/prep",), "jobs"),))
    assert effect(wanted(units), "gpufleet-prep.service has started").satisfied(shown) is satisfied


def test_systemd_reads_its_files_again_only_where_ours_are() -> None:  # J8
    reload = "systemd has read our unit files"
    assert [one.item for one in wanted(Units()) if isinstance(one, Effect)] == []
    units = Units("x86_64", "/bin/n", False, SLICE, (Batch("prep", ("/bin/prep",), "jobs"),))
    assert effect(wanted(units), reload).probe[-1] == "gpufleet.slice"
    gone = wanted(Units(), services={"gpufleet-old.service": "x"})
    assert effect(gone, reload).probe[-1] == "gpufleet-old.service"


def test_without_systemd_only_files_are_written() -> None:
    units = Units("x86_64", "/bin/n", False, FOLLOWING, (Batch("prep", ("/bin/prep",), "jobs"),))
    assert [one for one in wanted(units, systemd=False) if isinstance(one, Effect)] == []


def test_cgroup_v1_is_refused() -> None:
    units = Units("x86_64", "/bin/n", False, SLICE, (Batch("prep", ("/bin/prep",), "jobs"),))
    with pytest.raises(InvalidInput, match="runs cgroup v1"):
        wanted(units, unified=False)
    assert wanted(Units(), unified=False)


# Allocators ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allocator", "architecture", "family", "path", "package"),
    [
        ("jemalloc", "x86_64", "debian", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "libjemalloc2"),
        ("jemalloc", "aarch64", "debian", "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2", "libjemalloc2"),
        ("tcmalloc", "ppc64le", "debian", "/usr/lib/powerpc64le-linux-gnu/libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
        ("jemalloc", "x86_64", "redhat", "/usr/lib64/libjemalloc.so.2", "jemalloc"),
        ("tcmalloc", "aarch64", "redhat", "/usr/lib64/libtcmalloc_minimal.so.4", "gperftools-libs"),
    ],
)
def test_allocators(allocator: str, architecture: str, family: str, path: str, package: str) -> None:
    service = Batch("prep", ("/bin/prep",), "jobs", allocator=allocator)
    units = Units(architecture, "/bin/n", False, SLICE, (service,))
    with pytest.raises(InvalidInput) as refusal:
        wanted(units, family=family)
    assert str(refusal.value) == (
        f"Service prep wants {allocator}, and {path} is not there. Install {package}, or set gpufleet_batch_install_allocators: true."
    )
    there = wanted(units, family=family, libraries=frozenset({path}))
    assert 'Environment="LD_PRELOAD=%s"\n' % path in (text_of(there, "gpufleet-prep.service") or "")
    install = effect(wanted(Units(architecture, "/bin/n", True, SLICE, (service,)), family=family), f"{allocator} is installed")
    assert install.probe == path and install.command is not None and install.command[-1] == package
    assert not install.satisfied(None) and install.unmet == DRIFT
    assert install.installs is not None and install.installs.package == package


def test_settings_of_allocators_are_variables() -> None:
    found = batch(library="/lib/j.so", allocator="jemalloc", allocator_settings={"narenas": "2", "background_thread": "true"})
    assert found["Environment"] == ['"LD_PRELOAD=/lib/j.so"', '"MALLOC_CONF=background_thread:true,narenas:2"']
    found = batch(library="/lib/t.so", allocator="tcmalloc", allocator_settings={"release_rate": "5"})
    assert found["Environment"] == ['"LD_PRELOAD=/lib/t.so"', '"TCMALLOC_RELEASE_RATE=5"']
    with pytest.raises(InvalidInput, match=r"Where libjemalloc\.so\.2 lies on riscv64 is not known\."):
        allocators.library_path("jemalloc", "riscv64", "debian")
