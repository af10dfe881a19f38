"""The seccomp profile: calls that exist, memory policies among them, and nothing that a container must not do."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.seccomp import MEMORY_POLICY, allowed, profile

# What an unprivileged container has no business with.
FORBIDDEN = """
    acct add_key bpf delete_module fanotify_init finit_module fsconfig fsmount fsopen init_module io_uring_enter io_uring_register
    io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie migrate_pages mount mount_setattr move_mount
    move_pages nfsservctl open_by_handle_at open_tree perf_event_open pivot_root quotactl reboot request_key set_mempolicy_home_node
    setdomainname sethostname setns settimeofday clock_settime stime swapoff swapon syslog umount umount2 unshare uselib userfaultfd
    vm86 vm86old clone3
""".split()
# Calls without which nothing runs, or common programs don't (databases, JVMs, Go).
NEEDED = """
    brk clone execve exit_group futex mmap mprotect openat read write epoll_pwait2 rseq memfd_create io_submit statx sched_setaffinity
""".split()


def rules(architecture: str = "x86_64") -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for rule in profile(architecture)["syscalls"]:
        for name in rule["names"]:
            found.setdefault(name, []).append(rule)
    return found


def test_a_memory_policy_may_be_set_and_nothing_else_is_added() -> None:
    found = rules()
    assert all(
        found[name] == [rule] and rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule
        for name in MEMORY_POLICY
        for rule in found[name]
    )
    assert profile("x86_64")["defaultAction"] == "SCMP_ACT_ERRNO"
    assert [name for name in FORBIDDEN if any(rule["action"] == "SCMP_ACT_ALLOW" for rule in found.get(name, []))] == []
    assert [name for name in NEEDED if name not in found] == []


def test_no_new_namespaces_and_no_talk_with_the_hypervisor() -> None:
    (clone,) = rules()["clone"]
    assert clone["args"] == [{"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
    assert rules("s390x")["clone"][0]["args"][0]["index"] == 1
    (clone3,) = rules()["clone3"]
    assert (clone3["action"], clone3["errnoRet"]) == ("SCMP_ACT_ERRNO", 38)  # glibc falls back to clone
    (socket,) = rules()["socket"]
    assert socket["args"] == [{"index": 0, "value": 40, "op": "SCMP_CMP_NE"}]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64", "ppc64le", "s390x"])
def test_one_byte_order_in_one_filter(architecture: str) -> None:
    big = {name for name in profile(architecture)["architectures"] if "S390" in name}
    assert big in (set(), set(profile(architecture)["architectures"]))


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze isn't installed")
def test_every_name_is_a_system_call() -> None:
    """systemd's list of known calls is another project's work from the kernel's tables; it may be older than a call."""
    known = subprocess.run(["systemd-analyze", "syscall-filter", "@known"], check=True, capture_output=True, text=True).stdout.split()
    newer = {"fchmodat2", "map_shadow_stack", "futex_wait", "futex_wake", "futex_requeue", "futex_waitv", "memfd_secret", "riscv_hwprobe"}
    odd = {"arm_sync_file_range", "breakpoint", "set_tls"}  # of 32-bit ARM
    assert set(allowed()) - set(known) - newer <= odd
