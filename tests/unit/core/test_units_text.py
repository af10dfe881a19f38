"""Words that reach a command byte for byte: by a model of systemd's reading, and by a real systemd where one can run."""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path

import pytest
import user_systemd
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.gpufleet.node.plugins.module_utils.core.unit_text import environment, exec_start, text_value, unit, word

# All that systemd reads as something else somewhere: quotes, escapes, specifiers, variables, separators, what ends a line or a command.
AWKWARD = [
    "", " ", "a b", ";", "\\;", "%", "%%", "%h", "100%", "$", "$$", "$HOME", "${HOME}", "$$HOME", "a$b", '"', "'", "it's", 'say "so"',
    "\\", "\\\\", "\\x41", "\\n", "back\\", "\n", "a\nb", "\t", "\r", "\x01", "\x1b[0m", "\x7f", "é", "日本語", "🙂", "#no", "[Service]",
    "=", "~", "@x", "-x", "+x", "!x", ":x", "{}", "*", "&& reboot", "`id`", "a=b c", "\u2028", "\u00a0",
]  # fmt: skip

texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0")) | st.sampled_from(AWKWARD)


def read_words(value: str) -> list[str]:
    """systemd.syntax(7): words in quotes with C escapes, then specifiers (systemd.unit(5)); of those only %% occurs."""
    found, position = [], 0
    while position < len(value):
        assert value[position] == '"', value[position:]
        position, characters = position + 1, []
        while value[position] != '"':
            if value[position] != "\\":
                characters.append(value[position])
                position += 1
            elif value[position + 1] == "x":
                characters.append(chr(int(value[position + 2 : position + 4], 16)))
                position += 4
            else:
                characters.append({"n": "\n", "t": "\t", "\\": "\\", '"': '"'}[value[position + 1]])
                position += 2
        found.append(undone("".join(characters), "%"))
        position += 1
        assert position == len(value) or value[position] == " "
        position += 1
    return found


def undone(text: str, sign: str) -> str:
    """Doubled signs made single; a single one would stand for something else."""
    assert sign not in text.replace(sign * 2, "")
    return text.replace(sign * 2, sign)


@given(st.lists(texts, max_size=5))
def test_arguments_arrive_as_they_are(arguments: list[str]) -> None:
    line = exec_start(["/bin/run", *arguments], "service x")
    assert line.startswith("ExecStart=") and "\n" not in line and not line.endswith("\\")
    program, *words = read_words(line.removeprefix("ExecStart="))
    assert program == "/bin/run"
    assert [undone(one, "$") for one in words] == arguments


@given(texts)
def test_variables_arrive_as_they_are(value: str) -> None:
    (line,) = environment({"NAME": value}, "service x")
    assert read_words(line.removeprefix("Environment=")) == ["NAME=" + value]


@pytest.mark.skipif(not user_systemd.runs(), reason="no systemd can be run in name spaces here")
def test_a_real_systemd_hands_them_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    show = "import os, sys; open(sys.argv[1], 'w').write(repr((sys.argv[2:], os.environ['NAME'])))"
    value = " ".join(AWKWARD)
    service = [
        "Type=oneshot",
        exec_start([os.path.realpath(sys.executable), "-I", "-X", "utf8", "-c", show, str(out), *AWKWARD], "service show"),
        *environment({"NAME": value}, "service show"),
    ]
    user_systemd.run_to_end(tmp_path / "home", "show.service", unit(("Service", service)))
    assert ast.literal_eval(out.read_text(encoding="utf-8")) == (AWKWARD, value)


@pytest.mark.parametrize("text", ["a\0b", "\udcff"])
def test_what_no_unit_file_can_hold_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"argument x holds a NUL, or bytes that aren't UTF-8\."):
        word(text, "argument x")


def test_refused_lines() -> None:
    for program in ("run", "-/bin/run", "@/bin/run", "/bin/$x"):
        with pytest.raises(InvalidInput, match=re.escape('service x starts "%s".' % program)):
            exec_start([program], "service x")
    with pytest.raises(InvalidInput, match="more than systemd reads"):
        exec_start(["/bin/run", "x" * (1 << 20)], "service x")
    for text in (" a", "a\n", "a\\", "a\nb"):
        with pytest.raises(InvalidInput, match="not one line of text"):
            text_value(text, "The description")
    assert text_value("50% of it", "The description") == "50%% of it"
