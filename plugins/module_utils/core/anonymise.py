# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Replace what identifies a node or its people, consistently within one capture, keeping the shape that parsers rely on.

The same value always gets the same replacement; without the capture's secret key nobody can go back or guess.
Replacements lie in the ranges set aside for documentation (RFC 5737, RFC 3849) or are locally administered (MAC).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from typing import Callable, Iterable, Sequence, Tuple

from .swap import GPT_SWAP

_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
# InfiniBand GUIDs and link-layer addresses have more pairs.
_LONG_MAC = re.compile(r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{2}:){7,}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
_UUID = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f-])")
_MACHINE_ID = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])")
_IPV4 = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f]*(?![\w:])")
# As systemd escapes it in a unit's name, and as udev names an interface by its address.
_ESCAPED_UUID = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?:\\x2d[0-9A-Fa-f]{4}){3}\\x2d[0-9A-Fa-f]{12}(?![0-9A-Fa-f])")
_MAC_NAME = re.compile(r"(?<=enx)[0-9a-f]{12}(?![0-9a-f])")
# In any syntax: name=value, name: value, "name": ["value"], and a header's list of one.
_CREDENTIAL = re.compile(
    r"""(?ix) (?P<name>
    (?: (?:passw(?:or)?d | passphrase | secret | token | credential | cookie | (?:api|access|private|account) [_-]? key)
        (?! [\w.-]* (?:file|path|dir|webhook|ttl)) [\w.-]* | \b(?:pass|username|authorization|auth) )
    ["']? [ \t]* [:=] [ \t]* (?:\n[ \t]*-[ \t]*)? (?P<quote>["'])? (?:(?:bearer|basic)[ \t]+)? )
    (?P<value> (?(quote) (?:(?!(?P=quote))[^\\\n] | \\.)+ | (?:\[[^\]\n]*\] | \{[^}\n]*\} | [^\s,;"']+) ))"""
)
_GRUB_PASSWORD = re.compile(r"(?<=grub\.pbkdf2\.)\S+")
# What tells nothing wherever it stands: a truth, a number with or without a unit, a duration, a reference to a variable.
_PLAIN_VALUE = re.compile(r"(?:true|false|yes|no|[ynm]|none|-?\d[\d.,-]*(?:[KMGT]i?B?|%)?|(?:\d+(?:h|m|s|ms))+|[$%].*)\Z", re.IGNORECASE)
_URL_HOST = re.compile(r"(?<=://)[^/\s\"'<>,;)]+")
# A folder below /home may be a domain's, with those of its people.
_HOME = re.compile(r"(?<=/home/)([^/\s\"':;,]+)(?:/([^/\s\"':;,]+))?")
_MOUNT_USER = re.compile(r"\b(?P<name>(?:user|uid|gid)=)(?P<value>[A-Za-z_][\w.@-]*)")
_REPLACED = re.compile(r"(?:value|host|user|serial)-[0-9a-f]{8}\Z")
_UNIT_USER = re.compile(r"(?m)^(?P<name>[ \t]*(?:User|Group|SupplementaryGroups)=)(?P<value>[A-Za-z_][\w.@\\-]*)")
_SERIAL_LINE = re.compile(r"(?im)^(\s*serial(?:[ _-]?(?:number|no))?\s*[:=]\s*)(\S.*)$")

# Kernel arguments whose values say nothing about who runs the node.
KNOWN_ARGUMENTS = frozenset(
    """
    BOOT_IMAGE amd_iommu amd_pstate apparmor audit biosdevname cgroup_enable cgroup_no_v1 clocksource console consoleblank crashkernel
    default_hugepagesz efi enforcing fsck.mode hugepages hugepagesz hugetlb_cma idle init_on_alloc initcall_blacklist
    intel_idle.max_cstate intel_iommu intel_pstate iommu iommu.passthrough iommu.strict irqaffinity isolcpus kthread_cpus
    libata.allow_tpm loglevel lsm mce mem mitigations module_blacklist net.ifnames nmi_watchdog nohz nohz_full nouveau.modeset numa
    numa_balancing nvidia-drm.modeset nvme_core.io_timeout panic pci pcie_aspm pcie_ports preempt printk.devkmsg processor.max_cstate
    rcu_nocb_poll rcu_nocbs rcupdate.rcu_expedited rd.driver.blacklist rootdelay rootflags rootfstype security selinux skew_tick
    spectre_v2 swapaccount swiotlb systemd.swap systemd.unified_cgroup_hierarchy transparent_hugepage tsc vconsole.keymap vga video
    zswap.enabled
    """.split()
)
# A value that names a device rather than a person or place is kept: root=/dev/vda2, resume=/dev/nvme0n1p3.
_PLAIN_DEVICE = re.compile(r"/dev/(?:[hsv]d[a-z]+\d*|nvme\d+n\d+(?:p\d+)?|mmcblk\d+(?:p\d+)?|md\d+|ttyS\d+)\Z")
# Variables whose values are arguments themselves are looked into; so is a kernel's configuration, which may hold its command line.
_TOKEN = re.compile(
    r"""(?<![\w.-])(?!(?:GRUB_\w*|CONFIG_\w*|(?:default_)?kernelopts|saved_entry|tuned_params|TUNED_BOOT_CMDLINE)=)
    (?P<key>[A-Za-z][\w.-]*)=(?P<value>\"[^\"\n]*\"|[^\s\"']+)""",
    re.VERBOSE,
)

# Accounts that images come with: their names stand in version strings and mean nobody.
IMAGE_ACCOUNTS = frozenset(
    """
    ubuntu debian centos rocky almalinux rhel fedora ec2-user cloud-user azureuser opc core root nobody admin user
    """.split()
)


_Replacement = Tuple["re.Pattern[str]", Callable[["re.Match[str]"], str]]


def _replaced(text: str, replacements: Sequence[_Replacement]) -> str:
    for pattern, replacement in replacements:
        text = pattern.sub(replacement, text)
    return text


class Anonymiser:
    """Replaces identifying values in texts. ``host_names`` and ``users`` are replaced as whole words, ``accounts`` of the system never."""

    def __init__(self, key: bytes, host_names: Iterable[str] = (), users: Iterable[str] = (), accounts: Iterable[str] = ()) -> None:
        self._key = key
        self._accounts = IMAGE_ACCOUNTS.union(accounts)
        hosts = {name for name in host_names if name and name not in ("localhost", "(none)")}
        hosts |= {name.partition(".")[0] for name in hosts}
        self._of_kernel: Sequence[_Replacement] = (
            (_UUID, lambda match: self._uuid(match.group())),
            (_ESCAPED_UUID, lambda match: self._uuid(match.group().replace("\\x2d", "-")).replace("-", "\\x2d")),
            (_MACHINE_ID, lambda match: self._digest("id", match.group())[:32]),
            (_MAC_NAME, lambda match: self._mac(match.group()).replace(":", "")),
            (_LONG_MAC, lambda match: self._hex_pairs(match.group())),
            (_MAC, lambda match: self._mac(match.group())),
            (_IPV4, lambda match: self._ip(match.group())),
            (_IPV6, lambda match: self._ip(match.group())),
            (_SERIAL_LINE, lambda match: match.group(1) + self.word("serial", match.group(2))),
            (self._whole_words(hosts), lambda match: self.word("host", match.group())),
            (self._whole_words(set(users) - self._accounts), lambda match: self.word("user", match.group())),
        )
        self._of_people: Sequence[_Replacement] = (
            (_CREDENTIAL, lambda match: self.named("value", match)),
            (_GRUB_PASSWORD, lambda match: self.word("value", match.group())),
            (_URL_HOST, lambda match: self.word("host", match.group())),
            (_HOME, lambda match: "/".join(self._user(name) for name in match.groups() if name)),
            (_MOUNT_USER, lambda match: match.group("name") + self._user(match.group("value"))),
            (_UNIT_USER, lambda match: match.group("name") + self._user(match.group("value"))),
        )

    @staticmethod
    def _whole_words(words: Iterable[str]) -> re.Pattern[str]:
        alternatives = "|".join(re.escape(word) for word in sorted(words, key=lambda word: (-len(word), word)))
        return re.compile(r"(?<![\w-])(?:%s)(?![\w-])" % alternatives if alternatives else r"(?!)")

    def text(self, text: str) -> str:
        """Any text with MAC and IP addresses, UUIDs, serial numbers, credentials, host and user names replaced."""
        return self.kernel_text(_replaced(text, self._of_people))

    def kernel_text(self, text: str) -> str:
        """A text of the kernel's making: what only people write isn't looked for in its long tables."""
        return _replaced(text, self._of_kernel)

    def arguments(self, text: str) -> str:
        """A text with kernel arguments: the values of keys we don't know are replaced as well as what ``text`` replaces."""

        def replaced(match: re.Match[str]) -> str:
            key, value = match.group("key"), match.group("value")
            if key in KNOWN_ARGUMENTS or _PLAIN_DEVICE.match(value):
                return match.group()
            prefix, _equals, rest = value.partition("=")
            if prefix in ("UUID", "PARTUUID") and rest:
                return match.group()  # keeps its shape, as any UUID does
            return "%s=%s" % (key, self.word("value", value))

        return self.text(_TOKEN.sub(replaced, text))

    def named(self, kind: str, match: re.Match[str]) -> str:
        """A value behind its name, the groups of a match: replaced, unless it tells nothing or is a replacement already."""
        name, value = match.group("name"), match.group("value")
        return name + (value if _PLAIN_VALUE.match(value) or _REPLACED.match(value) else self.word(kind, value))

    def _user(self, name: str) -> str:
        return name if name in self._accounts or _REPLACED.match(name) else self.word("user", name)

    def word(self, kind: str, value: str) -> str:
        """A replacement without a shape to keep: "host-1f0c9a2b"."""
        return "%s-%s" % (kind, self._digest(kind, value)[:8])

    def _digest(self, kind: str, value: str) -> str:
        return hmac.new(self._key, ("%s\0%s" % (kind, value)).encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()

    def _numbers(self, kind: str, value: str) -> Tuple[int, ...]:
        return tuple(bytes.fromhex(self._digest(kind, value)))

    def _uuid(self, value: str) -> str:
        if value.lower() == GPT_SWAP:  # a type, the same on every disk
            return value
        digits = self._digest("uuid", value.lower())
        return "-".join((digits[:8], digits[8:12], "4" + digits[13:16], "8" + digits[17:20], digits[20:32]))

    def _hex_pairs(self, value: str) -> str:
        numbers = self._numbers("guid", value.lower())
        return ":".join("%02x" % numbers[position % 32] for position in range(value.count(":") + 1))

    def _mac(self, value: str) -> str:
        if value.lower() in ("00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"):
            return value
        return "02:%02x:%02x:%02x:%02x:%02x" % self._numbers("mac", value.lower())[:5]

    def _ip(self, value: str) -> str:
        try:
            address = ipaddress.ip_address(value)
        except ValueError:  # a PCI address, a time of day
            return value
        if address.is_loopback or address.is_unspecified or value.startswith("255."):
            return value
        first, second = self._numbers("ip", address.exploded)[:2]
        return "198.51.100.%d" % (first or 1) if address.version == 4 else "2001:db8::%x:%x" % (first, second)
