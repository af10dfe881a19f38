"""What identifies a node leaves no trace in a capture, and what parsers need keeps its shape."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.anonymise import Anonymiser

ANONYMISER = Anonymiser(b"key", host_names=["gpu17.corp.example.com"], users=["alice", "bob-x", "ubuntu"])


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("link/ether 3c:ec:ef:12:34:56 brd", "3c:ec:ef:12:34:56"),
        ("80:00:00:28:fe:80:00:00:00:00:00:00:b8:ce:f6:03:00:12:34:56", "b8:ce:f6:03"),
        ("10.20.30.40 storage", "10.20.30.40"),
        ("nfs 10.1.2.3:/export /data nfs4", "10.1.2.3"),
        ("inet6 fe80::3eec:efff:fe12:3456/64", "fe80::3eec"),
        ("2a02:8071:1234:5678:9abc:def0:1234:5678", "2a02:8071"),
        ("UUID=0d0a3f8e-12ab-4cde-9f01-23456789abcd none swap", "0d0a3f8e"),
        ("GPU UUID:  GPU-0d0a3f8e-12ab-4cde-9f01-23456789abcd", "0d0a3f8e"),
        (r"dev-disk-by\x2duuid-0d0a3f8e\x2d12ab\x2d4cde\x2d9f01\x2d23456789abcd.swap", "0d0a3f8e"),
        ("enx3cecef123456", "3cecef123456"),
        ("//nas/share /data cifs username=carol,password=hunter2 0 0", "hunter2"),
        ("Serial Number: S4XYZ0123", "S4XYZ0123"),
        ("127.0.1.1 gpu17.corp.example.com gpu17", "gpu17"),
        ("//gpu17/share /home/alice cifs", "alice"),
        ("ExecStart=/home/bob-x/train.sh", "bob-x"),
    ],
)
def test_secrets_are_replaced(text, secret):
    assert secret not in ANONYMISER.text(text)
    assert secret not in ANONYMISER.arguments(text)


@pytest.mark.parametrize(
    "text",
    [
        "0000:3a:00.0 0000:3a:00.1",
        "10000:e1:00.0",
        "00000000,000000ff,ffffffff",
        "Linux version 5.15.0-91-generic (buildd@lcy02) (gcc 11.4.0-1ubuntu1~22.04) #101-Ubuntu",
        "node0 cpu12 0-95,192-287",
        "127.0.0.1 localhost ::1",
        "4096\t131072\t6291456",
        " 45:   1  0  IR-PCI-MSIX-0000:3a:00.0   3-edge      nvme0q3",
        "12:34:56",
        "ubuntu",
    ],
)
def test_what_parsers_need_stays(text):
    assert ANONYMISER.text(text) == text


def test_unknown_kernel_arguments_lose_their_values():
    line = "BOOT_IMAGE=/vmlinuz root=/dev/vda2 ro isolcpus=2-3 quiet token=abc ip=10.0.0.2 inst.ks=http://boot.corp/ks luks=secretname"
    kept = ANONYMISER.arguments(line).split()
    assert kept[:3] == ["BOOT_IMAGE=/vmlinuz", "root=/dev/vda2", "ro"]
    assert "isolcpus=2-3" in kept and "quiet" in kept
    for secret in ("10.0.0", "boot.corp", "secretname", "abc"):
        assert not any(secret in token for token in kept)
    assert [token.partition("=")[0] for token in kept] == [token.partition("=")[0] for token in line.split()]


def test_uuid_arguments_keep_their_shape():
    kept = ANONYMISER.arguments("root=UUID=0d0a3f8e-12ab-4cde-9f01-23456789abcd ro")
    assert re.fullmatch(r"root=UUID=[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12} ro", kept) and "0d0a3f8e" not in kept


@given(st.ip_addresses(v=4), st.uuids())
def test_replacements_are_consistent_within_a_capture_and_differ_between_them(address, identifier):
    text = "%s %s" % (address, identifier)
    assert ANONYMISER.text(text) == ANONYMISER.text(text)
    assert ANONYMISER.text(str(identifier)) != Anonymiser(b"other").text(str(identifier))


@given(st.ip_addresses(v=6))
def test_any_ipv6_address_is_replaced(address):
    for form in (address.compressed, address.exploded):
        if address.is_loopback or address.is_unspecified or address.ipv4_mapped:
            continue
        replaced = ANONYMISER.text("x %s y" % form)
        assert form not in replaced or form.startswith("2001:db8::")
