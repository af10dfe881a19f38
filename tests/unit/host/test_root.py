"""A root is a jail for paths: nothing outside it is ever read, whatever its links say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import UnreadableRoot
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    for path, text in {
        "a/file": "inside",
        "b/deep/er/file": "deep",
        "sys/big": "x" * 10000,
        "sys/exact": "y" * 4096,
        "etc/empty": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return Root(str(tmp_path))


def link(root: Root, path: str, target: str) -> None:
    os.symlink(target, root.path + path)


def test_a_root_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("file", "nothing"):
        with pytest.raises(UnreadableRoot, match="is not a folder"):
            Root(str(tmp_path / path))


def test_absolute_links_stay_inside(root: Root) -> None:
    link(root, "/absolute", "/a/file")
    link(root, "/folder", "/b/deep")
    link(root, "/outside", "/etc/hostname")
    assert root.read("/absolute") == "inside"
    assert root.read("/folder/er/file") == "deep"
    assert root.read("/outside") is None
    assert root.resolve("/folder/er/file") == "/b/deep/er/file"


def test_dots_never_lead_out(root: Root, tmp_path: Path) -> None:
    secret = tmp_path.parent / "secret"
    secret.write_text("outside")
    link(root, "/a/up", "../../../secret")
    link(root, "/a/updir", "../../..")
    for path in ("/a/up", "/a/updir/secret", "/../secret", "/a/../../secret"):
        assert root.read(path) is None
    assert root.resolve("/a/../..") == "/"


def test_relative_links_count_from_where_they_lie(root: Root) -> None:
    link(root, "/b/deep/here", "er/../../../a/file")
    link(root, "/away", "b/deep")
    assert root.read("/away/here") == "inside"


def test_chains_and_loops(root: Root) -> None:
    link(root, "/one", "two")
    link(root, "/two", "/three")
    link(root, "/three", "a/file")
    link(root, "/loop", "pool")
    link(root, "/pool", "/loop")
    link(root, "/self", "self/self")
    link(root, "/dir", "dir/x")
    assert root.read("/one") == "inside"
    for path in ("/loop", "/loop/x", "/self", "/dir", "/dir/y"):
        assert root.read(path) is None and root.names(path) == [] and not root.exists(path)
    with pytest.raises(UnreadableRoot, match="loop"):
        root.local("/loop/x")


def test_dangling_links_are_nothing(root: Root) -> None:
    link(root, "/dangling", "/no/such")
    assert root.read("/dangling") is None and not root.exists("/dangling") and root.link_target("/dangling") == "/no/such"


def test_a_link_replaced_meanwhile_is_seen(root: Root) -> None:
    link(root, "/now", "a/file")
    assert root.read("/now") == "inside"
    os.unlink(root.path + "/now")
    link(root, "/now", "b/deep/er/file")
    assert root.read("/now") == "deep"


def test_files_of_any_length(root: Root) -> None:
    assert root.read("/sys/big") == "x" * 10000
    assert root.read("/sys/exact") == "y" * 4096
    assert root.read("/sys/big", limit=7) == "x" * 7
    assert root.read("/etc/empty") == ""
    assert root.read("/nothing") is None
    assert root.read("/a") is None, "a folder is no file"


def test_bytes_survive(root: Root) -> None:
    Path(root.path, "raw").write_bytes(b"\xff\x00\xfe")
    assert (root.read("/raw") or "").encode("utf-8", "surrogateescape") == b"\xff\x00\xfe"


def test_a_pipe_does_not_hang(root: Root) -> None:
    os.mkfifo(root.path + "/pipe")
    assert root.read("/pipe") in (None, "")


def test_opened_lists_what_was_read_in_order(root: Root) -> None:
    for path in ("/a/file", "/nothing", "/sys/big"):
        root.read(path)
    assert root.opened == ["/a/file", "/nothing", "/sys/big"]


def test_writers_get_the_folder_resolved_and_the_last_component_as_it_is(root: Root) -> None:
    link(root, "/etc/conf", "/b/deep")
    link(root, "/b/deep/mask", "/dev/null")
    assert root.local("/etc/conf/mask") == root.path + "/b/deep/mask"
    assert root.local("/etc/conf/new") == root.path + "/b/deep/new"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_permission_denied_is_said(root: Root) -> None:
    os.chmod(root.path + "/a/file", 0)
    with pytest.raises(UnreadableRoot, match="permission denied"):
        root.read("/a/file")
