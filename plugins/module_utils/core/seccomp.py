# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A seccomp profile for pods that set a memory policy: what container runtimes allow an unprivileged container by default, and three more.

Runtimes allow set_mempolicy, get_mempolicy and mbind to containers with CAP_SYS_NICE only (I6). The form is the OCI runtime specification's
(config-linux.md, seccomp), which kubelet's Localhost profiles have. Calls are listed by what they are for; the meanings are those of
syscalls(2). Like the runtimes' own profiles this one leaves out namespaces, mounts, keyrings, modules, clocks, BPF, io_uring,
userfaultfd and tracing of the kernel.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List

MEMORY_POLICY = ("get_mempolicy", "mbind", "set_mempolicy")

_ALLOWED = {
    "files": """
        access chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 fadvise64_64
        fallocate fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync flock fstat fstat64 fstatat64 fstatfs
        fstatfs64 fsync ftruncate ftruncate64 futimesat getcwd getdents getdents64 ioctl lchown lchown32 link linkat lseek _llseek lstat
        lstat64 mkdir mkdirat mknod mknodat name_to_handle_at newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev
        pwritev2 read readahead readlink readlinkat readv rename renameat renameat2 rmdir sendfile sendfile64 splice stat stat64 statfs
        statfs64 statx symlink symlinkat sync sync_file_range sync_file_range2 arm_sync_file_range syncfs tee truncate truncate64 umask
        unlink unlinkat utime utimensat utimensat_time64 utimes vmsplice write writev chroot""",
    "extended attributes": """
        fgetxattr flistxattr fremovexattr fsetxattr getxattr lgetxattr listxattr llistxattr lremovexattr lsetxattr removexattr setxattr""",
    "events and asynchronous I/O": """
        epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2
        inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64
        io_setup io_submit poll ppoll ppoll_time64 pselect6 pselect6_time64 select _newselect signalfd signalfd4 timerfd_create
        timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 pipe pipe2""",
    "memory": """
        brk madvise membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mmap2 mprotect mremap msync munlock munlockall
        munmap pkey_alloc pkey_free pkey_mprotect process_madvise process_mrelease remap_file_pages map_shadow_stack""",
    "processes and threads": """
        alarm arch_prctl capget capset execve execveat exit exit_group fork futex futex_requeue futex_time64 futex_wait futex_waitv
        futex_wake get_robust_list get_thread_area getcpu getitimer getpgid getpgrp getpid getppid getpriority getrlimit getrusage getsid
        gettid ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self modify_ldt nanosleep pause
        pidfd_getfd pidfd_open pidfd_send_signal prctl prlimit64 process_vm_readv process_vm_writev ptrace restart_syscall rseq
        sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
        sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield
        seccomp set_robust_list set_thread_area set_tid_address setitimer setpgid setpriority setrlimit setsid tgkill tkill ugetrlimit
        uname vfork wait4 waitid waitpid""",
    "users and groups": """
        getegid getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getresgid getresgid32 getresuid getresuid32 getuid
        getuid32 setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 setregid setregid32 setresgid setresgid32
        setresuid setresuid32 setreuid setreuid32 setuid setuid32""",
    "signals": """
        rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64
        rt_tgsigqueueinfo sigaction sigaltstack signal sigpending sigprocmask sigreturn sigsuspend""",
    "time, and reading clocks": """
        adjtimex clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
        clock_nanosleep_time64 gettimeofday time timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime
        timer_settime64 times""",
    "sockets": """
        accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg recvmmsg_time64 recvmsg send sendmmsg
        sendmsg sendto setsockopt shutdown socketpair socketcall""",
    "System V and POSIX IPC": """
        ipc mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink msgctl msgget
        msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget""",
    "the system": "getrandom sysinfo",
    "architectures": """
        arm_fadvise64_64 breakpoint cacheflush riscv_hwprobe s390_guarded_storage s390_pci_mmio_read s390_pci_mmio_write s390_runtime_instr
        set_tls swapcontext""",
}

_AF_VSOCK = 40  # sockets to the hypervisor
_NEW_NAMESPACES = 0x7E020000  # the CLONE_NEW… flags of clone(2)
_ENOSYS = 38
# Personalities that programs ask for: Linux, Linux with 32-bit addresses (UNAME26 and both too), and what is in force.
_PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)

_ARCHITECTURES = {
    "x86_64": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
    "aarch64": ["SCMP_ARCH_AARCH64", "SCMP_ARCH_ARM"],
    "ppc64le": ["SCMP_ARCH_PPC64LE"],
    "s390x": ["SCMP_ARCH_S390X", "SCMP_ARCH_S390"],
}


def allowed() -> List[str]:
    """The calls that are allowed whatever their arguments."""
    return sorted({*MEMORY_POLICY, *(name for names in _ALLOWED.values() for name in names.split())})


def profile(architecture: str) -> Dict[str, Any]:
    """The profile for nodes of an architecture: one filter can't serve two byte orders."""
    # s390 has the flags of clone as its second argument.
    flags = 1 if architecture.startswith("s390") else 0
    masked = {"index": flags, "value": _NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
    found: Dict[str, Any] = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "syscalls": [
            _allow(*allowed()),
            _allow("socket", index=0, value=_AF_VSOCK, op="SCMP_CMP_NE"),
            *(_allow("personality", index=0, value=value, op="SCMP_CMP_EQ") for value in _PERSONALITIES),
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [masked]},
            # Its flags lie in memory, where no filter can look: the C library then takes clone.
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS},
        ],
    }
    if architecture in _ARCHITECTURES:
        found["architectures"] = _ARCHITECTURES[architecture]
    return found


def _allow(*names: str, **condition: Any) -> Dict[str, Any]:
    rule: Dict[str, Any] = {"names": list(names), "action": "SCMP_ACT_ALLOW"}
    if condition:
        rule["args"] = [condition]
    return rule


def profile_text(architecture: str) -> str:
    """The profile as a file."""
    return json.dumps(profile(architecture), indent=1) + "\n"
