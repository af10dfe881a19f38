"""The example pods: of the class that they say, and in agreement with what the role installs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_names import SECCOMP_PROFILE
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import LAUNCHER_PATH

FILES = Path(__file__).resolve().parents[3] / "roles/batch/files"


def pod(name: str) -> dict[str, Any]:
    found = yaml.safe_load((FILES / name).read_text(encoding="utf-8"))
    assert (found["apiVersion"], found["kind"]) == ("v1", "Pod")
    return found["spec"]


def quality_of_service(spec: dict[str, Any]) -> str:
    """Kubernetes' classes: Guaranteed when every container's CPU and memory limits equal its requests, BestEffort without any."""
    resources = [container.get("resources", {}) for container in (*spec["containers"], *spec.get("initContainers", []))]
    if not any(resources):
        return "BestEffort"
    guaranteed = all(
        one.get("limits", {}).get(name) and one.get("requests", one["limits"]).get(name) == one["limits"][name]
        for one in resources
        for name in ("cpu", "memory")
    )
    return "Guaranteed" if guaranteed else "Burstable"


def test_the_cpu_job_is_burstable_and_starts_through_the_launcher() -> None:
    spec = pod("cpu-job.yml")
    assert quality_of_service(spec) == "Burstable"
    (job,), (init,) = spec["containers"], spec["initContainers"]
    assert "limits" not in job["resources"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["node-launcher"]["hostPath"] == {"path": LAUNCHER_PATH, "type": "File"}
    mounts = {mount["mountPath"]: mount["name"] for mount in init["volumeMounts"]}
    _copy, source, target = init["command"]
    assert mounts[source] == "node-launcher" and mounts[str(Path(target).parent)] == "launcher" == job["volumeMounts"][0]["name"]
    assert job["command"][:2] == [target, "--"]
    # kubelet looks below its folder seccomp/.
    assert spec["securityContext"]["seccompProfile"] == {"type": "Localhost", "localhostProfile": SECCOMP_PROFILE.removeprefix("seccomp/")}


def test_the_gpu_job_is_guaranteed_with_whole_l3_groups_and_no_launcher() -> None:
    spec = pod("gpu-job.yml")
    assert quality_of_service(spec) == "Guaranteed" and "initContainers" not in spec and "securityContext" not in spec
    (train,) = spec["containers"]
    assert int(train["resources"]["limits"]["cpu"]) % 16 == 0 and "numaspread" not in " ".join(train["command"])
