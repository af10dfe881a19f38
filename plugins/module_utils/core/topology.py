# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Topology of a node, as frozen dataclasses: what is there, and nothing of what should be.

The JSON form (``codec.to_json``) is ``ansible_facts.gpufleet_topology``. Sizes are bytes, CPU sets cpulists.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

from .cpuset import CpuSet
from .interrupts import DeviceInterrupts

SCHEMA = 1

# Subsets of facts that a plan is made of: without one of them it would take "not looked at" for "not there".
NEEDED_BY_PLAN = ("pci", "boot", "kubelet", "software", "tuning")

# NUMA node kinds. CPUs and memory; CPUs only; memory of the host without CPUs (CXL, PMEM); memory of a GPU; neither.
CPU_MEMORY, CPU_ONLY, MEMORY_ONLY, DEVICE_MEMORY, EMPTY = "cpu_memory", "cpu_only", "memory_only", "device_memory", "empty"


@dataclass(frozen=True)
class Cpus:
    """CPU sets as /sys/devices/system/cpu has them; ``isolated`` and ``nohz_full`` are what the running kernel applies.

    ``offline``: present and not online (the kernel's file of that name also counts CPUs that the machine doesn't have).
    """

    online: CpuSet
    present: CpuSet
    offline: CpuSet = CpuSet()
    isolated: CpuSet = CpuSet()
    nohz_full: CpuSet = CpuSet()


@dataclass(frozen=True)
class Package:
    """A socket. ``id`` is the kernel's physical_package_id (-1 where it says so)."""

    id: int
    cpus: CpuSet


@dataclass(frozen=True)
class L3Group:
    """Online CPUs that share one L3 cache: a CCD on EPYC, kubelet's "uncore cache".

    ``size_bytes`` is null when the kernel has no size, ``id`` when it numbers no caches, or not all of them: kubelet then sees none.
    """

    cpus: CpuSet
    size_bytes: Optional[int] = None
    id: Optional[int] = None


@dataclass(frozen=True)
class HugepagePool:
    """Hugepages of one size on one NUMA node, in pages."""

    total: int
    free: int


@dataclass(frozen=True)
class NumaNode:
    """One NUMA node. ``kind_evidence`` says in words what the kind rests on; ``hugepages`` is keyed by page size in bytes."""

    id: int
    kind: str
    cpus: CpuSet = CpuSet()
    memory_bytes: int = 0
    distances: Dict[int, int] = field(default_factory=dict)
    hugepages: Dict[int, HugepagePool] = field(default_factory=dict)
    kind_evidence: str = ""


@dataclass(frozen=True)
class Device:
    """A GPU, NIC or NVMe drive on PCI. ``vendor``, ``device`` are 4 hexadecimal digits, ``pci_class`` 6 (class, subclass, interface).

    ``numa_node`` is null when unknown. ``name`` is the kernel's (interface, nvme controller) or null. ``speed_mbps`` is a NIC's link speed.
    ``vectors`` counts message-signalled interrupts. ``virtual_function`` marks SR-IOV VFs. ``index`` and ``uuid`` come from nvidia-smi or
    /proc/driver/nvidia.
    """

    address: str
    vendor: str
    device: str
    pci_class: str
    pci_root: str
    driver: Optional[str] = None
    numa_node: Optional[int] = None
    local_cpus: CpuSet = CpuSet()
    vectors: int = 0
    virtual_function: bool = False
    name: Optional[str] = None
    speed_mbps: Optional[int] = None
    index: Optional[int] = None
    uuid: Optional[str] = None


@dataclass(frozen=True)
class SharedRoot:
    """GPUs and NVMe drives below one PCI root: their I/O and DMA share its bandwidth. Members are PCI addresses."""

    pci_root: str
    gpus: Tuple[str, ...]
    nvmes: Tuple[str, ...]


@dataclass(frozen=True)
class Cpufreq:
    """CPU frequency scaling; a node without it has null in ``Topology.cpufreq``. Governors are those that every policy offers."""

    driver: str
    available_governors: Tuple[str, ...]
    governors: Tuple[str, ...]


@dataclass(frozen=True)
class TransparentHugepage:
    """Chosen and offered words of /sys/kernel/mm/transparent_hugepage/{enabled,defrag}."""

    enabled: str
    defrag: str
    enabled_choices: Tuple[str, ...]
    defrag_choices: Tuple[str, ...]


@dataclass(frozen=True)
class Swap:
    """A line of /proc/swaps."""

    path: str
    type: str
    size_bytes: int
    used_bytes: int


@dataclass(frozen=True)
class Boot:
    """How the node gets its kernel command line.

    ``loader``: grub (GRUB with /etc/default/grub), bls (GRUB with boot loader entries, RHEL and kin), ostree, kernel_cmdline
    (/etc/kernel/cmdline with kernel-install, systemd-boot, UKI) or unknown. ``kernel_release`` is the newest kernel installed, the one
    to be booted; null when it can't be told. ``kernel_config`` holds that kernel's CONFIG_ values without the prefix for
    the symbols we ask for (y, m, n or a value), empty when no config file is readable.
    """

    loader: str
    kernel_release: Optional[str] = None
    kernel_config: Dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kubelet:
    """The kubelet of the node. ``distribution``: plain, kubeadm, kubespray, k3s or rke2. ``unit`` is the systemd unit that runs it.

    ``version`` like "1.34.4", null when it can't be told. ``config_file`` is its main file, ``config_dir`` the drop-in folder it reads
    (null when it reads none), ``root_dir`` its state folder. ``flags`` are command-line flags found that override files; values of one
    that is repeated are joined. ``exec_start`` is the unit's ExecStart, without a part of ours. ``runtime_endpoint`` is the
    socket of its container runtime as flags and files say, "" where none does or the distribution brings its own.
    """

    distribution: str
    unit: str
    version: Optional[str] = None
    config_file: Optional[str] = None
    config_dir: Optional[str] = None
    root_dir: str = "/var/lib/kubelet"
    flags: Dict[str, str] = field(default_factory=dict)
    exec_start: str = ""
    runtime_endpoint: str = ""


@dataclass(frozen=True)
class Software:
    """Other owners of our settings that are there: tuned's active profile, irqbalance, CRI-O, Docker, Slurm, containerd.

    ``containerd_version`` is null when it can't be told; ``containerd_systemd_cgroup``: pods of its default runtime use the cgroup
    driver systemd.
    """

    tuned_profile: Optional[str] = None
    irqbalance: bool = False
    crio: bool = False
    docker: bool = False
    slurm: bool = False
    containerd: bool = False
    containerd_version: Optional[str] = None
    containerd_systemd_cgroup: bool = False


@dataclass(frozen=True)
class Topology:
    """The facts of one node.

    ``architecture`` is what ``uname -m`` says; ``cpu_vendor`` the vendor_id on x86-64 ("GenuineIntel", "AuthenticAMD"), the implementer on
    arm64 ("ARM", "NVIDIA"), "IBM" or "". ``threads_per_core`` is the widest core's online threads. ``kubelet_cores`` are the cores as
    kubelet tells them, by core_id, where those are others than ``cores``, else null. ``has_numa`` is false where the kernel shows no NUMA
    nodes: ``numa_nodes`` is then one that stands for the machine.
    """

    architecture: str
    page_size: int
    kernel_release: str
    cpu_vendor: str
    cpus: Cpus
    threads_per_core: int
    cores: Tuple[CpuSet, ...]
    packages: Tuple[Package, ...]
    l3_groups: Tuple[L3Group, ...]
    numa_nodes: Tuple[NumaNode, ...]
    has_numa: bool = True
    kubelet_cores: Optional[Tuple[CpuSet, ...]] = None
    fingerprint: str = ""
    memory_bytes: int = 0
    hugepage_sizes: Tuple[int, ...] = ()
    gpus: Tuple[Device, ...] = ()
    nics: Tuple[Device, ...] = ()
    nvmes: Tuple[Device, ...] = ()
    shared_roots: Tuple[SharedRoot, ...] = ()
    interrupts: Tuple[DeviceInterrupts, ...] = ()
    cpufreq: Optional[Cpufreq] = None
    transparent_hugepage: Optional[TransparentHugepage] = None
    swaps: Tuple[Swap, ...] = ()
    command_line: str = ""
    boot: Boot = Boot("unknown")
    kubelet: Optional[Kubelet] = None
    software: Software = Software()
    # What could not be read and was left out, one sentence each (an unreadable file is no reason to fail when the rest stands).
    gaps: Tuple[str, ...] = ()
    # Which subsets were gathered: the plan refuses to be made from facts that lack what it needs.
    gathered: Tuple[str, ...] = ()
    schema: int = SCHEMA

    def node_of(self, cpu: int) -> Optional[NumaNode]:
        """The NUMA node of a CPU, null when it is on none."""
        return next((node for node in self.numa_nodes if cpu in node.cpus), None)

    @property
    def job_gpus(self) -> Tuple[Device, ...]:
        """GPUs that containers can be given: no parts of another (SR-IOV VFs), and none that is kept for a virtual machine."""
        return tuple(gpu for gpu in self.gpus if not gpu.virtual_function and gpu.driver != "vfio-pci")

    @property
    def cpu_nodes(self) -> Tuple[NumaNode, ...]:
        """NUMA nodes that have online CPUs, whether or not they have memory."""
        return tuple(node for node in self.numa_nodes if node.cpus)

    @property
    def cpu_memory_nodes(self) -> Tuple[NumaNode, ...]:
        """NUMA nodes with CPUs and memory: the only ones that are interleaved over, reserved on or pooled on by default."""
        return tuple(node for node in self.numa_nodes if node.kind == CPU_MEMORY)

    def replace(self, **changes: Any) -> Topology:
        """A copy with other field values."""
        return dataclasses.replace(self, **changes)
