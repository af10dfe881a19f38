"""site.yml, run as users run it, on an example machine: which roles it takes to have work."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from machines import build
from machines.scratch import scratch

SITE = Path(__file__).resolve().parents[2] / "playbooks" / "site.yml"


def concerns_of(root: Path, environment: dict[str, str], **variables: Any) -> set[str]:
    """The concerns whose roles a run includes."""
    given = {"gpufleet_root": str(root), "ansible_python_interpreter": sys.executable, **variables}
    command = ["ansible-playbook", "-i", "node,", "-c", "local", str(SITE), "-e", json.dumps(given)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return set(re.findall(r"^included: gpufleet\.node\.(\w+) for node", done.stdout, re.MULTILINE))


def test_a_node_that_is_as_planned_is_asked_once(ansible_env):
    def calls(**variables):
        given = {"gpufleet_root": str(root), "ansible_python_interpreter": sys.executable, "gpufleet_profile": "isolated", **variables}
        command = ["ansible-playbook", "-vv", "-i", "node,", "-c", "local", str(SITE), "-e", json.dumps(given)]
        done = subprocess.run(command, env=ansible_env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return [int(number) for number in re.findall(r'"module_calls": (\d)', done.stdout)], "changed=0" in done.stdout

    with scratch() as root:
        build.build(build.load("cloudvm"), root)
        assert calls() == ([2], False)
        assert calls() == ([1], True)
        assert calls(gpufleet_nic_gbps_per_core=40) == ([2], True)  # the same on the node, but another plan
        assert calls(gpufleet_nic_gbps_per_core=40) == ([1], True)
        (root / "proc/sys/vm/swappiness").write_text("60\n")
        assert calls(gpufleet_nic_gbps_per_core=40) == ([1], False)


def test_kubelets_unit_is_made_anew_with_all_its_flags(ansible_env):
    start = "/usr/bin/kubelet %s--config=/var/lib/kubelet/config.yaml %s--kubeconfig=/etc/kubernetes/kubelet.conf %s--reserved-cpus=0-1"
    unit = start % ("\\\n  ", "\\\n# how to reach the API server\n  ", "\\\n#  --cpu-manager-policy=none \\\n  ")
    with scratch() as root:
        build.build(build.load("reference"), root)
        shutil.rmtree(root / "usr/lib/systemd/system/kubelet.service.d")
        system = root / "etc/systemd/system"
        (system / "kubelet.service").write_text("[Service]\nExecStart=%s\n" % unit)
        assert "kubelet" in concerns_of(root, ansible_env, gpufleet_kubelet_config_dir="/etc/kubernetes/kubelet.conf.d")
        written = (system / "kubelet.service.d/zz-gpufleet-config-dir.conf").read_text()
    words = written.rpartition("ExecStart=")[2].split()
    assert words == [*(start % ("", "", "")).split(), "--config-dir=/etc/kubernetes/kubelet.conf.d"]


def test_hugepages_at_run_time_are_kubelets_work_too(ansible_env):
    # Its memory manager's state has the memory of each NUMA node without its hugepages.
    with scratch() as root:
        build.build(build.load("cloudvm"), root)
        policy = {"gpufleet_profile": "aligned", "gpufleet_kubelet_restart": "when_needed"}
        assert {"tuning", "kubelet"} <= concerns_of(root, ansible_env, **policy)
        assert concerns_of(root, ansible_env, **policy) == set()
        assert concerns_of(root, ansible_env, **policy, gpufleet_sysctl={"vm.swappiness": 7}) == {"tuning"}
        policy["gpufleet_hugepages"] = {"2Mi": {"0": 8}}
        assert concerns_of(root, ansible_env, **policy) == {"boot", "tuning", "kubelet"}
        policy["gpufleet_hugepages"] = {"2Mi": {"0": 4}}
        policy["gpufleet_kubelet_restart"] = "never"
        assert concerns_of(root, ansible_env, **policy) == {"boot", "tuning"}


def test_kubelets_folder_behind_a_link(ansible_env):
    """A second run took out what the first had written."""
    with scratch() as root:
        build.build(build.load("nps4"), root)
        (root / "data").mkdir()
        (root / "var/lib/kubelet").rename(root / "data/kubelet")
        (root / "var/lib/kubelet").symlink_to("/data/kubelet")
        assert {"kubelet", "batch"} <= concerns_of(root, ansible_env)
        configured = (root / "data/kubelet/config.yaml").read_text()
        assert "reservedSystemCPUs" in configured
        assert concerns_of(root, ansible_env) == set()
        assert (root / "data/kubelet/config.yaml").read_text() == configured
