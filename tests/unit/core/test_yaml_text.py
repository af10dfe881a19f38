"""YAML that is written reads back the same with a real YAML reader, and a merge leaves the lines of others alone."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core import yaml_text
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput

KEYS = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters=".-_"), min_size=1, max_size=12)
PRINTABLE = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn", "Co", "Zl", "Zp"), exclude_characters="\ufeff"), max_size=20
)
SCALARS = st.one_of(PRINTABLE, st.integers(), st.booleans(), st.sampled_from(["true", "no", "null", "0,8", "1e3", "None", "0x1", "y"]))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.dictionaries(KEYS, inner, max_size=3), st.lists(st.dictionaries(KEYS, SCALARS, min_size=1), max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_what_is_written_reads_back_the_same(mapping: dict[str, Any]) -> None:
    assert (yaml.safe_load(yaml_text.write(mapping)) or {}) == mapping


@given(
    st.dictionaries(
        KEYS.filter(lambda key: key[0].isalpha()),
        st.one_of(SCALARS, st.dictionaries(KEYS.filter(lambda key: key[0].isalpha()), SCALARS)),
        max_size=5,
    )
)
def test_our_own_reader_agrees(mapping: dict[str, Any]) -> None:
    found = yaml_text.blocks(yaml_text.write(mapping), "file")
    assert {block.key: yaml_text.value(block, "file") for block in found} == mapping


TEXT = """\
# kept
---
apiVersion: v1   # the version
"quoted" : 'it''s'
list:
- a
- b

# about the map
map:
  one: "1" # a comment
  # inside
  two: 2%
empty: {}
nothing:
"""


def test_blocks_join_to_the_same_text() -> None:
    assert yaml_text.join(yaml_text.blocks(TEXT, "file")) == TEXT


def test_values_are_what_yaml_says() -> None:
    read = {block.key: block for block in yaml_text.blocks(TEXT, "file") if block.key}
    for key in ("apiVersion", "quoted", "map", "empty", "nothing"):
        assert yaml_text.value(read[key], "file") == yaml.safe_load(TEXT)[key]
    with pytest.raises(InvalidInput, match="file holds list in a form"):
        yaml_text.value(read["list"], "file")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{a: 1}\n", "line 1 is not a top-level key"), ("a: 1\nb\n", "line 2 is not a top-level key"), ("a: 1\na: 2\n", "has the key a twice"),
     ("a: 1\n---\nb: 2\n", "line 2 is not"), ("  a: 1\n", "line 1 is not"), ("# c\n  a: 1\n", "belongs to no key")],
)  # fmt: skip
def test_what_is_not_one_block_mapping(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        yaml_text.blocks(text, "file")


@pytest.mark.parametrize("text", ["a: {b: c}\n", "a: &x 1\n", "a: |\n  text\n", "a:\n  b:\n    c: 1\n", 'a: "half\n', "a: b\n  c: d\n"])
def test_what_is_not_looked_into(text: str) -> None:
    with pytest.raises(InvalidInput, match="in a form that isn't merged here"):
        yaml_text.value(yaml_text.blocks(text, "file")[0], "file")
