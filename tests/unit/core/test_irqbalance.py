"""irqbalance's environment file: one block of ours, everybody else's lines as they were, never an empty assignment."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import irqbalance
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.unit_reading import environment_file

LINES = st.lists(
    st.sampled_from(
        [
            "# a comment",
            "",
            "IRQBALANCE_ONESHOT=",
            'IRQBALANCE_ARGS="--journal"',
            "IRQBALANCE_BANNED_CPULIST=",
            'IRQBALANCE_BANNED_CPULIST=""',
            "IRQBALANCE_BANNED_CPULIST=2,9",
            "IRQBALANCE_BANNED_CPUS=000000ff,00000001",
            "OTHER=1",
        ]
    )
)
FILES = st.one_of(st.none(), st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"])))
BANNED = st.sets(st.integers(0, 70)).map(CpuSet)


def environment(text):
    """What systemd hands to the process: the last assignment of each name wins."""
    pairs = [line.split("=", 1) for line in (text or "").splitlines() if "=" in line and not line.startswith("#")]
    return {name: value.strip("\"'") for name, value in pairs}


@given(FILES, BANNED, st.booleans())
def test_edit_is_idempotent_and_keeps_other_lines(text, banned, policy):
    once = irqbalance.edit(text, banned, policy)
    assert irqbalance.edit(once, banned, policy) == once
    others = [
        line for line in (text or "").splitlines() if not (line.startswith("IRQBALANCE_BANNED") and environment(line).popitem()[1] == "")
    ]
    if banned or policy:
        assert once.splitlines()[: len(others)] == others


@given(FILES, BANNED, st.booleans())
def test_taking_us_out_gives_the_file_back(text, banned, policy):
    taken_out = irqbalance.edit(irqbalance.edit(text, banned, policy), CpuSet(), False)
    kept = [line for line in (text or "").splitlines() if line not in ("IRQBALANCE_BANNED_CPULIST=", 'IRQBALANCE_BANNED_CPULIST=""')]
    expected = kept if banned or policy else (text or "").splitlines()
    assert (taken_out or "").splitlines() == expected


@given(FILES, BANNED.filter(bool), st.booleans())
def test_isolated_cpus_are_banned_whatever_is_there_and_no_assignment_is_empty(text, banned, policy):  # E9
    settings = environment(irqbalance.edit(text, banned, policy))
    mask, cpulist = settings.get("IRQBALANCE_BANNED_CPUS"), settings.get("IRQBALANCE_BANNED_CPULIST")
    assert mask != "" and cpulist != ""
    # irqbalance looks at the mask first, and at the list only when there is none.
    in_force = CpuSet.parse_mask(mask) if mask else CpuSet.parse(cpulist)
    assert banned <= in_force
    before = environment(text)
    if before.get("IRQBALANCE_BANNED_CPUS"):
        assert CpuSet.parse_mask(before["IRQBALANCE_BANNED_CPUS"]) <= in_force


def test_the_list_joins_the_administrators():
    text = irqbalance.edit("IRQBALANCE_BANNED_CPULIST=12\nIRQBALANCE_ARGS='--journal'\n", CpuSet.parse("4-7"), True)
    assert environment(text) == {
        "IRQBALANCE_BANNED_CPULIST": "4-7,12",
        "IRQBALANCE_ARGS": "--journal --policyscript=/usr/local/lib/gpufleet/irqbalance-policy",
    }


def test_arguments_are_what_systemd_makes_of_them():
    text = irqbalance.edit('IRQBALANCE_ARGS="--journal \\\n--x=\\"a b\\""\n', CpuSet(), True)
    wanted = '--journal --x="a b" --policyscript=/usr/local/lib/gpufleet/irqbalance-policy'
    assert environment_file(text) == {"IRQBALANCE_ARGS": wanted}


def test_a_file_that_held_only_us_is_to_be_absent():
    assert irqbalance.edit(irqbalance.edit(None, CpuSet([3]), True), CpuSet(), False) is None


@pytest.mark.parametrize(
    ("text", "own"),
    [
        (None, False),
        ("IRQBALANCE_ARGS=--journal\n", False),
        ("#IRQBALANCE_ARGS=-l /x\n", False),
        ('IRQBALANCE_ARGS="-j --policyscript=/site/policy"\n', True),
        ('IRQBALANCE_ARGS="-l /site/policy"\n', True),
        (irqbalance.edit(None, CpuSet(), True), False),
    ],
)
def test_somebody_elses_policy_script_is_seen(text, own):
    assert irqbalance.has_own_policy(text) is own


@pytest.mark.parametrize(
    ("process", "as_wanted"),
    [
        (None, True),  # it doesn't run
        ("", True),
        ("/usr/sbin/irqbalance --policyscript=/usr/local/lib/gpufleet/irqbalance-policy LANG=C IRQBALANCE_BANNED_CPULIST=4-7,12\n", True),
        ("/usr/sbin/irqbalance LANG=C IRQBALANCE_BANNED_CPULIST=4-7\n", False),
        ("/usr/sbin/irqbalance --policyscript=/usr/local/lib/gpufleet/irqbalance-policy LANG=C\n", False),
        ("/usr/sbin/irqbalance --policyscript=/usr/local/lib/gpufleet/irqbalance-policy IRQBALANCE_BANNED_CPUS=f0\n", True),
    ],
)
def test_whether_the_running_one_knows(process, as_wanted):
    assert irqbalance.in_force(process, CpuSet.parse("4-7"), True) is as_wanted


def test_the_policy_script_bans_planned_devices_alone(tmp_path):
    script = tmp_path / "policy"
    script.write_text(irqbalance.policy_script(["0000:41:00.0", "0000:42:00.0"]))
    script.chmod(0o755)
    answers = {
        device: subprocess.run(
            [os.fspath(script), f"/sys/bus/pci/devices/{device}", "57"], capture_output=True, text=True, check=True
        ).stdout
        for device in ("0000:41:00.0", "0000:42:00.0", "0000:43:00.0", "0000:41:00.1")
    }
    assert answers == {"0000:41:00.0": "ban=true\n", "0000:42:00.0": "ban=true\n", "0000:43:00.0": "", "0000:41:00.1": ""}
