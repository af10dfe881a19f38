"""What people read: no line is too wide, nothing is said twice, and the next step fits what was found."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import reference, topologies

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.report import (
    plan_lines,
    rollback_lines,
    summary_lines,
    verdict_lines,
)
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Topology

DRIFT = {"item": "launcher", "status": "drift", "message": "is missing"}
FOREIGN = {"item": "sysctl vm.swappiness", "status": "owned_by_someone_else", "message": "/etc/sysctl.conf wins"}
PENDING = {"item": "kernel arguments", "status": "pending", "message": "the next boot brings them"}


def lines_for(topology: Topology, **variables: Any) -> list[str]:
    return plan_lines(to_json(build_plan(topology, policy_from_variables(variables))), to_json(topology))


def result(*findings: dict, **more: Any) -> dict:
    """A result of node_verify with these findings in one concern, ``launcher``."""
    differing = ["launcher"] if any(finding["status"] == "drift" for finding in findings) else []
    return {
        "differing": differing,
        "concerns": {"launcher": {"in_place": 3, "findings": list(findings)}},
        "counts": {"in_place": 3, "others": len(findings)},
        "pending_commands": [],
        "reboot_required": False,
        "restart_required": [],
        **more,
    }


@given(topologies(), st.sampled_from(sorted(PROFILES)))
def test_the_table_of_a_plan_stays_narrow(topology: Topology, profile: str) -> None:
    try:
        lines = lines_for(topology, profile=profile)
    except InvalidInput:
        assume(False)
    heading = next(number for number, line in enumerate(lines) if line.startswith("NUMA node  reserved"))
    table = lines[heading : lines.index("", heading)]
    assert max(map(len, table)) <= 140


def test_what_to_act_on_comes_first() -> None:
    words = [line.split()[0] for line in lines_for(reference()) if line.startswith(("warning ", "info "))]
    assert words == sorted(words, reverse=True) and set(words) == {"warning", "info"}


def test_a_plan_says_each_thing_once() -> None:
    lines = lines_for(reference())
    text = " ".join(" ".join(lines).split())
    assert text.count("break the first L3 group") == 1
    assert "See l3_alignment below" in text
    assert "vm.swappiness 0" in text  # the values, not their number


def test_nothing_is_counted_in_the_wrong_number() -> None:
    text = "\n".join(lines_for(reference()))
    assert " 1 packages" not in text and "x 1 threads" not in text and " 1 devices" not in text


STATE = {"item": "cpu_manager_state", "status": "pending", "message": "kubelet would not start on it", "until": "removal"}


def test_next_names_all_that_waits() -> None:
    commands = {"pending_commands": [["update-grub"]]}
    for more, step in (
        ({"restart_required": ["kubelet.service"]}, "restart kubelet.service when it suits"),
        ({**commands, "restart_required": ["kubelet.service"]}, "run on it: update-grub; then restart kubelet.service when it suits"),
        ({**commands, "reboot_required": True, "restart_required": ["kubelet.service"]}, "update-grub; then reboot when it suits"),
    ):
        assert step in " ".join(" ".join(summary_lines(result(), result(**more))).split())
    text = " ".join(" ".join(summary_lines(result(), result(STATE, **commands))).split())
    assert "update-grub; then restart kubelet without cpu_manager_state (gpufleet_kubelet_restart: when_needed does)" in text


def test_before_a_run_the_lines_say_what_is_to_be_changed() -> None:
    lines = summary_lines(result(DRIFT, FOREIGN, PENDING))
    assert lines[0].split() == ["to", "change", "launcher"]
    assert any(line.startswith("someone else's") for line in lines)
    assert not any(line.startswith(("changed", "pending", "next")) for line in lines)


def test_a_converged_node_is_told_what_still_waits() -> None:
    lines = summary_lines(result(PENDING, reboot_required=True))
    assert lines[0].endswith("nothing: the node is as planned")
    assert lines[-1].endswith("reboot when it suits, then run verify.yml")


def test_after_a_run_the_next_step_fits_what_is_left() -> None:
    assert summary_lines(result(DRIFT), result())[0].endswith("launcher")
    assert summary_lines(result(DRIFT), result())[-1].split() == ["next", "nothing"]
    assert "launcher still differ" in summary_lines(result(DRIFT), result(DRIFT))[-1]
    refused = result(DRIFT)
    refused["concerns"]["launcher"]["refused"] = "There is no compiler. Install one."
    assert "mend what was refused" in summary_lines(result(DRIFT), refused)[-1]


def test_a_concern_that_was_mended_in_part_was_changed() -> None:
    other = {**DRIFT, "item": "another"}
    assert summary_lines(result(DRIFT, other), result(DRIFT))[0].split(maxsplit=1) == ["changed", "launcher (in part)"]
    assert summary_lines(result(DRIFT, other), result(DRIFT, other))[0].split() == ["changed", "nothing"]
    refused = result(DRIFT)
    refused["concerns"]["launcher"] = {"in_place": 0, "findings": [], "refused": "There is no compiler. Install one."}
    assert summary_lines(result(DRIFT), refused)[0].split() == ["changed", "nothing"]


def test_a_verdict_is_indented_below_its_word() -> None:
    long = {**DRIFT, "message": "is missing " * 20}
    first, second = verdict_lines({"launcher": {"in_place": 0, "findings": [long]}})[1:3]
    assert first.index("launcher:") == len(second) - len(second.lstrip())


def test_each_item_in_place_has_its_line_where_it_is_listed() -> None:
    right = [{"item": "sysctl net.x%d" % number, "status": "in_place", "message": ""} for number in range(30)]
    spread = {"item": "interrupts of 0000:01:00.0", "status": "in_place", "message": "8 spread over CPUs 0,96"}
    lines = verdict_lines({"tuning": {"in_place": 31, "findings": [*right, spread]}})
    assert [line.split() for line in lines[1:31]] == [["in", "place", "sysctl", "net.x%d" % number] for number in range(30)]
    assert lines[31].split(maxsplit=2)[2] == "interrupts of 0000:01:00.0: 8 spread over CPUs 0,96" and len(lines) == 32


def test_hundreds_of_interrupts_are_no_hundreds_of_lines() -> None:
    moved = [
        {"item": "interrupt %d of 0000:01:00.0" % number, "status": "drift", "message": "is 0-7, should be 0"} for number in range(300)
    ]
    lines = verdict_lines({"irq": {"in_place": 1, "findings": [*moved, FOREIGN]}})
    assert len(lines) < 25
    assert any("interrupt 0 of" in line for line in lines) and any("/etc/sysctl.conf wins" in line for line in lines)
    listed = sum("should be 0" in line for line in lines)
    assert lines[-1].split(";")[0].split() == ["drift", "interrupt:", str(300 - listed), "more"]


def test_a_roll_back_names_what_waits() -> None:
    rolled_back = {**result(reboot_required=True), "changed": True, "in_place": 7, "findings": [PENDING], "left": [], "packages": []}
    lines = rollback_lines(rolled_back)
    assert lines[0].endswith("what was still ours")
    assert lines[-1].endswith("reboot when it suits")
    assert set(rollback_lines({**rolled_back, "packages": ["jemalloc", "libunwind"]})) - set(lines) == {
        "left installed     jemalloc, libunwind"
    }
