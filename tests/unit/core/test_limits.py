"""Limits for logins and for services, and what already runs."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core import limits
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import PENDING, RESTART, Effect, Observation
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.limits import LimitsReading

WANTED = {"memlock": "unlimited", "nofile": 1048576}
PROC_LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            %s              1073741816           files
Max locked memory         %s              %s              bytes
"""


def texts(parts):
    return {file.path: file.edit("old") for file in parts.files}


def test_logins_and_services_get_them():  # J1
    parts = limits.artifacts(WANTED, LimitsReading(units=("containerd.service", "k3s.service")))
    found = {path: text for path, text in texts(parts).items() if text is not None}
    logins = [line.split() for line in found.pop(limits.LOGINS).splitlines() if not line.startswith("#")]
    # The wildcard leaves root out.
    assert sorted(logins) == sorted(
        [who, "-", *rest] for who in ("*", "root") for rest in (["memlock", "unlimited"], ["nofile", "1048576"])
    )
    assert found.pop(limits.SERVICES).splitlines()[1:] == ["[Manager]", "DefaultLimitMEMLOCK=infinity", "DefaultLimitNOFILE=1048576"]
    assert sorted(found) == [
        "/etc/systemd/system/containerd.service.d/zz-gpufleet.conf",
        "/etc/systemd/system/k3s.service.d/zz-gpufleet.conf",
    ]
    assert all(text.splitlines()[1:] == ["[Service]", "LimitMEMLOCK=infinity", "LimitNOFILE=1048576"] for text in found.values())


def test_locked_memory_counts_bytes_for_systemd_and_kib_for_logins():
    found = texts(limits.artifacts({"memlock": "1048577"}, LimitsReading()))
    assert "DefaultLimitMEMLOCK=1048577" in found[limits.SERVICES]
    assert "root - memlock 1025\n" in found[limits.LOGINS]


def test_an_empty_section_takes_every_path_back():
    assert set(texts(limits.artifacts({}, LimitsReading(units=("containerd.service",)))).values()) == {None}
    assert len(texts(limits.artifacts({}, LimitsReading()))) == 2 + len(limits.RUNTIMES)


@pytest.mark.parametrize(
    ("nofile", "memlock", "right"),
    [("1048576", "unlimited", True), ("1073741816", "unlimited", True), ("1024", "unlimited", False), ("1048576", "8388608", False)],
)
def test_what_runs_with_former_limits_waits_for_its_restart(nofile, memlock, right):  # J1
    parts = limits.artifacts(WANTED, LimitsReading(units=("containerd.service",), running=(("containerd.service", 77),)))
    (effect,) = (a for a in parts.live if isinstance(a, Effect) and a.item == "containerd.service")
    assert (effect.probe, effect.unmet, effect.until, effect.command) == ("/proc/77/limits", PENDING, RESTART, None)
    assert effect.satisfied(PROC_LIMITS % (nofile, memlock, memlock)) is right
    assert effect.satisfied(None), "a process that is gone runs with no wrong limits"


def default_effect(wanted, **reading):
    (effect,) = (
        a for a in limits.artifacts(wanted, LimitsReading(**reading)).live if a.item.startswith("default") and isinstance(a, Effect)
    )
    return effect.satisfied


def test_the_managers_defaults_are_asked_for():
    right = default_effect(WANTED)
    assert right("DefaultLimitNOFILE=1048576\nDefaultLimitMEMLOCK=infinity\n")
    assert right("DefaultLimitMEMLOCK=18446744073709551615\nDefaultLimitNOFILE=1048576\n")
    assert not right("DefaultLimitMEMLOCK=8388608\nDefaultLimitNOFILE=1048576\n")
    assert right(None), "no systemd at work"


def test_defaults_of_a_former_file_go():
    gone = default_effect({}, services="[Manager]\nDefaultLimitMEMLOCK=infinity\n")
    assert not gone("DefaultLimitMEMLOCK=infinity\n")
    assert gone("DefaultLimitMEMLOCK=8388608\n")


def test_a_later_file_of_somebody_else_is_named_and_not_fought():
    later = (("/etc/systemd/system.conf.d/zzz.conf", "[Manager]\nDefaultLimitNOFILE=1024\n"),)
    assert default_effect(WANTED, later=later)("DefaultLimitMEMLOCK=infinity\nDefaultLimitNOFILE=1024\n")
    found = [a.message for a in limits.artifacts(WANTED, LimitsReading(later=later)).live if isinstance(a, Observation)]
    assert len(found) == 1 and later[0][0] in found[0]


@pytest.mark.parametrize(
    ("given", "reading", "sentence"),
    [
        ({"memlok": "unlimited"}, LimitsReading(), 'Did you mean "memlock"?'),
        ({"memlock": "8g"}, LimitsReading(), 'The limit memlock can\'t be "8g".'),
        ({"nofile": "unlimited"}, LimitsReading(), "Give a number of files"),
        ({"nofile": 0}, LimitsReading(), 'The limit nofile can\'t be "0".'),
        ({"nofile": 1048577}, LimitsReading(nr_open=1048576), "nobody could log in any more"),
    ],
)
def test_what_can_not_be_gets_a_sentence(given, reading, sentence):
    with pytest.raises(InvalidInput) as error:
        limits.artifacts(given, reading)
    assert sentence in str(error.value)
