"""Write golden/state/: state files as each minor's kubelet writes them, and which nodes' kubelets start on them.

    python tests/oracle/golden_states.py 37 36

A golden file is JSON: {minor, nodes: {name: {machine: a description for tests/machines, configuration}}, files: {case: {node that they are
of, manager: text}}, verdicts: {case: {node: {manager: why kubelet doesn't start, null: it does}}}}. Each case begins with the minor that
wrote the files.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from driver import Oracle, build as program, versions  # noqa: E402, I001

from machines.build import build  # noqa: E402
from machines.scratch import scratch  # noqa: E402

GOLDEN = HERE / "golden" / "state"
MANAGERS = ("cpu_manager_state", "memory_manager_state")

MACHINE: dict[str, Any] = {
    "cpu": {"packages": 2, "cores": 4, "threads": 2},
    "numa": {"nodes": [{"id": 0, "cores": 4, "memory": "8GiB"}, {"id": 1, "cores": 4, "memory": "8GiB"}]},
    "hugepages": {"2MiB": {0: 64, 1: 64}},
}
STATIC = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "reservedSystemCPUs": "0,8",
    "systemReserved": {"memory": "924Mi"},
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}, {"numaNode": 1, "limits": {"memory": "512Mi"}}],
}
ON_ONE_NODE = {"systemReserved": {"memory": "412Mi"}, "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}]}
NODES: dict[str, dict[str, Any]] = {
    "none": {"configuration": {}},
    "static": {"configuration": STATIC},
    "static full cores": {"configuration": {**STATIC, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}},
    "static strict": {"configuration": {**STATIC, "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}},
    "static, more CPUs reserved": {"configuration": {**STATIC, "reservedSystemCPUs": "0-1,8-9"}},
    "static, other CPUs reserved": {"configuration": {**STATIC, "reservedSystemCPUs": "7,15"}},
    "static, a number of CPUs reserved": {
        "configuration": {**{key: value for key, value in STATIC.items() if key != "reservedSystemCPUs"},
                          "systemReserved": {"cpu": "1500m", "memory": "924Mi"}},
    },
    "static, memory reserved elsewhere": {"configuration": {**STATIC, **ON_ONE_NODE}},
    "a CPU is offline": {"configuration": STATIC, "machine": {**MACHINE, "cpu": {**MACHINE["cpu"], "offline": "5"}}},
    "more memory": {
        "configuration": STATIC,
        "machine": {**MACHINE, "numa": {"nodes": [{"id": 0, "cores": 4, "memory": "8GiB"}, {"id": 1, "cores": 4, "memory": "9GiB"}]}},
    },
    "other hugepages": {"configuration": STATIC, "machine": {**MACHINE, "hugepages": {"2MiB": {0: 64, 1: 65}}}},
    "another NUMA node": {
        "configuration": STATIC,
        "machine": {**MACHINE, "numa": {"nodes": [*MACHINE["numa"]["nodes"], {"id": 2, "memory": "4GiB"}]}},
    },
    "other NUMA node ids": {
        "configuration": {**STATIC, **ON_ONE_NODE},
        "machine": {**MACHINE, "numa": {"nodes": [{"id": 0, "cores": 4, "memory": "8GiB"}, {"id": 3, "cores": 4, "memory": "8GiB"}]}},
    },
    "pods as a whole": {
        "configuration": {**STATIC, "topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod",
                          "featureGates": {"PodLevelResourceManagers": True}},
        "since": 36,
    },
    "pods as a whole, by all gates": {
        "configuration": {**STATIC, "topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod",
                          "featureGates": {"AllAlpha": True, "AllBeta": True}},
        "since": 36,
    },
}  # fmt: skip


def container(name: str, cpu: str, memory: str, **more: Any) -> dict[str, Any]:
    """A container with limits; requests are the same."""
    limits = {"cpu": cpu, "memory": memory, **more.pop("limits", {})}
    return {"name": name, "resources": {"limits": limits}, **more}


def pod(name: str, *containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, Any]:
    """The event of a pod's arrival."""
    return {"add": {"metadata": {"name": name}, "spec": {"containers": list(containers), "initContainers": init or [], **spec}}}


PODS = [
    pod("one", container("a", "2", "1Gi"), container("b", "1", "512Mi")),
    pod("pages", container("a", "2", "1Gi", limits={"hugepages-2Mi": "32Mi"})),
    pod(
        "init",
        container("a", "2", "256Mi"),
        init=[container("first", "2", "512Mi"), container("side", "1", "64Mi", restartPolicy="Always")],
    ),
    {"add": {"metadata": {"name": "burstable"}, "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}}},
]
WIDE = [pod("wide", container("a", "4", "10Gi"))]
ALL = {"cpu": "4", "memory": "2Gi"}
WHOLE = [pod("whole", container("a", "1", "512Mi"), {"name": "b"}, resources={"limits": ALL, "requests": ALL}), *PODS[:1]]
EVENTS = {"no pods": [], "pods": PODS, "a wide pod": WIDE, "a pod has ended": [*PODS, {"remove": "one"}, *WIDE[:0], *PODS[-1:]]}

DAMAGES = {
    "empty": lambda text: "",
    "no JSON": lambda text: text[:-1],
    "a CPU more": lambda text: text.replace('"defaultCpuSet":"0', '"defaultCpuSet":"16,0', 1).replace('"free":', '"free":1', 1),
    "no checksum": lambda text: json.dumps({key: value for key, value in json.loads(text).items() if "hecksum" not in key}),
    "an unknown field": lambda text: json.dumps({**json.loads(text), "entirely": "new"}, separators=(",", ":")),
    "another order": lambda text: json.dumps(json.loads(text), sort_keys=True, indent=1),
}


def ask(oracle: Oracle, root: str, configuration: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The answer to a question about state files."""
    answer: dict[str, Any] = oracle.ask({"ask": "state", "root": root, "configuration": configuration, **more})
    if answer.get("error") or answer.get("refused"):
        raise SystemExit(f"kubelet doesn't start with {configuration}: {answer}")
    return answer


def nodes_of(minor: int) -> dict[str, dict[str, Any]]:
    """The nodes that a kubelet of this minor can have."""
    return {name: {"machine": MACHINE, "configuration": node["configuration"], **node} for name, node in NODES.items()
            if minor >= node.get("since", 0)}  # fmt: skip


def written(oracle: Oracle, minor: int, roots: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What kubelet writes on each node, after each sequence of pods."""
    for name, node in nodes_of(minor).items():
        cases = {**EVENTS, **({"a pod as a whole": WHOLE} if node.get("since") else {})}
        for happening, events in cases.items():
            answer = ask(oracle, roots[name], node["configuration"], events=events)
            yield f"1.{minor} {name}, {happening}", {"node": name, **answer["files"]}


def verdicts(oracle: Oracle, minor: int, roots: dict[str, str], files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Whether kubelet starts with each of these files on each node."""

    def message(texts: dict[str, Any], name: str, manager: str) -> str | None:
        configuration = nodes_of(minor)[name]["configuration"]
        answer = ask(oracle, roots[name], configuration, files={manager: texts[manager]})
        return (answer.get("rejected") or {}).get("message")

    return {case: {name: {manager: message(texts, name, manager) for manager in MANAGERS} for name in nodes_of(minor)}
            for case, texts in files.items()}  # fmt: skip


def main(minors: list[int]) -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    with scratch() as folder:
        roots: dict[str, str] = {}
        built: dict[str, str] = {}
        for number, (name, node) in enumerate(nodes_of(max(minors)).items()):
            key = json.dumps(node["machine"])
            if key not in built:
                built[key] = str(build(node["machine"], folder / str(number)))
            roots[name] = built[key]
        own: dict[int, dict[str, dict[str, Any]]] = {}
        for minor in minors:
            with Oracle(program(minor)) as oracle:
                own[minor] = dict(written(oracle, minor, roots))
        for minor in minors:
            sample = {case: texts for other in minors if other != minor for case, texts in own[other].items()
                      if texts["node"] in ("none", "static", "pods as a whole")}  # fmt: skip
            damaged = {f"{case}: {damage}": {"node": texts["node"], **{manager: change(texts[manager]) for manager in MANAGERS}}
                       for case, texts in own[minor].items() if case.endswith((" static, pods", " none, no pods"))
                       for damage, change in DAMAGES.items()}  # fmt: skip
            files = {**own[minor], **sample, **damaged}
            with Oracle(program(minor)) as oracle:
                found = verdicts(oracle, minor, roots, files)
            golden = {"minor": minor, "nodes": nodes_of(minor), "files": files, "verdicts": found}
            (GOLDEN / f"v1.{minor}.json.gz").write_bytes(gzip.compress(json.dumps(golden, sort_keys=True).encode(), mtime=0))
            print(f"kubelet 1.{minor}: {len(files)} pairs of state files, each on {len(nodes_of(minor))} nodes")


if __name__ == "__main__":
    main([int(minor) for minor in sys.argv[1:]] or list(versions()))
