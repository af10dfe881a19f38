# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kubernetes quantities and kernel sizes as exact integers of bytes.

Kubernetes: a decimal number with a binary (Ki … Ei) or decimal (n u m k M G T P E) suffix or an exponent; source:
apimachinery/pkg/api/resource/quantity.go. Kernel (hugepagesz=): a number with K, M or G, binary; source: lib/cmdline.c, memparse().
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Union

from .errors import InvalidInput

if TYPE_CHECKING:
    from fractions import Fraction

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?\d{1,2}))\Z", re.ASCII)
_KERNEL_SIZE = re.compile(r"(\d+)([KMG]?)\Z", re.ASCII)


def parse_quantity(text: Any, what: str) -> Union[int, Fraction]:
    """The exact value of a Kubernetes quantity. ``what`` names it in the refusal.

    :raises InvalidInput: kubelet would refuse the text, or it is negative
    """
    match = _QUANTITY.match(str(text)) if isinstance(text, (str, int)) and not isinstance(text, bool) else None
    if not match:
        raise InvalidInput('%s is "%s", which is not a Kubernetes quantity.' % (what, text), 'Write it like "4Gi" or "512Mi".')
    sign, number, suffix, exponent = match.groups()
    if sign == "-":
        raise InvalidInput('%s is "%s", which is negative.' % (what, text), "Give 0 or more.")
    digits, _point, decimals = number.partition(".")
    whole = int(digits + decimals) << _BINARY.get(suffix, 0)
    power = int(exponent or _DECIMAL.get(suffix, 0)) - len(decimals)
    scale: int = 10 ** abs(power)
    if power >= 0:
        return whole * scale
    if whole % scale == 0:
        return whole // scale
    from fractions import Fraction  # here, since nodes rarely meet one, and it takes longer to load than any module of ours

    return Fraction(whole, scale)


def parse_bytes(text: Any, what: str) -> int:
    """A quantity of memory in bytes.

    :raises InvalidInput: not a quantity; a fraction of a byte ("512m" is half a byte to Kubernetes, and nobody means it)
    """
    value = parse_quantity(text, what)
    if re.search(r"[num]\Z", str(text)) or value.denominator != 1:
        from decimal import Decimal, localcontext  # here, as fractions above

        with localcontext() as context:
            context.prec = 60
            exact = format(Decimal(value.numerator) / value.denominator, "f")
        whole = -(-value // 1)
        meant = 'Write whole bytes ("%d"), or a smaller unit.' % whole if whole > KIB else 'For mebibytes write "Mi", as in "512Mi".'
        raise InvalidInput('%s is "%s", which Kubernetes reads as %s bytes.' % (what, text, exact), meant)
    return int(value)


def format_bytes(value: int) -> str:
    """The canonical quantity: the largest binary unit that divides it ("2148Mi"), a plain number when none does."""
    for suffix, shift in reversed(list(_BINARY.items())):
        if value and value % (1 << shift) == 0:
            return "%d%s" % (value >> shift, suffix)
    return str(value)


def parse_size(text: Any, what: str) -> int:
    """A page size in bytes, from bytes (2097152), the kernel's notation ("2M") or a binary quantity ("2Mi").

    :raises InvalidInput: none of these
    """
    match = _KERNEL_SIZE.match(re.sub(r"(?<=[KMG])i\Z", "", str(text)))
    if not match:
        raise InvalidInput('%s is "%s", which is not a page size.' % (what, text), 'Write it as the kernel does, like "2M" or "1G".')
    return int(match.group(1)) << {"": 0, "K": 10, "M": 20, "G": 30}[match.group(2)]


def format_size(value: int) -> str:
    """A size in the kernel's notation: "1G", "2M", "64K"."""
    for suffix, unit in (("G", GIB), ("M", MIB), ("K", KIB)):
        if value and value % unit == 0:
            return "%d%s" % (value // unit, suffix)
    return str(value)
