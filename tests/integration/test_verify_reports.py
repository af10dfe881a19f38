"""The playbooks around a run: what verify reports and to whom, what is refused before a write, who goes first."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import STATUSES
from ansible_collections.gpufleet.node.plugins.module_utils.core.reboot import after_boot
from ansible_collections.gpufleet.node.plugins.module_utils.core.verdict_report import junit
from machines import build
from machines.scratch import scratch

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"


@pytest.fixture
def fleet() -> Iterator[Path]:
    """Two small nodes, "first" and "second", and an inventory that has them in this order."""
    with scratch() as folder:
        for name in ("first", "second"):
            build.build(build.load("cloudvm"), folder / name)
        local = "ansible_connection=local ansible_python_interpreter='{{ ansible_playbook_python }}'"
        (folder / "hosts").write_text("".join(f"{name} {local} gpufleet_root={folder}/{name}\n" for name in ("first", "second")))
        yield folder


def play(fleet: Path, environment: dict[str, str], playbook: str, *options: str, **variables: object) -> subprocess.CompletedProcess[str]:
    command = ["ansible-playbook", "-i", str(fleet / "hosts"), str(PLAYBOOKS / playbook), "-e", json.dumps(variables), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def suites(path: Path) -> dict[str, dict[str, ElementTree.Element]]:
    """Test cases by suite and name; the first of a name, since a setting and somebody else's file about it have the same."""
    root = ElementTree.parse(path).getroot()
    return {suite.attrib["name"]: {case.attrib["name"]: case for case in reversed(suite)} for suite in root}


def test_a_tag_that_names_no_concern_is_told(fleet, ansible_env):
    done = play(fleet, ansible_env, "site.yml", "--tags", "tunning,reboot", "--check", gpufleet_hosts="first")
    assert done.returncode == 0, done.stdout
    assert '"tags": "tunning: no such concern; there are boot, tuning, irq, kubelet, launcher, batch"' in done.stdout
    done = play(fleet, ansible_env, "site.yml", "--skip-tags", "tuning", "--check", gpufleet_hosts="first")
    assert done.returncode == 0 and "no such concern" not in done.stdout


def test_verify_tells_drift_from_what_is_pending_for_people_and_for_programs(fleet, ansible_env):
    one = {"gpufleet_hosts": "first", "gpufleet_report_dir": f"{fleet}/reports"}
    assert play(fleet, ansible_env, "site.yml", gpufleet_hosts="first").returncode == 0
    done = play(fleet, ansible_env, "verify.yml", **one)
    assert done.returncode == 0, done.stdout
    assert '"          in place       sysctl vm.swappiness"' in done.stdout  # one line per check
    record = json.loads((fleet / "reports/first.json").read_text())
    assert (record["node"], record["profile"], record["differing"]) == ("first", "colocation", [])
    cases = suites(fleet / "reports/first.xml")
    total = ElementTree.parse(fleet / "reports/first.xml").getroot().attrib
    assert (total["tests"], total["failures"], total["errors"]) == (str(sum(record["counts"].values())), "0", "0")
    assert cases["first.tuning"]["sysctl vm.swappiness"].find("skipped") is None  # in place, by its name

    (fleet / "first/proc/sys/vm/swappiness").write_text("60\n")
    done = play(fleet, ansible_env, "verify.yml", **one)
    assert done.returncode != 0 and "tuning differ from the plan" in done.stdout
    failure = suites(fleet / "reports/first.xml")["first.tuning"]["sysctl vm.swappiness"].find("failure")
    assert failure is not None and failure.attrib["message"] == "drift: is 60, should be 0"
    assert json.loads((fleet / "reports/first.json").read_text())["differing"] == ["tuning"]


def test_a_plan_of_another_machine_is_refused_before_anything_is_written(fleet, ansible_env):
    with scratch() as other:
        build.build(build.load("nosmt"), other / "root")
        (other / "plan.yml").write_text(
            "- hosts: localhost\n  gather_facts: false\n  tasks:\n"
            f"    - gpufleet.node.topology_facts: {{root: {other}/root}}\n    - gpufleet.node.node_plan:\n"
            "    - ansible.builtin.copy:\n        content: '{{ ansible_facts.gpufleet_plan | to_json }}'\n"
            f"        dest: {other}/plan.json\n        mode: '0644'\n"
        )
        subprocess.run(["ansible-playbook", str(other / "plan.yml")], env=ansible_env, capture_output=True, check=True)
        plan = json.loads((other / "plan.json").read_text())
    done = play(fleet, ansible_env, "site.yml", gpufleet_hosts="first", gpufleet_plan=plan)
    assert done.returncode != 0 and "The plan was made for another machine" in done.stdout
    assert not (fleet / "first/var/lib/gpufleet").exists()


def test_a_rolling_change_ends_with_the_batch_that_fails(fleet, ansible_env):
    hosts = (fleet / "hosts").read_text().splitlines()
    (fleet / "hosts").write_text("\n".join([hosts[0] + " gpufleet_governor=nonsense", hosts[1]]) + "\n")
    done = play(fleet, ansible_env, "site.yml", gpufleet_serial=1)
    assert done.returncode != 0 and "[first]" in done.stdout and "[second]" not in done.stdout
    assert not (fleet / "second/var/lib/gpufleet").exists()


def test_the_canary_goes_first_and_alone(fleet, ansible_env):
    hosts = (fleet / "hosts").read_text().splitlines()
    (fleet / "hosts").write_text("\n".join([hosts[0], hosts[1] + " gpufleet_governor=nonsense"]) + "\n")  # the canary is the last
    done = play(fleet, ansible_env, "site.yml", gpufleet_canary="second", gpufleet_max_fail_percentage=30)
    assert done.returncode != 0 and "nonsense" in done.stdout
    assert "[first]" not in done.stdout and not (fleet / "first/var/lib/gpufleet").exists()
    (fleet / "hosts").write_text("\n".join(hosts) + "\n")
    done = play(fleet, ansible_env, "site.yml", gpufleet_canary="second")
    assert done.returncode == 0 and done.stdout.count("\nPLAY [") == 2
    assert done.stdout.index("ok: [second]") < done.stdout.index("ok: [first]")


def test_what_to_do_about_a_reboot_is_a_choice_of_two_and_a_folder_is_never_rebooted(fleet, ansible_env):
    wanted = {"gpufleet_hosts": "first", "gpufleet_profile": "isolated"}
    done = play(fleet, ansible_env, "site.yml", **wanted, gpufleet_reboot="always")
    assert done.returncode != 0 and "never, when_needed" in done.stdout
    done = play(fleet, ansible_env, "site.yml", **wanted, gpufleet_reboot="when_needed", gpufleet_drain="/nonexistent.yml")
    assert done.returncode == 0, done.stdout


def test_there_and_back_with_the_playbooks(fleet, ansible_env):
    def tree() -> dict[str, bytes]:
        return {
            os.path.join(folder, name): Path(folder, name).read_bytes()
            for top in ("etc", "boot", "proc/sys")
            for folder, _folders, names in os.walk(fleet / "first" / top)
            for name in names
            if not Path(folder, name).is_symlink()
        }

    fstab = fleet / "first/etc/fstab"
    fstab.write_text(fstab.read_text() + "/swap.img none swap sw 0 0\n")
    before = tree()
    assert play(fleet, ansible_env, "site.yml", gpufleet_hosts="first").returncode == 0
    fstab.write_text(fstab.read_text() + "# mine\n")
    assert tree() != before
    done = play(fleet, ansible_env, "rollback.yml", gpufleet_hosts="first")
    assert done.returncode == 0 and '"+# mine"' in done.stdout
    assert tree() == {**before, str(fstab): before[str(fstab)] + b"# mine\n"}
    again = play(fleet, ansible_env, "rollback.yml", gpufleet_hosts="first")
    assert "changed=0" in again.stdout


# The pure parts ---------------------------------------------------------------------------------------------------------

findings = st.lists(
    st.fixed_dictionaries(
        {"item": st.text(), "status": st.sampled_from(STATUSES), "message": st.text(), "until": st.sampled_from(["", "reboot"])}
    )
)


@given(
    st.dictionaries(st.sampled_from(["boot", "tuning", "irq"]), st.fixed_dictionaries({"findings": findings, "in_place": st.just(0)})),
    st.text(),
)
def test_junit_is_xml_whatever_the_texts_are_and_counts_what_it_holds(concerns, node):
    root = ElementTree.fromstring(junit({"concerns": concerns}, node).encode())
    assert len(root) == len(concerns)
    for suite, result in zip(root, concerns.values()):
        statuses = [finding["status"] for finding in result["findings"]]
        assert int(suite.attrib["tests"]) == len(suite) == len(statuses)
        assert int(suite.attrib["failures"]) == len(suite.findall("*/failure")) == statuses.count("drift")
        skipped = len(statuses) - statuses.count("drift") - statuses.count("in_place")
        assert int(suite.attrib["skipped"]) == len(suite.findall("*/skipped")) == skipped


def test_junit_says_which_kind_of_skipped_it_is():
    listed = [
        {"item": "cmdline", "status": "pending", "message": "isolcpus differs", "until": "reboot"},
        {"item": "governor", "status": "not_applicable", "message": "no cpufreq", "until": ""},
        {"item": "swappiness", "status": "owned_by_someone_else", "message": "tuned sets it", "until": ""},
    ]
    concerns = {"boot": {"findings": listed, "in_place": 4}, "irq": {"findings": [], "in_place": 0, "refused": "No <device>."}}
    root = ElementTree.fromstring(junit({"concerns": concerns}, "gpu01").encode())
    assert [skipped.attrib["message"] for skipped in root.iter("skipped")] == [
        "pending until reboot: isolcpus differs",
        "not applicable: no cpufreq",
        "someone else's: tuned sets it",
    ]
    assert [error.attrib["message"] for error in root.iter("error")] == ["No <device>."]
    assert (root.attrib["tests"], root.attrib["errors"]) == ("4", "1")


PLAN = {"kernel_arguments": ["isolcpus=domain,managed_irq,2-7", "nohz_full=2-7"]}
BOOTED = {"command_line": "BOOT_IMAGE=/vmlinuz-6.1 root=/dev/sda1 isolcpus=domain,managed_irq,2-7 nohz_full=2-7"}
BARE = {"command_line": "BOOT_IMAGE=/vmlinuz-6.1 root=/dev/sda1 nohz_full=2-7"}


def booted(*listed: tuple[str, str, str, str], concern: str = "boot") -> dict[str, object]:
    entries = [dict(zip(("item", "status", "message", "until"), one)) for one in listed]
    return {"concerns": {concern: {"findings": entries, "in_place": 0}}}


def test_a_reboot_that_brought_everything_needs_no_words():
    assert after_boot(booted(("cmdline of others", "owned_by_someone_else", "sets quiet", "")), PLAN, BOOTED) == []


@pytest.mark.parametrize(
    ("finding", "reason"),
    [
        # C10 and its like: a file that comes later wins
        (
            ("/etc/default/grub.d/zzz.cfg", "owned_by_someone_else", "is sourced after our drop-in", ""),
            "zzz.cfg: is sourced after our drop-in.",
        ),
        (("kernel arguments in grub.cfg", "drift", "an entry lacks our arguments", ""), "an entry lacks our arguments"),
        (("boot entry 1", "not_applicable", "", ""), "another boot loader entry than the default was booted (BOOT_IMAGE=/vmlinuz-6.1)"),
    ],
)
def test_missing_arguments_are_named_with_the_likely_reason(finding, reason):
    lines = after_boot(booted(finding), PLAN, BARE)
    assert lines[0] == "The kernel was booted without what the plan wants of isolcpus."
    assert lines[1].startswith("Likely reason: ") and reason in lines[1]


def test_arguments_that_the_kernel_was_not_built_for_are_told():
    item = "CPUs that the kernel isolates by nohz_full"
    lines = after_boot(booted((item, "drift", "look for CONFIG_NO_HZ_FULL", "")), PLAN, BOOTED)
    assert lines == ["boot, %s: look for CONFIG_NO_HZ_FULL" % item]


def test_what_waits_for_a_reboot_after_one_is_a_failure():
    lines = after_boot(booted(("hugepages", "pending", "3 of 8 pages", "reboot"), concern="tuning"), PLAN, BOOTED)
    assert lines == ["tuning, hugepages: 3 of 8 pages"]
    assert after_boot(booted(("irq", "pending", "the next interrupt moves it", "interrupt"), concern="irq"), PLAN, BOOTED) == []
