"""Variables in, a Policy out: names, kinds and the text that -e name=value makes of everything."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import (
    PLAY_VARIABLES,
    PREFIX,
    SETTINGS,
    Policy,
    policy_from_variables,
)


def test_no_variables_give_the_defaults() -> None:
    assert policy_from_variables({}) == Policy()
    assert policy_from_variables(dict.fromkeys(SETTINGS)) == Policy()  # null is the default


def test_the_prefix_may_be_left_out() -> None:
    assert policy_from_variables({"gpufleet_profile": "isolated"}) == policy_from_variables({"profile": "isolated"})


def test_a_bare_off_in_yaml_is_off() -> None:
    written = yaml.safe_load("{gpufleet_swap: off, gpufleet_irqbalance: off}")
    assert written == {"gpufleet_swap": False, "gpufleet_irqbalance": False}
    assert policy_from_variables(written) == policy_from_variables({"gpufleet_swap": "off", "gpufleet_irqbalance": "off"})
    with pytest.raises(InvalidInput, match="not a choice"):
        policy_from_variables({"gpufleet_swap": True})
    with pytest.raises(InvalidInput, match="not a choice"):
        policy_from_variables({"gpufleet_thp_enabled": False})


def test_a_wrong_word_for_a_play_is_refused_before_it_writes() -> None:
    with pytest.raises(InvalidInput, match='gpufleet_reboot is "always"'):
        policy_from_variables({"gpufleet_reboot": "always"})
    with pytest.raises(InvalidInput, match='gpufleet_launcher_build is "laptop"'):
        policy_from_variables({"gpufleet_launcher_build": "laptop"})


def test_variables_of_the_plays_are_passed_over() -> None:
    assert policy_from_variables({PREFIX + name: "never" if name == "reboot" else "node" for name in PLAY_VARIABLES}) == Policy()
    assert not set(PLAY_VARIABLES) & set(SETTINGS)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_variable_says_what_it_means(name: str) -> None:
    assert SETTINGS[name].metadata["about"]
    assert callable(SETTINGS[name].metadata["check"])


@pytest.mark.parametrize("name", [s.name for s in dataclasses.fields(Policy) if s.default not in (None, dataclasses.MISSING, ())])
def test_every_default_passes_its_own_check(name: str) -> None:
    assert getattr(policy_from_variables({name: getattr(Policy(), name)}), name) == getattr(Policy(), name)


@pytest.mark.parametrize(
    ("variable", "given", "meant"),
    [("reserved_whole_l3", "true", True), ("reserved_whole_l3", "No", False), ("launcher", "on", True), ("nofile", "65536", 65536),
     ("reserved_cores_per_numa", "2", 2), ("reserved_cpus", 3, CpuSet([3])), ("reserved_cpus", "0-1,8", CpuSet([0, 1, 8])),
     ("kernel_arguments", "iommu=pt nosmt", ("iommu=pt", "nosmt")), ("kernel_arguments", ["iommu=pt"], ("iommu=pt",)),
     ("cpu_manager_policy_options", {"full-pcpus-only": True}, {"full-pcpus-only": "true"}),
     ("topology_manager_policy_options", {"max-allowable-numa-nodes": 12}, {"max-allowable-numa-nodes": "12"}),
     ("hugepages", {"1G": 8}, {"1G": {None: 8}}), ("hugepages", {"2M": {"0": "512", 1: 0}}, {"2M": {0: 512, 1: 0}}),
     ("reserved_memory", {0: "1Gi", "1": "2148Mi"}, {"0": 1 << 30, "1": 2148 << 20}), ("memlock", "64Gi", str(64 << 30)),
     ("sysctl", {"net.ipv4.tcp_rmem": "4096\t87380  6291456"}, {"net.ipv4.tcp_rmem": "4096 87380 6291456"}),
     ("sysctl", {"vm.swappiness": None}, {"vm.swappiness": None}),
     ("kubelet_version", "v1.34.1+k3s1", "1.34.1+k3s1"), ("system_reserved", {"pid": 1000}, {"pid": "1000"}),
     ("governor", "schedutil", "schedutil"), ("default_hugepage_size", "2M", 2 << 20)],
)  # fmt: skip
def test_what_is_given_and_what_is_meant(variable: str, given: Any, meant: Any) -> None:
    assert getattr(policy_from_variables({variable: given}), variable) == meant


def test_a_misspelt_name_gets_the_nearest() -> None:  # B20, J6
    with pytest.raises(InvalidInput) as refusal:
        policy_from_variables({"gpufleet_topology_manger_policy": "none"})
    assert refusal.value.remedy == 'Did you mean "gpufleet_topology_manager_policy"?'
