"""The program that follows kubelet, as a process of its own, and started by a real systemd where one can run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import user_systemd

from ansible_collections.gpufleet.node.plugins.module_utils.core.batch_units import Slice, follow_path, follow_service
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.host import batch_program
from ansible_collections.gpufleet.node.plugins.module_utils.host.bundle import bundle

# Stands in for systemctl: writes down what it is asked, answers "show" with what was last set, and may do more.
SYSTEMCTL = """\
#!/bin/sh
if [ "$1" = show ]; then sed 's/,/ /g' "%(folder)s/allowed" 2>/dev/null; exit 0; fi
echo "$@" >> "%(folder)s/calls"
echo "${4#AllowedCPUs=}" > "%(folder)s/allowed"
%(more)s
"""
SET = "set-property --runtime gpufleet-batch.slice AllowedCPUs="


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The shipped file."""
    path = tmp_path_factory.mktemp("program") / "batch_cpus.pyz"
    path.write_bytes(bundle(batch_program.__name__))
    return path


@pytest.fixture
def node(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "kubelet").mkdir()
    systemctl(tmp_path)
    return tmp_path


def systemctl(node: Path, more: str = "") -> None:
    path = node / "bin/systemctl"
    path.write_text(SYSTEMCTL % {"folder": node, "more": more})
    path.chmod(0o755)


def state(default: str, policy: str = "static") -> str:
    return json.dumps({"policyName": policy, "defaultCpuSet": default, "entries": {}, "checksum": 1})


def write(node: Path, text: str) -> None:
    """As kubelet does: a new file takes the place of the old one."""
    new = node / "kubelet/.new"
    new.write_text(text)
    new.rename(node / "kubelet/cpu_manager_state")


def calls(node: Path) -> list[str]:
    path = node / "calls"
    return [line.removeprefix(SET) for line in path.read_text().splitlines()] if path.exists() else []


def start(program: Path, node: Path, *options: str, reserved: str = "0,4"):
    command = [sys.executable, "-I", program, "--settle", "0", *options, "--pool", "1-3,5-7", "--reserved", reserved]
    return subprocess.run(
        [*command, str(node / "kubelet/cpu_manager_state")],
        env={"PATH": f"{node}/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )


def test_the_slice_gets_what_no_pod_has(program, node):
    write(node, state("0-2,4-7"))
    done = start(program, node)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "gpufleet-batch.slice has CPUs 1-2,5-7: no pod has these to itself\n"
    assert calls(node) == ["1-2,5-7"]
    assert start(program, node).stdout == "" and calls(node) == ["1-2,5-7"]  # nothing to do, nothing said


def test_the_reserved_cpus_are_left_when_nothing_else_is(program, node):
    write(node, state("0,4"))
    assert "pods have every CPU of the pool" in start(program, node).stdout
    write(node, state("0-7"))
    start(program, node)
    write(node, '{"policyName":"static","defaultCp')
    assert "kubelet's state is not JSON" in start(program, node).stdout
    (node / "kubelet/cpu_manager_state").unlink()
    start(program, node)  # the same CPUs: no call
    assert calls(node) == ["0,4", "1-3,5-7", "0,4"]


def test_a_state_that_changes_while_it_runs_is_followed_to_its_end(program, node):
    """systemd doesn't watch the file meanwhile. The stand-in admits a pod at each of the first two calls."""
    write(node, state("0-7"))
    (node / "second").write_text(state("0,4-7"))
    (node / "third").write_text(state("0,4,7"))
    move = 'for next in second third; do if [ -e "%s/$next" ]; then mv "%s/$next" "%s/kubelet/cpu_manager_state"; break; fi; done'
    systemctl(node, move % (node, node, node))
    done = start(program, node)
    assert done.returncode == 0 and calls(node) == ["1-3,5-7", "5-7", "7"]


def test_a_live_slice_that_has_them_is_left_alone(program, node):
    write(node, state("0-7"))
    live = node / "sys/fs/cgroup/gpufleet.slice/gpufleet-batch.slice/cpuset.cpus"
    live.parent.mkdir(parents=True)
    live.write_text("1-3,5-7\n")
    (node / "below").symlink_to(node)
    # Below another root the state's path is another one too.
    shutil.copytree(node / "kubelet", node / str(node / "kubelet").lstrip("/"))
    assert start(program, node, "--root", str(node)).stdout == "" and calls(node) == []
    live.write_text("1-7\n")
    start(program, node, "--root", str(node))
    assert calls(node) == ["1-3,5-7"]


def test_faults_are_one_sentence(program, node):
    write(node, state("0-7"))
    systemctl(node, "exit 4")
    done = start(program, node)
    assert done.returncode == 1 and done.stderr.startswith("gpufleet-batch.slice keeps its CPUs: ") and "Traceback" not in done.stderr
    (node / "bin/systemctl").unlink()
    done = start(program, node, reserved="4-")
    assert done.returncode == 1 and 'CPU list "4-"' in done.stderr


# A real systemd -----------------------------------------------------------------------------------------------------------


def until(node: Path, cpus: str, process: subprocess.Popen) -> float:
    """Seconds until the slice has these CPUs."""
    started = time.monotonic()
    while calls(node)[-1:] != [cpus]:
        assert time.monotonic() - started < 30 and process.poll() is None, (cpus, calls(node))
        time.sleep(0.02)
    return time.monotonic() - started


@pytest.mark.skipif(not user_systemd.runs(), reason="no systemd can be run in name spaces here")
def test_the_path_unit_starts_it_while_a_service_runs(program, node):
    """Pods are admitted, and end: each time within five seconds, also when kubelet writes again while the program runs."""
    here = Slice(CpuSet.parse("1-3,5-7"), CpuSet.parse("0,4"), CpuSet(), CpuSet(), 20, 20, True, str(node / "kubelet"))
    # A user's manager has another sandbox: none that would hide this test's folder.
    service = re.sub(r"(?m)^(Protect|Private|Restrict|NoNew|Lock|Memory|System)\w+=.*\n", "", follow_service(here, sys.executable))
    units = {
        "gpufleet-batch-cpus.service": service.replace("/usr/local/lib/gpufleet/batch_cpus.pyz", str(program))
        + f"Environment=PATH={node}/bin:/usr/bin:/bin\n",
        "gpufleet-batch-cpus.path": follow_path(here),
        "job.service": f"[Unit]\nAfter=gpufleet-batch-cpus.path\n[Service]\nExecStart=/bin/sh -c 'touch {node}/ready; sleep 60'\n",
        "all.target": "[Unit]\nWants=gpufleet-batch-cpus.path job.service\nDefaultDependencies=no\n",
    }
    write(node, state("0-7"))
    with user_systemd.start(node / "home", "all.target", units) as process:
        try:
            while not (node / "ready").exists():
                assert process.poll() is None
                time.sleep(0.02)
            took = []
            for default, cpus in (("0-6", "1-3,5-6"), ("0,4-6", "5-6"), ("0,4", "0,4"), ("0-7", "1-3,5-7")):
                write(node, state(default))
                took.append(until(node, cpus, process))
            assert max(took) < 5, took
        finally:
            process.kill()
