"""The node of the real kubelet, and what its three witnesses say: configz, the state files, and the cpusets of its containers' cgroups."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from vm.node import Node, Played

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet

RESULTS = Path(os.environ.get("GPUFLEET_VM_RESULTS", "."))
ASK = Path(__file__).with_name("ask.yml")
MANIFESTS = "/etc/kubernetes/manifests"
IMAGE = "localhost/pause:1"

# Run on the node. A container's cgroup is named after its id.
_WITNESSES = r"""
import glob, json, re, ssl, subprocess, urllib.request

def ask(url):
    try:
        with urllib.request.urlopen(url, context=ssl._create_unverified_context(), timeout=60) as answer:
            return answer.read().decode()
    except OSError:
        return ""

def text(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""

def containers(status):
    for one in status.get("containerStatuses", []) + status.get("initContainerStatuses", []):
        scope = glob.glob("/sys/fs/cgroup/kubepods.slice/**/cri-containerd-%s.scope" % one.get("containerID", "")[13:], recursive=True)
        if scope:
            yield one["name"], {"cpus": text(scope[0] + "/cpuset.cpus"), "mems": text(scope[0] + "/cpuset.mems")}

said = json.loads(ask("https://127.0.0.1:10250/pods") or '{"items": []}')
journal = subprocess.run(("journalctl", "-b", "-u", "kubelet", "-o", "cat"), stdout=subprocess.PIPE, text=True).stdout
print(json.dumps({
    "healthy": ask("http://127.0.0.1:10248/healthz") == "ok",
    "failures": len(re.findall(r"^kubelet.service: Failed with result", journal, re.MULTILINE)),
    "starts": len(re.findall(r"^Started kubelet.service", journal, re.MULTILINE)),
    "configz": json.loads(ask("https://127.0.0.1:10250/configz") or "{}").get("kubeletconfig", {}),
    "states": {name: json.loads(text("/var/lib/kubelet/%s_manager_state" % name) or "{}") for name in ("cpu", "memory")},
    "pods": {pod["metadata"]["name"].rpartition("-")[0]: {
        "uid": pod["metadata"]["uid"], "phase": pod["status"].get("phase"), "reason": pod["status"].get("reason", ""),
        "message": pod["status"].get("message", ""), "containers": dict(containers(pod["status"]))} for pod in said["items"] or []},
}))
"""


@dataclass(frozen=True)
class Witnesses:
    """What was seen on the node at one moment."""

    healthy: bool
    failures: int
    starts: int
    configz: Mapping[str, Any]
    states: Mapping[str, Mapping[str, Any]]
    pods: Mapping[str, Mapping[str, Any]]

    def decided(self, pod: str) -> bool:
        """Whether the pod was refused, or all of its containers run with the CPUs that kubelet set for them."""
        found = self.pods.get(pod)
        if not found or found["phase"] not in ("Failed", "Running"):
            return False
        return found["phase"] == "Failed" or (bool(found["containers"]) and all(one["cpus"] for one in found["containers"].values()))

    def state_cpus(self, pod: str) -> dict[str, CpuSet]:
        """The exclusive CPUs of a pod's containers in the CPU manager's state."""
        entries = self.states["cpu"].get("entries") or {}
        return {name: CpuSet.parse(cpus) for name, cpus in entries.get(self.pods[pod]["uid"], {}).items()}


class RealNode(Node):
    """A node with the real kubelet."""

    def witnesses(self) -> Witnesses:
        """Ask them all."""
        return Witnesses(**json.loads(self.run(f"python3 - <<'END'\n{_WITNESSES}\nEND")))

    def until_seen(self, holds: Callable[[Witnesses], bool], seconds: float) -> Witnesses:
        """Ask until it holds; the last answer when it doesn't in time."""
        end = time.monotonic() + seconds
        while True:
            seen = self.witnesses()
            if holds(seen) or time.monotonic() > end:
                return seen
            time.sleep(2)

    def provision(self, **variables: Any) -> Played:
        """Run site.yml, which has to go well."""
        played = self.play("site.yml", **variables)
        assert played.status == 0, played.output
        return played

    def reboot(self) -> float:
        """Reboot it; the seconds until it answers again."""
        begin, boot = time.monotonic(), self.run("cat /proc/sys/kernel/random/boot_id")
        self.run("systemd-run --quiet --on-active=1 systemctl reboot")
        while self.run("cat /proc/sys/kernel/random/boot_id", check=False) in ("", boot):
            assert time.monotonic() - begin < 900
            time.sleep(3)
        return time.monotonic() - begin

    def ask(self, pods: Sequence[Mapping[str, Any]] = (), **variables: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The plan, and what pod_fit says of static pods that come one after the other."""
        played = self.play(str(ASK), handed_over=str(RESULTS), pods=[_from_file(pod) for pod in pods], **variables)
        assert played.status == 0, played.output
        said = json.loads((RESULTS / f"{self.machine.name}.json").read_text())
        return said["plan"], said["fit"]

    def add(self, pod: Mapping[str, Any]) -> Witnesses:
        """A static pod, and what became of it."""
        name = pod["metadata"]["name"]
        self.run(f"cat >{MANIFESTS}/.{name} <<'END'\n{json.dumps(pod)}\nEND\nmv {MANIFESTS}/.{name} {MANIFESTS}/{name}.json")
        seen = self.until_seen(lambda witnesses: witnesses.decided(name), 180)
        assert seen.decided(name), f"{name}: {seen.pods.get(name)}"
        return seen

    def remove_pods(self) -> Witnesses:
        """Take all static pods away, until kubelet has forgotten them."""
        self.run(f"rm -f {MANIFESTS}/*.json")
        seen = self.until_seen(lambda witnesses: not witnesses.pods and not witnesses.states["cpu"].get("entries"), 180)
        assert not seen.pods and not seen.states["cpu"].get("entries"), seen
        return seen


def _from_file(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A static pod as kubelet has it once it has read the file: with its source, by which pod_fit tells such pods."""
    return {**pod, "metadata": {**pod["metadata"], "annotations": {"kubernetes.io/config.source": "file"}}}


def static_pod(name: str, *containers: Mapping[str, str], limits: bool = True) -> dict[str, Any]:
    """A pod of the image that waits; each container with its requests, which are its limits too unless said otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": f"c{number}",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "resources": {"requests": dict(requests), **({"limits": dict(requests)} if limits else {})},
                }
                for number, requests in enumerate(containers)
            ],
        },
    }
