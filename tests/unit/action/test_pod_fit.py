"""pod_fit as a task: where facts, plan and version come from, what a refusal looks like, and the playbook's table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from strategies import reference

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from machines.build import build, load

pytestmark = pytest.mark.ansible

POD = {"name": "train", "cpus": 16, "memory": "64Gi", "gpus": 4}
MANIFEST = {
    "kind": "Pod",
    "metadata": {"name": "train"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": 16, "memory": "64Gi", "nvidia.com/gpu": 4}}}]},
}
REFUSED: dict[str, Any] = {
    "misspelt": {"pods": [{"cpu": 1}]},
    "odd_devices": {"devices": {"nvidia.com/gpu": 4}},
    "odd_word": {"configuration": {"cpuManagerPolicy": "Static", "cpuManagerPolicyOptions": {"foo": "true"}}},
    "odd_type": {"configuration": {"cpuManagerPolicyOptions": "full-pcpus-only=true"}},
    "odd_number": {"configuration": {"maxPods": "x"}},
    "odd_pod": {"pods": [{**POD, "gpus": 0.5}]},
}
REGISTERED = ("without", "planless", "own", "what_if", "pages", *REFUSED)
PLAY: dict[str, Any] = {
    "hosts": "all",
    "gather_facts": False,
    "connection": "local",
    "tasks": [
        {"name": "no facts", "gpufleet.node.pod_fit": {"pods": [POD]}, "register": "without", "ignore_errors": True},
        {"name": "facts", "ansible.builtin.set_fact": {"gpufleet_topology": "{{ facts }}", "cacheable": True}},
        {"name": "no plan", "gpufleet.node.pod_fit": {"pods": [POD]}, "register": "planless", "ignore_errors": True},
        {"name": "plan", "gpufleet.node.node_plan": {}},
        {"name": "own", "gpufleet.node.pod_fit": {"pods": [POD], "free": {"gpus": [2, 3, 4, 5]}}, "register": "own"},
        {
            "name": "what if",
            "gpufleet.node.pod_fit": {
                "pods": [{"kind": "List", "items": [MANIFEST, {**POD, "name": "second"}]}, {**POD, "name": "third"}],
                "configuration": {"topologyManagerPolicy": "single-numa-node"},
                "version": "1.36.3",
            },
            "register": "what_if",
        },
        *(
            {"name": name, "gpufleet.node.pod_fit": {"pods": [POD], **options}, "register": name, "ignore_errors": True}
            for name, options in REFUSED.items()
        ),
        {"name": "plan with hugepages", "gpufleet.node.node_plan": {}, "vars": {"gpufleet_hugepages": {"1G": 900}}},
        {
            "name": "pages",
            "gpufleet.node.pod_fit": {
                "pods": [
                    {"name": "pages", "cpus": 2, "memory": "1Gi", "resources": {"hugepages-1Gi": "4Gi"}},
                    {"name": "large", "cpus": 2, "memory": "1500Gi"},
                ]
            },
            "register": "pages",
        },
        {
            "name": "out",
            "ansible.builtin.copy": {
                "dest": "{{ dest }}",
                "content": "{{ {%s} | to_json }}" % ", ".join(f"'{name}': {name}" for name in REGISTERED),
            },
        },
    ],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, ansible_env: dict[str, str]) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("fit")
    play, extra, dest = folder / "play.yml", folder / "extra.json", folder / "out.json"
    play.write_text(yaml.safe_dump([PLAY], sort_keys=False), encoding="utf-8")
    extra.write_text(json.dumps({"facts": to_json(reference()), "dest": str(dest)}), encoding="utf-8")
    run(ansible_env, str(play), "-e", f"@{extra}")
    found: dict[str, Any] = json.loads(dest.read_text(encoding="utf-8"))
    return found


def run(environment: dict[str, str], *arguments: str, status: int = 0) -> str:
    command = [
        sys.executable,
        "-m",
        "ansible",
        "playbook",
        "-i",
        "localhost,",
        "-e",
        f"ansible_python_interpreter={sys.executable}",
        *arguments,
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "DEPRECATION" not in done.stderr, done.stderr
    return done.stdout


def test_facts_and_plan_are_the_hosts_own(results: dict[str, Any]) -> None:
    (pod,) = results["own"]["pods"]
    assert (results["own"]["changed"], pod["admitted"], pod["containers"][0]["devices"]) == (
        False,
        True,
        {"nvidia.com/gpu": {"0": 2, "1": 2}},
    )


def test_a_configuration_stands_over_the_plans(results: dict[str, Any]) -> None:
    assert [pod["reason"] for pod in results["what_if"]["pods"]] == ["", "", "TopologyAffinityError"]


@pytest.mark.parametrize(
    ("task", "part"),
    [
        ("without", "no facts of this node"),
        ("planless", "how kubelet is configured"),
        ("misspelt", 'Did you mean "cpus"?'),
        ("odd_devices", "devices holds nvidia.com/gpu: 4, which are no devices by NUMA node."),
        ("odd_word", 'cpuManagerPolicy is "Static", which kubelet refuses.'),
        ("odd_type", 'cpuManagerPolicyOptions is "full-pcpus-only=true", where kubelet reads a mapping of texts'),
        ("odd_number", 'maxPods is "x", which is not a whole number.'),
        ("odd_pod", "takes whole numbers of it only"),
    ],
)
def test_refusals_say_what_to_do(results: dict[str, Any], task: str, part: str) -> None:
    assert results[task]["failed"] and part in results[task]["msg"] and results[task]["remedy"]


def test_the_playbook_prints_a_table(tmp_path: Path, repository: Path, ansible_env: dict[str, str]) -> None:
    root = build(load("reference"), tmp_path / "root")
    (tmp_path / "pods.yml").write_text(yaml.safe_dump_all([{"kind": "Service", "metadata": {"name": "train"}}, MANIFEST]), encoding="utf-8")
    printed = run(
        ansible_env,
        str(repository / "playbooks" / "pod_fit.yml"),
        "-c",
        "local",
        "-e",
        f"gpufleet_root={root}",
        "-e",
        f"pods_file={tmp_path}/pods.yml",
    )
    assert "train  main       admits   1-8,193-200" in printed and "4 on 0" in printed and "they make no pods: Service train." in printed


def test_flags_of_the_nodes_kubelet_beat_the_plan(tmp_path: Path, repository: Path, ansible_env: dict[str, str]) -> None:
    root = build(load("reference"), tmp_path / "root")
    flags = "--topology-manager-policy=single-numa-node --max-pods=1"
    (root / "etc/default/kubelet").write_text(f'KUBELET_EXTRA_ARGS="{flags}"\n', encoding="utf-8")
    pods = json.dumps({"pods": [{**POD, "gpus": 8}, {**POD, "name": "second"}, {**POD, "name": "third"}], "gpufleet_root": str(root)})
    printed = run(ansible_env, str(repository / "playbooks" / "pod_fit.yml"), "-c", "local", "-e", pods)
    assert re.search(r"train +- +TopologyAffinityError", printed) and re.search(r"third +- +OutOfpods", printed), printed


def test_the_playbook_hands_on_devices_and_what_ifs(tmp_path: Path, repository: Path, ansible_env: dict[str, str]) -> None:
    root = build(load("reference"), tmp_path / "root")
    pods = [{"name": name, "cpus": 2, "memory": "1Gi", "resources": {"example.com/dpu": 1}} for name in ("one", "two")]
    given = {"pods": pods, "devices": {"example.com/dpu": {1: 2}}, "configuration": {"maxPods": 1}, "gpufleet_root": str(root)}
    printed = run(ansible_env, str(repository / "playbooks" / "pod_fit.yml"), "-c", "local", "-e", json.dumps(given))
    assert "1 on 1" in printed and "OutOfpods" in printed and "doesn't look at" not in printed


def test_the_playbook_without_pods_says_how_to_give_them(repository: Path, ansible_env: dict[str, str], tmp_path: Path) -> None:
    playbook, root = str(repository / "playbooks" / "pod_fit.yml"), build(load("reference"), tmp_path / "root")
    said = run(ansible_env, playbook, "-c", "local", status=2)
    assert "No pods are given. Add -e pods_file=FILE with Kubernetes manifests, or -e" in said
    offered = re.search(r"-e '({.*})'", json.loads(re.search(r'"msg": (".*")', said).group(1)))  # type: ignore[union-attr]
    assert offered and "admits" in run(ansible_env, playbook, "-c", "local", "-e", offered.group(1), "-e", f"gpufleet_root={root}")


def test_hugepages_of_the_plan_count_as_there(results: dict[str, Any]) -> None:
    pages, large = results["pages"]["pods"]
    assert pages["admitted"] and not large["admitted"]
    assert re.fullmatch(r"The node has \d+Mi memory for pods altogether\.", large["change"]), large["change"]
