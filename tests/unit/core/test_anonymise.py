"""What identifies a node leaves no trace in a capture, and what parsers need keeps its shape."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.anonymise import Anonymiser
from ansible_collections.gpufleet.node.plugins.module_utils.core.anonymise_files import anonymous

ANONYMISER = Anonymiser(b"key", host_names=["gpu17.corp.example.com"], users=["alice", "bob-x", "ubuntu"], accounts=["slurm"])


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
        ("password_pbkdf2 root grub.pbkdf2.sha512.10000.C0FFEE.F00D", "C0FFEE"),
        ("/boot/loader/entries/4d3c2b1a00000000deadbeef12345678-5.14.conf", "deadbeef"),
        ("proxy = http://joe:pw1@proxy.corp:3128/", "joe"),
        ("AWS_SECRET_ACCESS_KEY=wJalr/K7", "wJalr"),
        ('"apiKey": "two words",', "words"),
        ("token: [a1b2, 'c3d4']", "c3d4"),
        ("Authorization:\n- Bearer qwerty", "qwerty"),
        ("/home/corp.example/dave/x none bind", "dave"),
        ("//n/s /s cifs uid=erin,gid=users", "erin"),
        ("User=frank\n", "frank"),
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
        "User=slurm\nGroup=root\n",
        "//n/s /s cifs uid=1000,forceuid",
        "authentication-token-webhook=true",
        "authorization:\n  mode: Webhook",
        "serviceAccountPrivateKeyFile: /etc/kubernetes/pki/sa.key",
        "E:ID_PART_ENTRY_TYPE=0657fd6d-a4ab-43c4-84e5-0933c84b4f4f",  # GPT's type of swap, the same on every disk
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


UNIT = "/etc/systemd/system/kubelet.service.d/20-local.conf"
DEFAULTS = "/etc/default/kubelet"
RANCHER = "/etc/rancher/k3s/config.yaml"
KUBELET = "/var/lib/kubelet/config.yaml"


@pytest.mark.parametrize(
    ("path", "text", "secret"),
    [
        ("/sys/class/dmi/id/product_serial", "CZ12345\n", "CZ12345"),
        ("/run/udev/data/b259:1", "S:disk/by-id/nvme-S4EV\nE:ID_MODEL=x\n", "S4EV"),
        ("/var/lib/dpkg/status", "Package: acme-agent\nVersion: 1\n\nPackage: kubelet\nVersion: 1.34.1\n", "acme"),
        ("/etc/containerd/config.toml", '[x."registry.corp"]\n  password = "open"\n', "open"),
        ("/etc/containerd/config.toml", '[x."registry.corp"]\n  password = "open"\n', "registry.corp"),
        (UNIT, '[Service]\nEnvironment="A=b secret1" C=d2\n', "secret1"),
        (UNIT, '[Service]\nEnvironment="A=b" \\\n  C=d2\n', "d2"),
        (UNIT, "[Service]\nEnvironment=A=b \\\n# why\n ; why\n  C=d2 \\\n#\n D=e3\n", "d2"),
        (UNIT, "[Service]\nEnvironment=A=b \\\n# why\n ; why\n  C=d2 \\\n#\n D=e3\n", "e3"),
        (UNIT, "#Environment=OLD=value9\n", "value9"),
        (UNIT, "ExecStart=/usr/bin/kubelet --hostname-override=node-seven --v=2", "node-seven"),
        (UNIT, "ExecStart=/usr/bin/kubelet --node-labels rack=west", "west"),
        (UNIT, "ExecStart=/usr/local/bin/k3s agent --kubelet-arg=node-labels=rack=west", "west"),
        (UNIT, "ExecStart=/usr/local/bin/k3s agent --kubelet-arg 'node-labels=rack=west'", "west"),
        (UNIT, 'ExecStart="/usr/local/bin/numaspread" "--" "/opt/x" "--key" "k-777"', "k-777"),
        (DEFAULTS, 'KUBELET_EXTRA_ARGS="--node-ip=10.1.1.1 --provider-id=aws:///i-0abc"', "i-0abc"),
        (DEFAULTS, "http_proxy=proxy.corp:3128\n", "proxy.corp"),
        (DEFAULTS, "PROJECT=one \\\n  blue-harvest\n", "blue-harvest"),
        (DEFAULTS, "PROJECT=\"one\" 'two'blue-harvest\n", "blue-harvest"),
        ("/opt/kubelet-flags", 'EXTRA="--provider-id=i-0abc"\nREGION=corp-one\n', "i-0abc"),
        ("/opt/kubelet-flags", 'EXTRA="--provider-id=i-0abc"\nREGION=corp-one\n', "corp-one"),
        (RANCHER, "token: K10ab\n", "K10ab"),
        (RANCHER, "tls-san:\n  - api.corp\n", "api.corp"),
        (RANCHER, "'node-label': [rack=west]\n", "west"),
        (RANCHER, "server: api.corp\n", "api.corp"),
        (RANCHER, "kubelet-arg:\n- 'node-labels=rack=west'\n", "west"),
        (RANCHER, 'kubelet-arg:\n- "node-labels=rack=far west"\n', "west"),
        (RANCHER, "kubelet-arg+: node-labels=rack=west\n", "west"),
        (RANCHER, "kubelet-arg: [reserved-cpus=0, 'node-labels=rack=north,row=west']\n", "west"),
        (KUBELET, "clusterDomain: corp.local\n", "corp"),
        (KUBELET, '{"providerID": "aws:///i-0abc"}', "i-0abc"),
        (KUBELET, "staticPodURLHeader:\n  X-Corp:\n  - abc1\nport: 1\n", "abc1"),
        ("/etc/default/grub", 'GRUB_CMDLINE_LINUX="quiet luks=west isolcpus=2"\n', "west"),
        ("/boot/efi/EFI/redhat/grubenv", "kernelopts=root=/dev/mapper/west ro\n", "west"),
        ("/boot/grub/grub.cfg", 'set tuned_params="luks=west"\n', "west"),
        ("/var/lib/gpufleet/kernel_arguments.json", '{"displaced": ["luks=west"]}', "west"),
        ("/etc/tuned/prof/tuned.conf", "cmdline_x=+luks=west\n", "west"),
    ],
)
def test_what_we_do_not_know_stays_at_home(path, text, secret):
    assert secret not in anonymous(path, text, ANONYMISER)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/var/lib/dpkg/status", "Package: kubelet\nStatus: install ok installed\nVersion: 1.34.1-1.1\n\n"),
        ("/etc/containerd/config.toml", 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'),
        (UNIT, '[Service]\nEnvironment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml" PATH=/bin\nEnvironmentFile=-/etc/x\n'),
        (UNIT, "ExecStart=/usr/bin/kubelet $KUBELET_CONFIG_ARGS --fail-swap-on=false --config-dir /etc/k --v=2 \\\n  --max-pods=64\n"),
        (UNIT, "ExecStart=/usr/bin/python3 -I /usr/local/lib/gpufleet/irq_affinity.pyz --if-changed /etc/gpufleet/irq.json\n"),
        (DEFAULTS, "IRQBALANCE_BANNED_CPULIST=2-3\nIRQBALANCE_ARGS=--policyscript=/x\n"),
        (RANCHER, "data-dir: /data/k3s\nkubelet-arg:\n- cpu-manager-policy=static\n- 'reserved-cpus=0,4'\n"),
        (RANCHER, "kubelet-arg+: [reserved-cpus=0, cpu-manager-policy=static]  # x\n"),
        (KUBELET, "authentication:\n  webhook:\n    cacheTTL: 0s\nevictionHard:\n  memory.available: 100Mi\nreservedSystemCPUs: 0,96\n"),
        ("/boot/grub2/grubenv", "saved_entry=ostree-2\nkernelopts=root=/dev/vda2 ro isolcpus=2-3\n"),
        ("/boot/config-6.8", 'CONFIG_HZ=1000\nCONFIG_LOCALVERSION="-x"\nCONFIG_SECRETMEM=y\n'),
        ("/usr/lib/modules/6.8/config", "CONFIG_HZ=1000\nCONFIG_NO_HZ_FULL=y\n"),
        ("/etc/tuned/prof/tuned.conf", "[sysctl]\nvm.swappiness=10\ngovernor=performance\n"),
        ("/etc/sysctl.d/10-x.conf", "vm.swappiness=10\nkernel.core_pattern = |/x %p\n"),
        ("/etc/fstab", "UUID=0d0a3f8e-12ab LABEL=root /dev/vda2 none swap sw 0 0\n"),
    ],
)
def test_what_we_read_comes_home(path, text):
    assert anonymous(path, text, ANONYMISER) == text
