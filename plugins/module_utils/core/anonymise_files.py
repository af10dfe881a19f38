# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What of a file may leave its node, by the format that its path tells.

Where anybody may write anything, what we know is what stays: of some files the parts that our readers take, in others the values of
settings that they know. The names of other settings stay, so that a person sees what was there.
"""

from __future__ import annotations

import posixpath
import re
from typing import Iterator, Match

from . import containerd
from .anonymise import Anonymiser
from .boot import RECORD
from .kubelet_fields import FLAGS

# Files that are nothing but one serial number.
_SERIALS = frozenset(("serial", "serial_number", "product_serial", "board_serial", "chassis_serial", "product_uuid", "wwid"))

# By path: the parts of a file that our readers take. The rest stays at home.
_EXCERPTS = (
    (re.compile(r"/run/udev/data/"), re.compile(r"^E:ID_PART_ENTRY_TYPE=.*\n?", re.MULTILINE)),
    (re.compile(r"/var/lib/dpkg/status\Z"), re.compile(r"^Package: (?:kubelet|containerd(?:\.io)?)\n(?:.+\n)*\n?", re.MULTILINE)),
)
_CONTAINERD = re.compile(r".*\.toml\Z")

_ARGUMENTS = re.compile(r"/proc/cmdline\Z|/boot/|/etc/default/grub|/etc/kernel/|/etc/tuned/bootcmdline\Z|%s\Z" % re.escape(RECORD))
_TUNED = re.compile(r".*/tuned\.conf\Z")
_TUNED_ARGUMENTS = re.compile(r"^[ \t]*cmdline\w*[ \t]*=.*$", re.MULTILINE)

_UNIT = re.compile(r"(?:/etc|/run|/usr/lib|/usr/local/lib|/lib)/systemd/.*(?<!\.env)\Z")
_RANCHER = re.compile(r"/etc/rancher/.*\.ya?ml\Z")
_ENVIRONMENT_FILE = re.compile(r"/etc/(?:default|sysconfig)/|.*\.env\Z")
_NOT_SETTINGS = re.compile(r"/run/|(?:/usr)?/lib/modules/|/etc/fstab\Z|/etc/udev/|/etc/gpufleet/|/var/lib/gpufleet/")

# Variables whose values we read or write.
_VARIABLES = ("KUBELET_", "IRQBALANCE_", "OMP_", "TCMALLOC_", "MALLOC_CONF=", "LD_PRELOAD=", "PATH=")
_VALUE = r"(?P<value>(?=[^\n])(?:\"(?:[^\"\\]|\\.)*\"|'[^']*')*(?:[^\\\n]|\\(?:.|\Z))*)"  # quoted parts, then bare text
_ASSIGNMENT = r"(?P<name>^[ \t]*[#;]?[ \t]*(?:export[ \t]+)?(?P<variable>%s)=)" + _VALUE
_ANY_ASSIGNMENT = re.compile(_ASSIGNMENT % r"[A-Za-z_]\w*", re.MULTILINE | re.DOTALL)
_CAPITAL_ASSIGNMENT = re.compile(_ASSIGNMENT % r"[A-Z_][A-Z0-9_]*", re.MULTILINE | re.DOTALL)
_ENVIRONMENT = re.compile(r"(?P<name>^[ \t]*[#;]?[ \t]*Environment=)(?P<value>(?:.*\\\n(?:[ \t]*[#;].*\n)*)*.*)", re.MULTILINE)
_WORD = re.compile(r"(?P<name>(?P<quote>[\"'])?(?P<variable>[A-Za-z_]\w*)=)(?P<value>(?(quote)(?:[^\"'\\]|\\.)*|\S+))")

# Flags whose values we read or write, and those that say only where kubelet finds its files.
_FLAGS = frozenset(FLAGS) | frozenset(
    """
    config config-dir root-dir data-dir container-runtime-endpoint container-runtime kubeconfig bootstrap-kubeconfig
    policyscript banmod hintpolicy powerthresh deepestcache mode nodes best-effort pool reserved if-changed
    """.split()
)
# --name=value, --name value, and what k3s and RKE2 pass on: --kubelet-arg=name=value.
_FLAG = re.compile(
    r"""(?P<name>(?<![\w-])(?:--|(?<=kubelet-arg[= ])|(?<=kubelet-arg[= ][\"']))(?P<flag>(?!kubelet-arg\b)[A-Za-z][\w.-]*)
    (?:=|[\"']?[ \t]+)[\"']?)(?P<value>[^\s\"'\\-][^\s\"']*)""",
    re.VERBOSE,
)
_RANCHER_KEYS = ("data-dir", "kubelet-arg", "kubelet-arg+")
_YAML_KEY = re.compile(r"[\"']?(?P<key>[\w.-]+\+?)[\"']?:")
_YAML_VALUE = re.compile(r"(?P<name>[ \t]*(?:-[ \t]+)?(?:[\"']?[\w.-]+\+?[\"']?:[ \t]+)?)(?P<value>\S[^\n]*)")
# A flag among those that are passed on: an item of a list, alone behind its key, or inside of [].
_PASSED_FLAG = re.compile(
    r"""(?P<name>(?:^[ \t]*(?:-|[\w"'+-]+:)[ \t]+|(?P<flow>[\[,])[ \t]*)(?P<quote>["'])?(?:--)?(?P<flag>[A-Za-z][\w.-]*)=)
    (?P<value>(?(quote)[^"'\n]+|(?(flow)[^\s"',\]]+|[^\s"']+)))""",
    re.VERBOSE,
)
# Fields of kubelet's configuration that say whose node it is; all others are public settings.
_KUBELET = re.compile(r"(?P<name>[\"']?(?:clusterDomain|providerID|staticPodURL)[\"']?[ \t]*:[ \t]*[\"']?)(?P<value>[^\s\"',]+)")
_STATIC_POD_HEADER = re.compile(r"(?m)^(?P<indent>[ \t]*)(?P<name>[\"']?staticPodURLHeader[\"']?:).*\n(?:(?P=indent)[ \t-].*\n?)*")


def anonymous(path: str, text: str, anonymiser: Anonymiser) -> str:
    """The text of the file at ``path`` as it may leave the node."""
    if posixpath.basename(path) in _SERIALS:
        return anonymiser.word("serial", text.strip()) + "\n"
    for where, kept in _EXCERPTS:
        if where.match(path):
            return anonymiser.text("".join(match.group() for match in kept.finditer(text)))
    if _CONTAINERD.match(path):
        return anonymiser.text(containerd.excerpt(text))
    if _ARGUMENTS.match(path):
        return anonymiser.arguments(text)
    if path.startswith(("/proc/", "/sys/")):
        return anonymiser.kernel_text(text)
    if _TUNED.match(path):
        text = _TUNED_ARGUMENTS.sub(lambda match: _after_equals(match, anonymiser), text)
    return anonymiser.text(text if _NOT_SETTINGS.match(path) else _settings(path, text, anonymiser))


def _after_equals(match: Match[str], anonymiser: Anonymiser) -> str:
    name, equals, line = match.group().partition("=")
    return name + equals + anonymiser.arguments(line)


def _settings(path: str, text: str, anonymiser: Anonymiser) -> str:
    """Variables of an environment, flags, and what k3s and RKE2 are configured by, each without the values that we don't know."""

    def variable(match: Match[str]) -> str:
        value = match.group("value")
        known = (match.group("variable") + "=").startswith(_VARIABLES) or value.lstrip("\"'").startswith("-")  # a list of flags
        return match.group() if known else match.group("name") + _quoted_like(value, anonymiser)

    def flag(match: Match[str]) -> str:
        return match.group() if match.group("flag").replace("_", "-") in _FLAGS else anonymiser.named("value", match)

    if _UNIT.match(path):
        text = _ENVIRONMENT.sub(lambda match: match.group("name") + _WORD.sub(variable, match.group("value")), text)
    else:
        text = (_ANY_ASSIGNMENT if _ENVIRONMENT_FILE.match(path) else _CAPITAL_ASSIGNMENT).sub(variable, text)
    if _RANCHER.match(path):
        text = "".join(_PASSED_FLAG.sub(flag, line) for line in _rancher_lines(text, anonymiser))
    text = _STATIC_POD_HEADER.sub(r"\g<indent>\g<name> {}\n", text)
    return _KUBELET.sub(lambda match: anonymiser.named("value", match), _FLAG.sub(flag, text))


def _quoted_like(value: str, anonymiser: Anonymiser) -> str:
    quote = value[0] if value[0] in "\"'" and value[-1] == value[0] and len(value) > 1 else ""
    return quote + anonymiser.word("value", value.strip(quote) if quote else value) + quote


def _rancher_lines(text: str, anonymiser: Anonymiser) -> Iterator[str]:
    """The lines, with the values of keys that aren't ours to know replaced, lists and mappings below them too."""
    known = True
    for line in text.splitlines(keepends=True):
        key = _YAML_KEY.match(line)
        known = key.group("key") in _RANCHER_KEYS if key else known
        if known or line.startswith("#") or line.rstrip().endswith(":"):
            yield line
        else:
            yield _YAML_VALUE.sub(lambda match: anonymiser.named("value", match), line)
