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


NAMES = KEYS.filter(lambda key: key[0].isalpha())
NESTED = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner, max_size=3), st.lists(st.one_of(SCALARS, st.dictionaries(NAMES, inner)), max_size=3)
    ),
    max_leaves=8,
)


def ours(text: str) -> dict[str, Any]:
    return {block.key: yaml_text.value(block, "file") for block in yaml_text.blocks(text, "file") if block.key}


@given(st.dictionaries(NAMES, NESTED, max_size=5))
def test_our_own_reader_agrees(mapping: dict[str, Any]) -> None:
    assert ours(yaml_text.write(mapping)) == mapping


SIMPLE = st.recursive(
    st.one_of(st.integers(), st.booleans(), st.none(), st.text(st.sampled_from("ab1 -.%<:,#{}[]'\""), max_size=9)),
    lambda inner: st.one_of(st.dictionaries(NAMES, inner, max_size=3), st.lists(inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, SIMPLE, max_size=4), st.booleans())
def test_our_reader_reads_what_others_write(mapping: dict[str, Any], flow: bool) -> None:
    """PyYAML's style, blocks or a flow collection for each key: the same value, or no value, never another one."""
    text = "".join(yaml.safe_dump({key: value}, default_flow_style=flow, width=10**6)[1 if flow else 0 : -2 if flow else None] + "\n"
                   for key, value in mapping.items())  # fmt: skip
    if yaml.safe_load(text) != (mapping or None):
        return
    try:
        assert ours(text) == mapping
    except InvalidInput as refused:
        assert "in a form that isn't read here" in str(refused) or "top-level" in str(refused)


TEXT = """\
# kept
--- # a document
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


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_blocks_join_to_the_same_text(end: str) -> None:
    text = TEXT.replace("\n", end)
    assert yaml_text.join(yaml_text.blocks(text, "file"), yaml_text.line_end(text)) == text


@pytest.mark.parametrize(
    "text", ["\ufeffa: 1\n", "%YAML 1.1\n# c\n---\na: 1\n", "--- # c\na: 1\n---\na: 2\n", "a: 1\n...\nb\n", "\na: 1\n--- {}\n"]
)
def test_a_reader_takes_the_first_document(text: str) -> None:
    assert ours(yaml_text.first_document(text)) == {"a": 1} == next(iter(yaml.safe_load_all(text.replace("...\nb", ""))))


ENTRIES = st.dictionaries(NAMES, st.one_of(st.text("ab1 -%#", max_size=4), st.booleans()), max_size=4)


@given(ENTRIES, ENTRIES, st.sampled_from(["  ", " "]), st.sampled_from(["", "  # why\n", "\n"]), st.booleans())
def test_entries_that_stay_keep_their_lines(before: dict[str, Any], after: dict[str, Any], indent: str, comment: str, flow: bool) -> None:
    lines = [indent + line + "  # told\n" for key, value in before.items() for line in yaml_text.write_key(key, value)]
    text = (
        "a:\n" + comment.join(["", *lines])
        if not flow
        else "a: %s # told\n" % yaml.safe_dump(before, default_flow_style=True, width=10**6).strip()
    )
    try:
        block = yaml_text.with_entries(yaml_text.blocks(text, "file")[0], after, "file")
    except InvalidInput:
        assert flow  # a form that isn't read
        return
    written = yaml_text.join([block])
    assert yaml.safe_load(written) == {"a": after}
    kept = [line for line, item in zip(lines, before.items()) if item in after.items()]
    if after and not flow:
        assert [line for line in written.splitlines(True) if line in lines] == kept and written.count("# why") == text.count("# why")


def test_values_are_what_yaml_says() -> None:
    read = {block.key: block for block in yaml_text.blocks(TEXT, "file") if block.key}
    for key in ("apiVersion", "quoted", "list", "map", "empty", "nothing"):
        assert yaml_text.value(read[key], "file") == yaml.safe_load(TEXT)[key]


@pytest.mark.parametrize(
    "text",
    ["a: {b: c, d: \"1 # no\"}  # yes\n", "a: [1, two, {b: x:y}]\n", "a: {b: [c],\n  d: {}, e: 5%}\n",
     "a: {memory.available: 5%}\n", "a: yes\n",
     "a:\n- numaNode: 0\n  limits:\n    memory: 1Gi\n- numaNode: 1\n  limits: {memory: 2Gi}\n", "a:\n  b:\n    c: 1\n  # no\n  d: On\n",
     "a:\n  -  b: 1\n     c: 2\n  - x\n", "a: b#c\n", "a: 1.5\n", "a:\n-\n- b\n", "a: 'it''s'\n", "a: 0-3,8\n", "a: {'b': \"c\", d : e}\n"],
)  # fmt: skip
def test_forms_that_people_write(text: str) -> None:
    assert ours(text) == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{a: 1}\n", r"is JSON, or a mapping in braces \(line 1\)"), ("a: 1\nb\n", r"not a top-level key \(line 2\)"),
     ("a: 1\na: 2\n", "has the key a twice"), ("a: 1\n---\nb: 2\n", r"several documents \(line 2\)"), ("a: 1\n...\n", "several documents"),
     ("\ufeffa: 1\n", "byte order mark"), ("%YAML 1.2\n---\na: 1\n", "a YAML directive"), ("--- {a: 1}\n", "several documents"),
     ("  a: 1\n", r"not a top-level key \(line 1\)"), ("# c\n  a: 1\n", "line 2 indented, and no key"),
     ("a:\n    b: 1\n  c: 2\n", "line 3 indented less than what stands before it"), ("a:\n  b:\n    c: 1\n d: 2\n", "line 4 indented less"),
     ("a:\n\tb: 1\n", "a tab before the text of line 2"), ("a:\n  b: 1\n  \tc: 2\n", "a tab before the text of line 3")],
)  # fmt: skip
def test_what_is_not_one_block_mapping(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        yaml_text.blocks(text, "file")


@pytest.mark.parametrize(
    "text",
    ["a: &x 1\n", "a: |\n  text\n", "a: {b\n", "a: {b: c} d\n", 'a: "half\n', "a: b\n  c: d\n", "a: 'half\n", "a: {? b: c}\n",
     "a:\n  b: 1\n  b: 2\n", "a:\n- b\n  c\n"],
)  # fmt: skip
def test_what_is_not_looked_into(text: str) -> None:
    with pytest.raises(InvalidInput, match="in a form that isn't read here"):
        yaml_text.value(yaml_text.blocks(text, "file")[0], "file")
