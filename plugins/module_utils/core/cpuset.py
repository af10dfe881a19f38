# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CPU (and NUMA node) sets: one immutable type, every notation the kernel uses.

Notations: cpulist ("0-3,8", with the kernel's "0-31:2/8" stride form), hexadecimal mask in 32-bit groups
("00000000,000000ff", leading zeros and groups depend on nr_cpu_ids). Source: Documentation/admin-guide/kernel-parameters.rst,
section "cpu lists", and lib/bitmap.c.
"""

from __future__ import annotations

import re
from typing import Iterable, Iterator

from .errors import InvalidInput

_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+)/(\d+))?)?\Z", re.ASCII)
_MASK = re.compile(r"(?:0x)?[0-9a-fA-F]+(?:,[0-9a-fA-F]{1,8})*\Z")

# Linux' largest NR_CPUS is 8192 (x86-64 MAXSMP) and node ids stay below 1024; a larger number is a slip, not a machine.
MAX_CPU = 65535


class CpuSet:
    """An immutable set of non-negative CPU numbers, backed by one big integer (bit n = CPU n)."""

    __slots__ = ("_bits",)

    def __init__(self, cpus: Iterable[int] = ()) -> None:
        bits = 0
        for cpu in cpus:
            if cpu < 0:
                raise InvalidInput("CPU %d is negative." % cpu, "CPU numbers start at 0.")
            bits |= 1 << cpu
        self._bits = bits

    @classmethod
    def from_int(cls, bits: int) -> CpuSet:
        """The set whose member n is bit n of ``bits``."""
        new = cls.__new__(cls)
        new._bits = bits
        return new

    @classmethod
    def parse(cls, text: str) -> CpuSet:
        """Parse a cpulist; "" and "(null)" (what nohz_full reads when unset) are the empty set.

        :raises InvalidInput: malformed or reversed ranges, numbers above MAX_CPU
        """
        text = text.strip()
        if text in ("", "(null)"):
            return cls()
        bits = 0
        for part in text.split(","):
            match = _RANGE.match(part.strip())
            if not match:
                raise InvalidInput(
                    '"%s" in the CPU list "%s" is not a CPU or a range.' % (part.strip(), text[:200]), 'Write it like "0-3,8,10-11".'
                )
            first, last = int(match.group(1)), int(match.group(2) or match.group(1))
            if last < first:
                raise InvalidInput(
                    'The range "%s" in the CPU list "%s" runs backwards.' % (part.strip(), text[:200]), 'Write "%d-%d".' % (last, first)
                )
            if last > MAX_CPU:
                raise InvalidInput("CPU %d in the CPU list is larger than any Linux kernel has." % last, "Check the number for a slip.")
            if match.group(3):
                used, group = int(match.group(3)), int(match.group(4))
                if used == 0 or group == 0 or used > group:
                    raise InvalidInput(
                        'The stride in "%s" can\'t be.' % part.strip(), 'Write "first-last:used/group" with 0 < used <= group.'
                    )
                for start in range(first, last + 1, group):
                    width = min(used, last + 1 - start)
                    bits |= ((1 << width) - 1) << start
            else:
                bits |= ((1 << (last - first + 1)) - 1) << first
        return cls.from_int(bits)

    @classmethod
    def parse_mask(cls, text: str) -> CpuSet:
        """Parse a hexadecimal mask, comma-grouped or not; groups after the first are 32 bits wide. Line breaks are ignored.

        :raises InvalidInput: not hexadecimal
        """
        compact = "".join(text.split())
        if not _MASK.match(compact):
            raise InvalidInput('"%s" is not a CPU mask.' % text.strip()[:200], 'A mask is hexadecimal, like "00000000,000000ff".')
        first, *others = compact.split(",")
        bits = int(first, 16)
        for group in others:
            bits = bits << 32 | int(group, 16)
        return cls.from_int(bits)

    @property
    def bits(self) -> int:
        """The set as an integer."""
        return self._bits

    def to_list(self) -> str:
        """The canonical cpulist: ascending, ranges merged ("0-3,8"); the empty set is ""."""
        parts = []
        bits, base = self._bits, 0
        while bits:
            gap = (bits & -bits).bit_length() - 1
            bits >>= gap
            base += gap
            run = (~bits & (bits + 1)).bit_length() - 1
            parts.append(str(base) if run == 1 else "%d-%d" % (base, base + run - 1))
            bits >>= run
            base += run
        return ",".join(parts)

    def to_mask(self) -> str:
        """The mask as the kernel takes it: 32-bit groups of eight digits, the highest group first; the empty set is "00000000"."""
        digits = "%x" % self._bits
        digits = digits.zfill(-(-len(digits) // 8) * 8)
        return ",".join(digits[i : i + 8] for i in range(0, len(digits), 8))

    def __iter__(self) -> Iterator[int]:
        bits = self._bits
        while bits:
            low = bits & -bits
            yield low.bit_length() - 1
            bits ^= low

    def __len__(self) -> int:
        return bin(self._bits).count("1")

    def __bool__(self) -> bool:
        return self._bits != 0

    def __contains__(self, cpu: object) -> bool:
        return isinstance(cpu, int) and cpu >= 0 and bool(self._bits >> cpu & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuSet) and self._bits == other._bits

    def __hash__(self) -> int:
        return hash(self._bits)

    def __or__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_int(self._bits | other._bits)

    def __and__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_int(self._bits & other._bits)

    def __sub__(self, other: CpuSet) -> CpuSet:
        return CpuSet.from_int(self._bits & ~other._bits)

    def __le__(self, other: CpuSet) -> bool:
        return self._bits & ~other._bits == 0

    def isdisjoint(self, other: CpuSet) -> bool:
        """True when no CPU is in both."""
        return self._bits & other._bits == 0

    @property
    def first(self) -> int:
        """The lowest CPU.

        :raises InvalidInput: the set is empty
        """
        if not self._bits:
            raise InvalidInput("The CPU set is empty.", "Give at least one CPU.")
        return (self._bits & -self._bits).bit_length() - 1

    def __str__(self) -> str:
        return self.to_list()

    def __repr__(self) -> str:
        return 'CpuSet.parse("%s")' % self.to_list()


def union(sets: Iterable[CpuSet]) -> CpuSet:
    """All CPUs of all sets."""
    bits = 0
    for one in sets:
        bits |= one.bits
    return CpuSet.from_int(bits)
