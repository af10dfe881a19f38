"""The reboot as a transaction, on a folder: the real playbook and the real role, but for the one module that would boot a machine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from machines import build
from machines.scratch import scratch

REPOSITORY = Path(__file__).resolve().parents[2]
LOCAL = "ansible_connection=local ansible_python_interpreter='{{ ansible_playbook_python }}'"
NEW_LINE = "BOOT_IMAGE=/vmlinuz-6.1 root=/dev/vda1 {{ gpufleet_plan.kernel_arguments | %s join(' ') }}"
BOOT = (
    "echo booted >> {folder}/log && echo '%s' > {folder}/node/proc/cmdline && echo '{{ gpufleet_plan.cpus.isolated }}' |"
    " tee {folder}/node/sys/devices/system/cpu/isolated > {folder}/node/sys/devices/system/cpu/nohz_full"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A node, a stand-in for kubectl, and a copy of playbook and role in which a shell line stands for the reboot."""
    with scratch() as place:
        build.build(build.load("cloudvm"), place / "node")
        (place / "hosts").write_text(f"node {LOCAL} gpufleet_root={place}/node\n")
        kubectl = place / "bin/kubectl"
        kubectl.parent.mkdir()
        kubectl.write_text(f'#!/bin/sh\necho "$1" >> {place}/log\necho "$*" >> {place}/kubectl.log\n')
        kubectl.chmod(0o755)
        shutil.copytree(REPOSITORY / "roles/reboot", place / "roles/reboot")
        main, reboot = place / "roles/reboot/tasks/main.yml", place / "roles/reboot/tasks/reboot.yml"
        main.write_text(main.read_text().replace("gpufleet_root | default('/') == '/'", "true"))
        module = re.compile(r"ansible\.builtin\.reboot:\n(        .*\n)+")
        assert module.search(reboot.read_text())
        reboot.write_text(module.sub('ansible.builtin.shell: "{{ boot }}"\n', reboot.read_text()))
        site = (REPOSITORY / "playbooks/site.yml").read_text()
        (place / "site.yml").write_text(site.replace("gpufleet.node.reboot", "reboot"))
        yield place


def play(folder: Path, environment: dict[str, str], boot: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the playbook; its result, and the order in which hooks and reboots came."""
    (folder / "log").write_text("")
    variables = {
        "gpufleet_profile": "isolated",
        "gpufleet_reboot": "when_needed",
        "gpufleet_reboot_timeout": 77,
        "gpufleet_drain": f"{REPOSITORY}/playbooks/tasks/drain.yml",
        "gpufleet_uncordon": f"{REPOSITORY}/playbooks/tasks/uncordon.yml",
    }
    # A variable's own expressions are evaluated on the node's variables, so the line comes from a file.
    (folder / "boot.yml").write_text("boot: %s\n" % json.dumps(boot))
    command = ["ansible-playbook", "-i", str(folder / "hosts"), str(folder / "site.yml"), "-e", json.dumps(variables)]
    environment = {**environment, "PATH": f"{folder}/bin:{environment['PATH']}"}
    done = subprocess.run([*command, "-e", f"@{folder}/boot.yml"], env=environment, capture_output=True, text=True, check=False)
    return done, (folder / "log").read_text().split()


def test_drained_booted_verified_taken_back_and_then_left_alone(folder, ansible_env):
    boot = BOOT.replace("{folder}", str(folder)) % (NEW_LINE % "")
    done, log = play(folder, ansible_env, boot)
    assert done.returncode == 0 and log == ["drain", "booted", "wait", "uncordon"], done.stdout
    assert (folder / "kubectl.log").read_text().splitlines() == [
        "drain node --ignore-daemonsets --delete-emptydir-data --timeout=30m",
        "wait --for=condition=Ready node/node --timeout=10m",
        "uncordon node",
    ]
    assert "reboot when it suits" not in done.stdout  # the summary is of the booted node
    done, log = play(folder, ansible_env, boot)
    assert done.returncode == 0 and log == [] and "changed=0" in done.stdout


def test_a_boot_without_the_arguments_fails_once_and_the_node_stays_drained(folder, ansible_env):
    done, log = play(folder, ansible_env, BOOT.replace("{folder}", str(folder)) % (NEW_LINE % "reject('match', 'irqaffinity') |"))
    assert done.returncode != 0 and log == ["drain", "booted"]
    assert "The kernel was booted without what the plan wants of irqaffinity." in done.stdout
    assert "Likely reason:" in done.stdout


def test_a_node_that_does_not_come_back_is_reported_as_that(folder, ansible_env):
    done, log = play(folder, ansible_env, f"echo booted >> {folder}/log; echo no answer >&2; exit 1")
    assert done.returncode != 0 and log == ["drain", "booted"]
    assert "node did not come back within 77 seconds of its reboot: " in done.stdout and "Look at its console" in done.stdout
