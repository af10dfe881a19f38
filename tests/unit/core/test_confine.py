"""The host's own daemons and logins on the reserved CPUs."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core import confine
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import FOREIGN, NOT_APPLICABLE, Effect, File, Observation
from ansible_collections.gpufleet.node.plugins.module_utils.core.confine import ConfineReading
from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput

ONLINE = CpuSet.parse("0-383")
WANTED = {"cpus": "0,96,192,288", "slices": list(confine.SLICES)}


def texts(parts):
    return {a.path: a.edit("old") for a in parts.files if isinstance(a, File)}


def effects(artifacts):
    return {a.probe: a for a in artifacts if isinstance(a, Effect)}


def test_slices_get_the_reserved_cpus_live_and_at_boot():  # A25, D13, D14
    parts = confine.artifacts(WANTED, ConfineReading(online=ONLINE))
    found = texts(parts)
    assert sorted(found) == ["/etc/systemd/system/%s.d/zz-gpufleet.conf" % name for name in ("init.scope", "system.slice", "user.slice")]
    scope = found["/etc/systemd/system/init.scope.d/zz-gpufleet.conf"]
    assert scope.splitlines()[1:] == [
        "[Scope]",
        "AllowedCPUs=",
        "AllowedCPUs=0,96,192,288",
    ]
    assert all("CPUAffinity" not in text and "kubepods" not in path for path, text in found.items())
    live = effects(parts.live)["/sys/fs/cgroup/system.slice/cpuset.cpus"]
    assert live.command == ("systemctl", "set-property", "--runtime", "system.slice", "AllowedCPUs=0,96,192,288")
    assert live.satisfied("0,96,192,288\n")
    assert not live.satisfied("\n") and not live.satisfied(None) and not live.satisfied("0-383\n")


def test_a_slice_with_workloads_is_left_as_it_is():
    guests = (("system.slice", "a Docker container (docker-abc.scope)"), ("system.slice", "Slurm jobs (slurmstepd.scope)"))
    parts = confine.artifacts(WANTED, ConfineReading(online=ONLINE, workloads=guests))
    (said,) = (a for a in parts.live if isinstance(a, Observation))
    assert said.status == FOREIGN
    assert "Slurm jobs (slurmstepd.scope), a Docker container (docker-abc.scope)" in said.message
    assert texts(parts)["/etc/systemd/system/system.slice.d/zz-gpufleet.conf"] == "old"
    assert sorted(effects(parts.live)) == ["/sys/fs/cgroup/init.scope/cpuset.cpus", "/sys/fs/cgroup/user.slice/cpuset.cpus"]


def test_a_slice_that_is_confined_already_stays_so_when_a_login_trains():
    ours = dict.fromkeys(confine.SLICES, "[Slice]\nAllowedCPUs=\nAllowedCPUs=0,96,192,288\n")
    reading = ConfineReading(online=ONLINE, drop_ins=ours, workloads=(("user.slice", "training"),))
    parts = confine.artifacts(WANTED, reading)
    assert not [a for a in parts.live if isinstance(a, Observation)]


def test_an_empty_section_gives_the_cpus_back_before_our_file_forgets_it():
    parts = confine.artifacts({}, ConfineReading(online=ONLINE, drop_ins={"user.slice": "AllowedCPUs=0"}))
    assert set(texts(parts).values()) == {None} and len(texts(parts)) == 3
    kinds = [type(a) for a in parts.files if "user.slice" in a.item]
    assert kinds == [Effect, File]
    (effect,) = effects(parts.files).values()
    assert effect.command[-1] == "AllowedCPUs=0-383"
    assert effect.satisfied("") and effect.satisfied(None) and effect.satisfied("0-383\n") and not effect.satisfied("0\n")


def test_cgroup_v1_has_no_such_thing():
    parts = confine.artifacts(WANTED, ConfineReading(online=ONLINE, unified=False))
    assert [a.status for a in parts.live if isinstance(a, Observation)] == [NOT_APPLICABLE]
    assert set(texts(parts).values()) == {None}
    assert not effects([*parts.files, *parts.live])


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ({"cpus": "0", "slices": ["kubepods.slice"]}, '"kubepods.slice" is not a slice of the host\'s own daemons'),  # A18
        ({"cpus": "", "slices": ["system.slice"]}, "No CPUs are given"),
        ({"cpus": "0,400", "slices": ["system.slice"]}, "CPU 400 to confine the system to is not online."),
        ({"cpus": "3-1"}, "runs backwards"),
        ({"cpu": "0"}, 'Did you mean "cpus"?'),
    ],
)
def test_what_can_not_be_gets_a_sentence(section, sentence):
    with pytest.raises(InvalidInput) as error:
        confine.artifacts(section, ConfineReading(online=ONLINE))
    assert sentence in str(error.value)
