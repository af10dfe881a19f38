"""Our reader of TOML against Python's own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import toml_text
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput

tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on

BARE = st.text("abZ09_-", min_size=1, max_size=4)
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=8)
QUOTED = TEXT.map(lambda text: json.dumps(text, ensure_ascii=False))
LITERAL = st.text('ab "#=[]{}.,\\\\\u00e9', max_size=8).map("'{}'".format)
LONG = st.sampled_from(['"""\n a "b" \\\n   c"""', "'''\na'b\nc'''", '"""a\\tb"""', '""""a""""'])
KEYS = st.lists(st.one_of(BARE, QUOTED, LITERAL), min_size=1, max_size=3).map(" . ".join)
BLANK = st.sampled_from(["", " ", "\t", "\n", " # x ]\n", "\n\n"])


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    items = [draw(BLANK) + item + draw(BLANK) for item in draw(st.lists(inner, max_size=3))]
    return "[%s%s]" % (",".join(items), draw(st.sampled_from(["", ", "])) if items else "")


def tables(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(KEYS, inner), max_size=3)
    return pairs.map(lambda found: "{%s}" % ", ".join("%s = %s" % pair for pair in found))


VALUES = st.recursive(
    st.one_of(st.sampled_from(["true", "false", "0", "-7", "+1_000"]), QUOTED, LITERAL, LONG),
    lambda inner: st.one_of(lists(inner), tables(inner)),
    max_leaves=6,
)
LINES = st.one_of(
    st.tuples(KEYS, VALUES, BLANK).map(lambda parts: "%s = %s%s\n" % (parts[0], parts[1], parts[2])),
    KEYS.map("[ {} ]  # mine\n".format),
    KEYS.map("  [[{}]]\n".format),
    st.just("# x = 1\r\n"),
)


@given(st.lists(LINES, max_size=8).map("".join))
def test_our_reader_agrees_with_pythons(text: str) -> None:
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert toml_text.read(text) == expected


@given(st.text(st.sampled_from("a1 .=,[]{}\"'#\n\\\\-"), max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        expected: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        expected = None
    try:
        found = toml_text.read(text)
    except InvalidInput:
        assert expected is None
    else:
        assert expected in (None, found)


@pytest.mark.parametrize("text", ["a", "a =", "= 1", "[a", "a = [1", 'a = "b', "a = 1 b = 2]", "[a]]\n", "a = 1\na.b = 2\n", 'a = "\\q"'])
def test_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="no TOML"):
        toml_text.read(text)


def test_other_scalars_stay_words() -> None:
    assert toml_text.read("a = 1.5\nb = [1979-05-27 07:32:00, 0x1f]\n") == {"a": "1.5", "b": ["1979-05-2707:32:00", "0x1f"]}
