# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GRUB as grub-mkconfig configures it: what /etc/default/grub and its drop-ins assign, our part of them, and the grub.cfg that results.

grub-mkconfig sources /etc/default/grub and then, on Debian and Ubuntu, /etc/default/grub.d/*.cfg in the shell's order, all under
``set -e``. Normal entries get "$GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT", recovery entries the first alone: ours go to the second,
so that a node which doesn't boot with them still has entries that do.
"""

from __future__ import annotations

import posixpath
import re
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from . import kernel_args

DEFAULTS = "/etc/default/grub"
DROP_INS = "/etc/default/grub.d"
VARIABLES = ("GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT")

# Our drop-in -------------------------------------------------------------------------------------------------------------

_OURS = re.compile(r"z{3,}-gpufleet\.cfg\Z")
_MOST_Z = 64


def is_ours(path: str) -> bool:
    """True for a drop-in of ours, under whichever of its names."""
    return bool(_OURS.match(posixpath.basename(path)))


def drop_in(names: Iterable[str]) -> str:
    """Our drop-in's path: with as few z (at least three) as make it sort after every other name, in C and in a language's order.

    A name that no z outdoes (it starts with ~ or a letter beyond ASCII) is left to ``assigned_after`` to report.
    """
    others = [name for name in names if not is_ours(name)]
    for count in range(3, _MOST_Z):
        name = "z" * count + "-gpufleet.cfg"
        if all(_sorts_before(other, name) for other in others):
            return posixpath.join(DROP_INS, name)
    return posixpath.join(DROP_INS, "zzz-gpufleet.cfg")


def _sorts_before(other: str, ours: str) -> bool:
    """In the order of bytes, and in that of most languages: letters and digits only, regardless of case."""
    return other.isascii() and other < ours and _letters(other) < _letters(ours)


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def assigned_after(drop_ins: Mapping[str, str], ours: str) -> List[str]:
    """Paths of drop-ins that are sourced after ours (or may be, in some language) and assign one of the variables."""
    return [
        path
        for path, text in drop_ins.items()
        if not is_ours(path)
        and not _sorts_before(posixpath.basename(path), posixpath.basename(ours))
        and any(name in VARIABLES for name in source(text, {}))
    ]


_HEADER = """\
# Kernel arguments of gpufleet.node, written by its module kernel_args and removed by it when none are wanted.
#
# Of several isolcpus, nohz_full or hugepagesz arguments the kernel takes the first. So arguments with our names are first taken
# out of both variables, whoever put them there, and then ours are appended to one.

"""

_FILTER = """\
# Split the line $1 into gpufleet_kept, the arguments that aren't ours, and gpufleet_init, what follows " -- ".
gpufleet_split() {
  gpufleet_line=$1
  gpufleet_kept=
  gpufleet_init=
  while [ -n "$gpufleet_line" ]; do
    case $gpufleet_line in
      [[:space:]]*)
        gpufleet_line=${gpufleet_line#?}
        continue
        ;;
    esac
    # One argument: up to a blank outside double quotes.
    gpufleet_word=
    while :; do
      gpufleet_part=${gpufleet_line%%[[:space:]\\"]*}
      gpufleet_word=$gpufleet_word$gpufleet_part
      gpufleet_line=${gpufleet_line#"$gpufleet_part"}
      case $gpufleet_line in
        \\"*) ;;
        *) break ;;
      esac
      gpufleet_line=${gpufleet_line#?}
      gpufleet_part=${gpufleet_line%%\\"*}
      gpufleet_word=$gpufleet_word\\"$gpufleet_part
      gpufleet_line=${gpufleet_line#"$gpufleet_part"}
      case $gpufleet_line in
        \\"*)
          gpufleet_word=$gpufleet_word\\"
          gpufleet_line=${gpufleet_line#?}
          ;;
      esac
    done
    case $gpufleet_word in
      --)
        gpufleet_init=" --$gpufleet_line"
        break
        ;;
    esac
    case ${gpufleet_word#\\"} in
      @patterns@) ;;
      *) gpufleet_kept="$gpufleet_kept${gpufleet_kept:+ }$gpufleet_word" ;;
    esac
  done
}

gpufleet_split "${GRUB_CMDLINE_LINUX-}"
GRUB_CMDLINE_LINUX=$gpufleet_kept$gpufleet_init
gpufleet_split "${GRUB_CMDLINE_LINUX_DEFAULT-}"
GRUB_CMDLINE_LINUX_DEFAULT="$gpufleet_kept${gpufleet_kept:+ }@arguments@$gpufleet_init"

unset gpufleet_line gpufleet_kept gpufleet_init gpufleet_word gpufleet_part
unset -f gpufleet_split
"""


def render(wanted: Sequence[str]) -> str:
    """Our drop-in: POSIX shell that grub-mkconfig sources, so that it also holds for what others' files say tomorrow."""
    patterns = []
    for name in sorted(kernel_args.keys_of(wanted)):
        pattern = name.replace("_", "[-_]")
        patterns += [pattern, pattern + '[=\\"]*']
    return _HEADER + _FILTER.replace("@patterns@", " | ".join(patterns)).replace("@arguments@", " ".join(wanted))


# Where no drop-in is sourced, the same text is a block at the end of /etc/default/grub.
_BEGIN, _END = "# begin gpufleet.node\n", "# end gpufleet.node\n"
_BLOCK = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END), re.DOTALL)


def without_block(text: str) -> str:
    """/etc/default/grub less our block."""
    return _BLOCK.sub("", text)


def with_block(text: str, wanted: Sequence[str]) -> str:
    """/etc/default/grub with our block at its end; without one when nothing is wanted."""
    rest = without_block(text)
    if not wanted:
        return rest
    return rest + ("" if not rest or rest.endswith("\n") else "\n") + _BEGIN + render(wanted) + _END


# What shell files assign ---------------------------------------------------------------------------------------------------

Variables = Dict[str, Optional[str]]  # None: assigned, but only a shell could say what

_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_PARAMETER = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-+])([^{}]*))?\})")
_OPENING, _CLOSING = ("if", "case", "for", "while", "until"), ("fi", "esac", "done")
_TRANSPARENT = ("then", "else", "elif", "do", "{", "}", "!", "export", "readonly", "local", *_OPENING, *_CLOSING)


def source(text: str, variables: Mapping[str, Optional[str]]) -> Variables:
    """``variables`` after a shell has sourced ``text``, as far as plain assignments go.

    A value with a command substitution, and any assigned inside if, case or a loop, is None.
    """
    known: Variables = dict(variables)
    position, depth = 0, 0
    assigning, conditional = True, False
    while position < len(text):
        char = text[position]
        if char in "\n;&|()":
            conditional = text.startswith(("&&", "||"), position) or (conditional and char not in "\n;")
            position += 1 + text.startswith(("&&", "||"), position)
            assigning = True
        elif char in " \t\r<>":
            position += 1
        elif char == "#":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end
        elif text.startswith("\\\n", position):
            position += 2
        else:
            name = _NAME.match(text, position) if assigning else None
            start = name.end() if name else position
            position, value = _word(text, start, known)
            if name:
                before = known.get(name.group(1), "") if name.group(2) else ""
                certain = value is not None and before is not None and not depth and not conditional
                known[name.group(1)] = (before or "") + (value or "") if certain else None
            else:
                word = text[start:position]
                depth += assigning * ((word in _OPENING) - (word in _CLOSING))
                assigning = assigning and word in _TRANSPARENT
    return known


def _word(text: str, position: int, known: Mapping[str, Optional[str]]) -> Tuple[int, Optional[str]]:
    """The end of the shell word at ``position``, and its value: None when it has a command substitution."""
    parts: List[str] = []
    plain, quoted = True, False
    while position < len(text):
        char = text[position]
        if not quoted and char in " \t\r\n;&|()<>":
            break
        position += 1
        if char == '"':
            quoted = not quoted
        elif char == "'" and not quoted:
            end = text.find("'", position)
            end = len(text) if end < 0 else end
            parts.append(text[position:end])
            position = end + 1
        elif char == "\\" and position < len(text):
            escaped = text[position]
            position += 1
            if escaped != "\n":
                parts.append(escaped if not quoted or escaped in '$`"\\' else "\\" + escaped)
        elif char == "`" or text.startswith("$(", position - 1):
            position = _end_of_substitution(text, position - 1)
            plain = False
        elif char == "$":
            match = _PARAMETER.match(text, position - 1)
            if match:
                position = match.end()
                value = _parameter(match, known)
                plain = plain and value is not None
                parts.append(value or "")
            elif text.startswith("{", position):
                end = text.find("}", position)
                position = len(text) if end < 0 else end + 1
                plain = False
            else:
                parts.append(char)
        else:
            parts.append(char)
    return position, "".join(parts) if plain else None


def _parameter(match: re.Match[str], known: Mapping[str, Optional[str]]) -> Optional[str]:
    """The value of $NAME, ${NAME}, ${NAME:-WORD} or ${NAME:+WORD}; None when it can't be told."""
    name, operator, word = match.group(1) or match.group(2), match.group(3) or "", match.group(4) or ""
    value = known.get(name, "")
    if not operator:
        return value
    if value is None:
        return None
    given = bool(value) if operator.startswith(":") else name in known
    if given == operator.endswith("-"):
        return value if given else ""
    return _word('"%s"' % word, 0, known)[1]


def _end_of_substitution(text: str, position: int) -> int:
    if text[position] == "`":
        end = text.find("`", position + 1)
        return len(text) if end < 0 else end + 1
    depth = 0
    for end in range(position + 1, len(text)):
        depth += (text[end] == "(") - (text[end] == ")")
        if depth == 0:
            return end + 1
    return len(text)


def command_line(files: Iterable[str]) -> Optional[List[str]]:
    """The tokens that these files, sourced in this order, give to normal entries; None when only a shell could say."""
    variables: Variables = {}
    for text in files:
        variables = source(text, variables)
    values = [variables.get(name, "") for name in VARIABLES]
    return None if None in values else kernel_args.split(" ".join(value or "" for value in values))


# grub.cfg ------------------------------------------------------------------------------------------------------------------

_SECTION = re.compile(r"### (BEGIN|END) (\S+) ###")
_RECOVERY = re.compile(r"-recovery-|\(recovery mode\)")
_LINUX = re.compile(r"(?:linux|linuxefi|linux16)[ \t]+\S*/?(?:vmlinu|Image|kernel)\S*(.*)")
_SET = re.compile(r"set ([a-z_]+)=\"(.*)\"\Z")


def normal_entries(grub_cfg: str) -> List[List[str]]:
    """The arguments of each entry that grub-mkconfig made for this system's kernels, other than recovery entries.

    Entries of other scripts (another system's, or written by hand) don't follow /etc/default/grub.
    """
    entries = []
    section, recovery = "", False
    for line in (raw.strip() for raw in grub_cfg.splitlines()):
        mark = _SECTION.match(line)
        if mark:
            section = mark.group(2) if mark.group(1) == "BEGIN" else ""
        elif line.startswith("menuentry "):
            recovery = bool(_RECOVERY.search(line))
        elif not recovery and (not section or "10_linux" in section):
            linux = _LINUX.match(line)
            if linux:
                entries.append(kernel_args.split(linux.group(1)))
    return [entry for entry in entries if not {"single", "recovery"} & set(entry)]


def variable(grub_cfg: str, name: str) -> str:
    """What grub.cfg sets a variable to; empty when it doesn't."""
    found = [match.group(2) for match in map(_SET.match, map(str.strip, grub_cfg.splitlines())) if match and match.group(1) == name]
    return found[-1] if found else ""
