"""Kernel parameters: one file of ours that wins, values compared by tokens, and a sentence for what the kernel refuses."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import sysctl
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import FOREIGN, File, KernelValue, Observation
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput

NAMES = st.sampled_from(["vm.swappiness", "kernel.numa_balancing", "net.core.rmem_max", "net.ipv4.tcp_rmem", "net/ipv4/conf/eth0.1/mtu"])
SETTINGS = st.dictionaries(
    NAMES, st.lists(st.integers(0, 200).map(str), min_size=1, max_size=3).map("\t".join).filter(lambda t: "\t" not in t)
)


def written(settings):
    (file,) = sysctl.artifacts(settings, ()).files
    assert isinstance(file, File)
    return file.edit(None)


def foreign(settings, *files):
    return [a.message for a in sysctl.artifacts(settings, files).live if isinstance(a, Observation) and a.status == FOREIGN]


def test_our_file_is_read_after_the_link_to_sysctl_conf_and_after_installers_names():  # F16, C2
    ours = posixpath.basename(sysctl.PATH)
    assert all(name < ours for name in ("99-sysctl.conf", "90-x.conf", "99-zz.conf", "hetzner.conf", "k8s.conf"))


def test_a_missing_parameter_does_not_fail_the_others():  # F16
    lines = [line for line in written({"kernel.numa_balancing": "0", "vm.swappiness": "0"}).splitlines() if not line.startswith("#")]
    assert lines == ["-kernel.numa_balancing = 0", "-vm.swappiness = 0"]


@given(SETTINGS)
def test_what_is_written_reads_as_what_was_meant(settings):
    text = written(settings)
    if not settings:
        assert text is None
        return
    assert {sysctl.proc_path(name): value for name, value in sysctl.parse(text)} == {sysctl.proc_path(n): v for n, v in settings.items()}
    assert foreign(settings, ("/etc/sysctl.d/zzz.conf", text)) == []


def test_values_are_compared_by_tokens():
    (value,) = (a for a in sysctl.artifacts({"net.ipv4.tcp_rmem": "4096 87380  268435456"}, ()).live if isinstance(a, KernelValue))
    assert value.path == "/proc/sys/net/ipv4/tcp_rmem"
    assert value.same("4096\t87380\t268435456\n", value.wanted[0])
    assert not value.same("4096\t87380\t26843545\n", value.wanted[0])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("vm.swappiness", "/proc/sys/vm/swappiness"),
        ("net/ipv4/conf/eth0.1/mtu", "/proc/sys/net/ipv4/conf/eth0.1/mtu"),
        ("net.ipv4.conf.eth0/1.mtu", "/proc/sys/net/ipv4/conf/eth0.1/mtu"),
    ],
)
def test_the_first_separator_decides(name, path):
    assert sysctl.proc_path(name) == path


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"vm.dirty_bytes": "1073741824", "vm.dirty_ratio": "10"}, "vm.dirty_bytes and vm.dirty_ratio are given together"),  # F12
        (
            {"vm.dirty_background_ratio": "5", "vm.dirty_background_bytes": "1073741824"},
            "vm.dirty_background_bytes and vm.dirty_background_ratio are given together",
        ),
        ({"vm.dirty_bytes": "0"}, "Set vm.dirty_ratio instead"),  # F12
        ({"vm.dirty_bytes": "4096"}, "Give a whole number from 8192 on."),
        ({"vm.dirty_bytes": "8GiB"}, "The kernel refuses vm.dirty_bytes = 8GiB."),
        ({"vm.swappiness": "201"}, "from 0 to 200"),
        ({"vm.swappiness": ""}, "vm.swappiness has no value"),
        ({"swappiness": "0"}, '"swappiness" is not the name of a kernel parameter.'),
        ({"vm.x = 1\nkernel.y": "0"}, "is not the name of a kernel parameter."),
        ({"vm/../../etc/passwd": "0"}, "is not the name of a kernel parameter."),
        ({"net.ipv4.ip_forward": "0"}, "cuts containers off the network"),  # F17
    ],
)
def test_what_the_kernel_refuses_gets_a_sentence(settings, sentence):
    with pytest.raises(InvalidInput) as error:
        sysctl.artifacts(settings, ())
    assert sentence in str(error.value)


def test_only_the_one_that_is_set_of_a_pair_is_looked_at():  # F12: the kernel reads 0 for the other
    (value,) = sysctl.artifacts({"vm.dirty_bytes": "34359738368"}, ()).live
    assert (value.path, value.tied) == ("/proc/sys/vm/dirty_bytes", ("/proc/sys/vm/dirty_ratio",))


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("/etc/sysctl.d/zzz-site.conf", "vm.swappiness = 60\n", "at each boot"),
        ("/etc/sysctl.d/zzz-site.conf", "-vm/swappiness=60", "sets vm.swappiness = 60"),
        ("/etc/sysctl.d/zzz-site.conf", "vm.swappiness = 0\nvm.swappiness=10", "sets vm.swappiness = 10"),
        ("/etc/sysctl.d/zzz-site.conf", "vm.swap* = 60", "vm.swap* = 60"),
        ("/etc/sysctl.conf", "# mine\n  vm.swappiness =\t60\n", "`sysctl --system`"),  # F14, F16
        ("/etc/sysctl.d/zzz-site.conf", "vm.swappiness = 60\nvm.swappiness=0", None),
        ("/etc/sysctl.d/10-site.conf", "vm.swappiness = 60\n", None),
        ("/etc/sysctl.d/zzz-site.conf", "#vm.swappiness = 60\n; vm.swappiness=60\nvm.swappiness_x=60\n", None),
        ("/etc/sysctl.d/zz-gpufleet.conf", "vm.swappiness = 60\n", None),
    ],
)
def test_files_of_others_that_win_are_named(path, text, says):
    found = foreign({"vm.swappiness": "0"}, (path, text))
    assert (len(found) == 1 and path in found[0] and says in found[0]) if says else found == []


def test_a_later_twin_is_named():  # F12
    (message,) = foreign({"vm.dirty_bytes": "34359738368"}, ("/etc/sysctl.d/zzz.conf", "vm.dirty_ratio=10\n"))
    assert "turns vm.dirty_bytes off" in message
