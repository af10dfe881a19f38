"""Pods that the API server refuses are no questions about a node."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.pod_rules import check_pod
from ansible_collections.gpufleet.node.plugins.module_utils.core.pods import parse_pod


def container(name: str = "c", requests: Any = None, limits: Any = None) -> Any:
    return {"name": name, "resources": {"requests": requests, "limits": limits}}


def check(*containers: Any, **spec: Any) -> None:
    check_pod(parse_pod({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}, "pods[0]"), "pods[0]")


# validation.go at 1.37 says of them: "must be less than or equal to cpu limit of 2", "Limit must be set for non overcommitable
# resources", "must be equal to nvidia.com/gpu limit of 2", "must be an integer", "HugePages require cpu or memory" and so on.
@pytest.mark.parametrize(
    ("one", "part"),
    [
        (container(requests={"cpu": 4}, limits={"cpu": 2}), "container c asks for 4 CPUs with a limit of 2 CPUs, which"),
        (container(requests={"memory": "2Gi"}, limits={"memory": "1Gi"}), "asks for 2Gi memory with a limit of 1Gi memory, which"),
        (container(requests={"nvidia.com/gpu": 1}), "asks for 1 nvidia.com/gpu without a limit, which"),
        (container(requests={"nvidia.com/gpu": 1}, limits={"nvidia.com/gpu": 2}), "1 nvidia.com/gpu with a limit of 2 nvidia.com/gpu"),
        (container(limits={"nvidia.com/gpu": "500m"}), 'limits.nvidia.com/gpu is "500m", and the API server takes whole numbers'),
        (container(requests={"cpu": 1, "hugepages-2Mi": "2Mi"}, limits={"hugepages-2Mi": "4Mi"}), "with a limit of 4Mi hugepages-2Mi"),
        (container(limits={"cpu": 1, "hugepages-2Mi": "3Mi"}), "asks for 3Mi hugepages-2Mi in no whole pages"),
        (container(limits={"hugepages-2Mi": "4Mi"}), "asks for 4Mi hugepages-2Mi without CPUs or memory"),
        (container(limits={"gpu": 1}), "asks for 1 gpu by a name without its domain"),
    ],
)
def test_amounts_that_the_api_server_refuses(one: Any, part: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(part)) as refused:
        check(container("first"), one)
    assert refused.value.remedy and refused.value.problem.startswith("pods[0]")


def test_two_containers_of_one_name() -> None:
    with pytest.raises(InvalidInput, match="container c is there twice"):
        check(container(), initContainers=[container()])


def test_resources_of_the_pod_are_enough_for_its_containers() -> None:
    two = [container(name, {"cpu": 2}) for name in ("a", "b")]
    with pytest.raises(InvalidInput, match=re.escape("pods[0] asks for 3 CPUs, and its containers for 4 CPUs together")):
        check(*two, resources={"requests": {"cpu": 3}})
    with pytest.raises(InvalidInput, match=re.escape("pods[0] asks for 4 CPUs with a limit of 3 CPUs")):
        check(*two, resources={"limits": {"cpu": 3}})
    check(*two, resources={"limits": {"cpu": 4}})


def test_what_the_api_server_takes() -> None:
    check(container(requests={"cpu": "1500m"}), container("d", {"cpu": 1}, {"cpu": 2, "memory": "1Gi"}), container("e"))
    check(container(limits={"cpu": 1, "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "2", "ephemeral-storage": "1Gi"}))
    check_pod(parse_pod({"cpus": 2, "qos": "Burstable", "gpus": 2, "resources": {"hugepages-2Mi": "4Mi"}}), "pods[0]")
