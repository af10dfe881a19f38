"""A process and a file that it reads: which came first, whatever the clock says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import File, always
from ansible_collections.gpufleet.node.plugins.module_utils.host import written
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root

TICKS = os.sysconf("SC_CLK_TCK")


def node(folder: Path, started: float, notes: str) -> Root:
    """A node with a file, a process 7 that started so many seconds after the boot, and the notes of this boot."""
    texts = {
        "etc/a": "new\n",
        "proc/7/stat": f"7 (kube let) S {' '.join(['0'] * 18)} {round(started * TICKS)} 0\n",
        "proc/uptime": "500.25 900.00\n",
        written.PATH[1:]: notes,
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return Root(str(folder))


@pytest.mark.parametrize(("started", "stale"), [(499.0, True), (500.25, False), (501.0, False)])
@pytest.mark.parametrize("year", [0, 1_000_000_000, 4_000_000_000])
def test_the_clock_doesn_t_matter(tmp_path: Path, started: float, stale: bool, year: int) -> None:
    root = node(tmp_path, started, "{}")
    root.is_live = True
    written.note(root, "/etc/a")
    os.utime(tmp_path / "etc/a", (year, year))
    assert written.started_before(root, "7", "/etc/a") is stale
    assert not written.started_before(root, "8", "/etc/a") and not written.started_before(root, "0", "/etc/a")


@pytest.mark.parametrize("notes", ["{}", "", "[1", '{"/etc/b": 500.0}', '{"/etc/c": 500.0}'])
def test_what_was_not_written_in_this_boot_has_been_read(tmp_path: Path, notes: str) -> None:
    root = node(tmp_path, 1.0, notes)
    assert not any(written.started_before(root, "7", path) for path in ("/etc/a", "/etc/c"))


def test_a_link_is_its_file(tmp_path: Path) -> None:
    root = node(tmp_path, 1.0, json.dumps({"/etc/a": 2.0}))
    (tmp_path / "etc/link").symlink_to("a")
    assert written.started_before(root, "7", "/etc/link")


def test_a_folder_that_is_no_running_node_gets_no_notes(tmp_path: Path) -> None:
    node(tmp_path, 1.0, "{}")
    apply([File("a", "/etc/a", always("newer\n"))], Node.at(str(tmp_path)))
    assert (tmp_path / "etc/a").read_text() == "newer\n"
    assert (tmp_path / written.PATH[1:]).read_text() == "{}"
