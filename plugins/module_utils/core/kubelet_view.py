# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A node's facts as kubelet has them. What kubelet does with a machine rests on this view, not on ours; mostly the two are the same.

kubelet reads a machine with cadvisor. It knows a core by core_id and package, so it takes cores whose numbers repeat for one, and threads
with numbers of their own for several. Where the kernel shows no NUMA nodes, it takes each package for one, by the package's id, and
finds no memory there. Source: cadvisor's utils/sysinfo/sysinfo.go, GetNodesInfo and getCPUTopology. tests/oracle compares the two.
"""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from .cpuset import CpuSet, union
from .topology import CPU_ONLY, NumaNode, Package, Topology


def cores_by_id(
    cores: Sequence[CpuSet], packages: Sequence[Package], nodes: Optional[Sequence[CpuSet]], core_ids: Mapping[int, int]
) -> Optional[Tuple[CpuSet, ...]]:
    """The cores that kubelet tells by their ids on each NUMA node; None where they are those that there are.

    ``nodes`` are the CPUs of each NUMA node, None where the kernel shows no nodes. ``core_ids``: by CPU; kubelet doesn't see the others.
    """
    package_of = {cpu: package.id for package in packages for cpu in package.cpus}
    node_of = {cpu: number for number, cpus in enumerate(nodes or ()) for cpu in cpus}
    members: Dict[Tuple[int, int, int], List[int]] = {}
    for cpu, core in core_ids.items():
        if cpu in package_of and (nodes is None or cpu in node_of):
            members.setdefault((node_of.get(cpu, 0), package_of[cpu], core), []).append(cpu)
    found = sorted(map(CpuSet, members.values()), key=lambda core: core.first)
    return None if found == list(cores) else tuple(found)


def as_kubelet(topology: Topology) -> Topology:
    """The facts with kubelet's CPUs, cores and NUMA nodes."""
    if topology.has_numa and topology.kubelet_cores is None:
        return topology
    cores = topology.cores if topology.kubelet_cores is None else topology.kubelet_cores
    online = union(cores)
    packages = tuple(Package(one.id, one.cpus & online) for one in topology.packages if not one.cpus.isdisjoint(online))
    nodes, gpus = tuple(dataclasses.replace(node, cpus=node.cpus & online) for node in topology.numa_nodes), topology.gpus
    if not topology.has_numa:
        gpus = tuple(dataclasses.replace(gpu, numa_node=None) for gpu in gpus)  # as their plugin reads it then
        ids = sorted({package.id for package in packages})
        nodes = tuple(NumaNode(id, CPU_ONLY, union(one.cpus for one in packages if one.id == id)) for id in ids)
    return topology.replace(
        cores=cores,
        cpus=dataclasses.replace(topology.cpus, online=online),
        packages=packages,
        numa_nodes=nodes,
        gpus=gpus,
        threads_per_core=max(map(len, cores), default=1),
    )
