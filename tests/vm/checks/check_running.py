"""After site.yml and a reboot"""

from __future__ import annotations

import itertools
import re
from typing import Any, Callable, NamedTuple

import pytest
from vm.node import sysctl_path

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet

Figure = Callable[[str], None]
NODE = "/sys/devices/system/node/node"


def test_kernel_arguments(node: Any, live: dict[str, str], figure: Figure) -> None:
    """The kernel was booted with the plan's arguments, in their order"""
    wanted = " ".join(node.plan["kernel_arguments"])
    assert not wanted or f" {wanted} " in f" {live['/proc/cmdline'].strip()} "
    figure(wanted or "none planned")


def test_isolated_cpus(node: Any, live: dict[str, str], figure: Figure) -> None:
    """The kernel isolates the planned CPUs and sends new interrupts to the planned ones"""
    isolated = CpuSet.parse(node.plan["cpus"]["isolated"])
    for name in ("isolated", "nohz_full"):
        text = live.get(f"/sys/devices/system/cpu/{name}", "").strip()
        assert CpuSet.parse("" if text == "(null)" else text) == isolated, name
        figure(f"{name} {text or 'empty'}")
    mask = live["/proc/irq/default_smp_affinity"].strip()
    assert CpuSet.parse_mask(mask) == CpuSet.parse(node.plan["interrupts"]["default_affinity"])
    figure(f"default_smp_affinity {mask}")


def test_rcu_callbacks(node: Any, figure: Figure) -> None:
    """RCU callbacks are offloaded from the isolated CPUs, by the kernel's log"""
    isolated = node.plan["cpus"]["isolated"]
    if node.plan["profile"] != "isolated":
        pytest.skip("no CPU is isolated")
    line = re.search(r"rcu:\s+(Offload RCU callbacks from CPUs: (\S+?)\.)", node.run("dmesg"))
    assert line and line[2] == isolated
    figure(line[1])


def test_hugepages(node: Any, live: dict[str, str], figure: Figure) -> None:
    """Hugepages are on the planned NUMA nodes, and none elsewhere"""
    there = {
        (int(match[2]) * 1024, match[1]): int(text)
        for path, text in live.items()
        for match in [re.match(rf"{NODE}(\d+)/hugepages/hugepages-(\d+)kB/nr_hugepages", path)]
        if match
    }
    planned = {(int(size), id_): count for size, nodes in node.plan["hugepages"].items() for id_, count in nodes.items()}
    assert {pool: count for pool, count in there.items() if count} == planned
    figure(", ".join(f"{count} x {size >> 20} MiB on node {id_}" for (size, id_), count in sorted(there.items())))


def test_swap(node: Any, live: dict[str, str], figure: Figure) -> None:
    """No swap is in use, though there are a swap file, a swap partition and zram's generator; fstab is as before but for marked lines"""
    assert len(live["/proc/swaps"].strip().splitlines()) == 1
    assert live["/etc/fstab"].replace("#gpufleet-swap-off# ", "") == live["/root/before/etc/fstab"]
    assert live["/etc/fstab"] != live["/root/before/etc/fstab"]
    units = node.run("systemctl list-units --all --plain --no-legend --type swap --state active")
    assert not units
    types = node.run("blkid -o value -s TYPE /dev/vda3 /swapfile")
    assert types.split() == ["swap", "swap"]
    zram = bool(node.run("ls /usr/lib/systemd/system-generators/zram-generator", check=False))
    used_before = [line.split()[0] for line in live["/root/before/swaps"].splitlines()[1:]]
    assert ("/dev/zram0" in used_before) == zram
    figure(f"a swap file, a GPT swap partition{', compressed memory' if zram else ''}, none in use; before: {', '.join(used_before)}")


def test_transparent_hugepages(node: Any, live: dict[str, str], figure: Figure) -> None:
    """Transparent hugepages are as planned"""
    for name, word in node.plan["transparent_hugepage"].items():
        text = live[f"/sys/kernel/mm/transparent_hugepage/{name}"]
        assert f"[{word}]" in text
        figure(f"{name} {word}")


def test_sysctls(node: Any, live: dict[str, str], figure: Figure) -> None:
    """Every planned sysctl has its value; numbers of a list are apart by tabs"""
    assert node.plan["sysctl"]
    for name, value in node.plan["sysctl"].items():
        assert live[sysctl_path(name)].strip() == "\t".join(value.split()), name
    figure(f"{len(node.plan['sysctl'])} sysctls, kernel.numa_balancing {node.plan['sysctl'].get('kernel.numa_balancing')}")


def test_locked_memory(node: Any, figure: Figure) -> None:
    """A service and a login session may lock any amount of memory"""
    service = node.run("systemd-run --quiet --wait --pipe grep -i 'locked memory' /proc/self/limits")
    login = node.run("grep -i 'locked memory' /proc/self/limits")  # this is one
    for text in (service, login):
        assert text.split()[3:5] == ["unlimited", "unlimited"]
    figure("unlimited in both")


def test_effective_affinity(node: Any, figure: Figure) -> None:
    """After traffic the NIC's interrupts arrive on housekeeping CPUs of the NIC's own NUMA node, by effective affinity"""
    for nic in _planned(node, "nic"):
        before = _interrupts(node, nic["device"])
        node.run("head -c 2000000 /dev/zero")  # both ways through the NIC
        fired = {irq: now for irq, now in _interrupts(node, nic["device"]).items() if now.count > before[irq].count}
        assert fired
        for irq, now in fired.items():
            assert now.effective and now.effective <= CpuSet.parse(nic["cpus"]), f"IRQ {irq} arrives on {now.effective}"
        figure(f"{nic['device']} on node {nic['numa_node']}: IRQ {', '.join(fired)} on CPUs {nic['cpus']}")


def test_waiting_interrupts(node: Any, figure: Figure) -> None:
    """An interrupt that hasn't come since it was placed is said to move at the next one, not to differ"""
    _planned(node, "nvme")  # its administration has nothing to say after the boot
    waiting = [finding for finding in node.findings("irq") if finding["status"] == "pending"]
    assert waiting and all("next interrupt moves it" in finding["message"] for finding in waiting)
    figure("; ".join(finding["item"] for finding in waiting))


def test_kernel_managed(node: Any, figure: Figure) -> None:
    """Queue interrupts of an NVMe drive are reported as kernel-managed, not as a failure; the kernel refuses to move them"""
    (drive,) = _planned(node, "nvme")
    said = [entry for entry in node.findings("irq") if drive["device"] in entry["item"] and "kernel-managed" in entry["message"]]
    assert [entry["status"] for entry in said] == ["not_applicable"]
    queues = str(CpuSet.parse(re.search(r"IRQ (\S+)\)", said[0]["item"])[1])).split("-")  # type: ignore[index]
    errno = node.run(
        f'python3 -c \'import errno\ntry: open("/proc/irq/{queues[0]}/smp_affinity_list", "w", buffering=1).write("0\\n")\n'
        "except OSError as problem: print(errno.errorcode[problem.errno])'"
    ).strip()
    assert errno == {"bookworm": "EIO", "trixie": "EPERM"}[node.machine.shape["image"]]
    figure(f"IRQ {'-'.join(queues)}: a write answers {errno}")


def test_bind_again(node: Any, figure: Figure) -> None:
    """After the NIC's driver is unbound and bound again, its new interrupts are placed without another run"""
    (nic,) = _planned(node, "nic")
    device, cpus = nic["device"], CpuSet.parse(nic["cpus"])
    driver = f"/sys/bus/pci/devices/{device}/driver"
    # The connection goes with the NIC, so systemd runs it.
    node.run(
        f"rm -f /run/bound; systemd-run --quiet --no-block sh -c 'driver=$(readlink -f {driver}); echo {device} >$driver/unbind; sleep 1;"
        f" echo {device} >$driver/bind; touch /run/bound'"
    )
    node.machine.wait(120)
    answer, seconds = node.until(
        f"test -e /run/bound && cd /sys/bus/pci/devices/{device}/msi_irqs && for i in *; do cat /proc/irq/$i/smp_affinity_list; done",
        lambda text: len(text.split()) > 0 and all(CpuSet.parse(line) <= cpus for line in text.split()),
        120,
    )
    assert answer.split() and all(CpuSet.parse(line) <= cpus for line in answer.split())
    figure(f"{len(answer.split())} interrupts on CPUs {cpus}, {seconds:.0f} s after the link was back")


def _planned(node: Any, kind: str) -> list[dict[str, Any]]:
    """The devices of a kind whose interrupts are planned, which have to be those that the machine was made with, on their NUMA nodes."""
    shape = node.machine.shape
    made = {"nic": [shape["nic"]], "nvme": [device for device in shape["devices"] if device["model"] == "nvme"]}[kind]
    planned = [device for device in node.plan["interrupts"]["devices"] if device["kind"] == kind]
    assert len(planned) == len(made)
    for device, machines in zip(planned, made):
        assert device["numa_node"] == machines.get("numa_node", device["numa_node"])
    if not made:
        pytest.skip(f"made without {kind}")
    return planned


class _Interrupt(NamedTuple):
    count: int
    effective: CpuSet


def _interrupts(node: Any, device: str) -> dict[str, _Interrupt]:
    """How often each of a device's interrupts came since the boot, and where the next one arrives."""
    each = 'grep "^ *$i:" /proc/interrupts && cat /proc/irq/$i/effective_affinity_list'
    lines = node.run(f"cd /sys/bus/pci/devices/{device}/msi_irqs && for i in *; do {each}; done; true").splitlines()
    found = {}
    for line, effective in zip(lines[::2], lines[1::2]):
        irq, unused, rest = line.partition(":")
        counts = list(itertools.takewhile(str.isdigit, rest.split()))
        found[irq.strip()] = _Interrupt(sum(map(int, counts)), CpuSet.parse(effective))
    return found
