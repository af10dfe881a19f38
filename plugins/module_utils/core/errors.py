# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Domain errors: one sentence what is wrong, one how to mend it."""

from __future__ import annotations

from typing import Iterable, Optional


class GpufleetError(Exception):
    """A refusal that the user can act on.

    ``problem`` says what was given and why it can't be; ``remedy`` says what to give or do instead.
    """

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__("%s %s" % (problem, remedy))
        self.problem = problem
        self.remedy = remedy


class InvalidInput(GpufleetError):
    """Something the user wrote can't be meant."""


class UnreadableRoot(GpufleetError):
    """A root lacks what the reader can't do without, or holds a file that can't be parsed."""


class CommandFailed(GpufleetError):
    """A command on the node exited non-zero; the message carries its status and last lines of output."""


class WriteFailed(GpufleetError):
    """A file or kernel value couldn't be written, or reads back as something else."""


def unknown_name(what: str, given: str, known: Iterable[str]) -> InvalidInput:
    """The refusal of a misspelt ``what``, with the nearest known name as the remedy."""
    import difflib  # here, since every module carries this file and few runs end in this refusal

    names = sorted(known)
    near: Optional[str] = next(iter(difflib.get_close_matches(given, names, n=1, cutoff=0.6)), None)
    remedy = 'Did you mean "%s"?' % near if near else "Known are: %s." % ", ".join(names)
    return InvalidInput('"%s" is not a known %s.' % (given, what), remedy)
