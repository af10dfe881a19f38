"""Kubernetes quantities and kernel sizes, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.quantity import (
    format_bytes,
    format_size,
    parse_bytes,
    parse_quantity,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("1", 1), ("1k", 1000), ("1Ki", 1024), ("4Gi", 4 << 30), ("1.5Gi", 3 << 29), (".5Ki", 512), ("1e3", 1000), ("1E3", 1000),
     ("2E", 2 * 10**18), ("1Ei", 1 << 60), ("100Mi", 104857600), ("+5M", 5000000), (7, 7), ("12e-1Ki", None)],
)  # fmt: skip
def test_parse(text: object, value: int | None) -> None:
    if value is None:
        with pytest.raises(InvalidInput):
            parse_quantity(text, "x")
    else:
        assert parse_bytes(text, "x") == value


def test_milli_is_exact() -> None:
    assert parse_quantity("1500m", "x") == Fraction(3, 2)
    assert parse_quantity("3u", "x") == Fraction(3, 10**6)


@pytest.mark.parametrize("text", ["6GiB", "2g", "4gi", "1 Gi", "", "Gi", "1KI", "0x10", "1e3Ki", "१", None, True, 1.5, [1]])
def test_what_kubelet_refuses(text: object) -> None:
    with pytest.raises(InvalidInput, match="not a Kubernetes quantity"):
        parse_quantity(text, "x")


@pytest.mark.parametrize("text", ["512m", "1000m", "3u", "0.5"])
def test_fractions_of_a_byte_are_not_meant(text: str) -> None:
    with pytest.raises(InvalidInput, match="which Kubernetes reads as"):
        parse_bytes(text, "x")


@given(st.integers(0, 1 << 62))
def test_bytes_survive_a_round_trip(value: int) -> None:
    assert parse_bytes(format_bytes(value), "x") == value


@given(st.integers(0, 1 << 45))
def test_sizes_survive_a_round_trip(value: int) -> None:
    assert parse_size(format_size(value), "x") == value


def test_sizes() -> None:
    assert parse_size("2M", "x") == parse_size("2Mi", "x") == parse_size(2097152, "x") == 2 << 20
    assert (format_size(1 << 30), format_size(16 << 20), format_size(64 << 10)) == ("1G", "16M", "64K")
    assert format_bytes(5220 << 20) == "5220Mi"
    for text in ("2MB", "1T", "-1", "1.5G", ""):
        with pytest.raises(InvalidInput, match="not a page size"):
            parse_size(text, "x")
