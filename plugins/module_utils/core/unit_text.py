# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The text of systemd units: sections, and words that reach a command byte for byte.

systemd reads a value in three steps: quotes and C escapes (systemd.syntax(7)), specifiers such as %h (systemd.unit(5)), and on a command
line variables such as ${HOME} at each start (systemd.service(5), "COMMAND LINES"). So a word is written in double quotes, with the
characters that one of the steps would read doubled or escaped.
"""

from __future__ import annotations

from typing import Iterable, Mapping, Optional, Sequence, Tuple

from .errors import InvalidInput
from .systemd import MARK

_LONGEST_LINE = 1 << 20  # systemd reads no longer line from a unit file
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t"}

Section = Tuple[str, Sequence[str]]


def word(text: str, what: str) -> str:
    """One quoted word, its specifiers undone.

    :raises InvalidInput: a NUL or text that isn't UTF-8, which no unit file can hold
    """
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
        raise InvalidInput("%s holds a NUL, or bytes that aren't UTF-8." % what, "A unit file is UTF-8 text: give such data in a file.")
    escaped = "".join(_ESCAPES.get(c) or ("\\x%02x" % ord(c) if c < " " or c == "\x7f" else c) for c in text)
    return '"%s"' % escaped.replace("%", "%%")


def argument(text: str, what: str) -> str:
    """One word of a command line, after the program: its variables undone too."""
    return word(text, what).replace("$", "$$")


def exec_start(words: Iterable[str], what: str) -> str:
    """``ExecStart=`` of a program and its arguments.

    :raises InvalidInput: no absolute path of a program, or a line longer than systemd reads
    """
    program, *arguments = words
    if not program.startswith("/") or "$" in program:
        raise InvalidInput('%s starts "%s".' % (what, program), 'Give the program\'s absolute path, without "$".')
    line = "ExecStart=" + " ".join([word(program, what), *(argument(text, what) for text in arguments)])
    if len(line.encode()) >= _LONGEST_LINE:
        problem = "The command of %s has %d bytes, more than systemd reads." % (what, len(line.encode()))
        raise InvalidInput(problem, "Put arguments into a file.")
    return line


def environment(variables: Mapping[str, str], what: str) -> Sequence[str]:
    """``Environment=`` lines, by name. A ``$`` means nothing there."""
    return ["Environment=%s" % word("%s=%s" % item, what) for item in sorted(variables.items())]


def text_value(text: str, what: str) -> str:
    """A value that runs to the end of its line: a description, a path.

    :raises InvalidInput: a line break, blanks at an end, a trailing backslash
    """
    if text != text.strip() or text.endswith("\\") or any(c < " " or c == "\x7f" or "\ud800" <= c <= "\udfff" for c in text):
        raise InvalidInput('%s is "%s", which is not one line of text.' % (what, text), "Give one line, without blanks around it.")
    return text.replace("%", "%%")


def unit(*sections: Optional[Section], header: str = MARK) -> str:
    """A unit file."""
    return header + "\n".join("[%s]\n%s\n" % (name, "\n".join(lines)) for name, lines in filter(None, sections))
