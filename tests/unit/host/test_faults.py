"""Faults that need no kernel of their own: a full disk, a read-only /etc, a clock far off. Nothing is lost, the next run ends the work."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core.change import File, always
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply
from ansible_collections.gpufleet.node.plugins.module_utils.host.rollback import roll_back
from ansible_collections.gpufleet.node.plugins.module_utils.host.store import FOLDER

COLLECTIONS = os.path.join(os.path.dirname(__file__), "../../../playbooks/collections")
NEW = "new\n" * 4096

# Arguments: the collections, the root. It prints the refusal, or "done".
PROGRAM = textwrap.dedent(
    """
    import sys
    sys.path.insert(0, sys.argv[1])
    from ansible_collections.gpufleet.node.plugins.module_utils.core.change import File, always
    from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError
    from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply
    from ansible_collections.gpufleet.node.plugins.module_utils.host.rollback import roll_back
    try:
        if sys.argv[3] == "apply":
            apply([File("a", "/etc/a", always("new\\n" * 4096)), File("b", "/etc/d/b", always("b\\n"))], Node.at(sys.argv[2]))
        else:
            roll_back(Node.at(sys.argv[2]))
        print("done")
    except GpufleetError as error:
        print(error)
    """
)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "etc").mkdir()
    return tmp_path


def in_namespace(root, mount, *steps):
    """Run shell steps in a mount namespace of their own, after the mount; their output by lines. $ROOT is the root, run X the program."""
    script = 'set -e; run() { "$PYTHON" -c "$PROGRAM" "$COLLECTIONS" "$ROOT" "$1"; }; %s; %s' % (mount, "; ".join(steps))
    environment = {**os.environ, "ROOT": str(root), "PYTHON": sys.executable, "PROGRAM": PROGRAM, "COLLECTIONS": COLLECTIONS}
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    if done.returncode and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip("no mount namespace here: %s" % done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("way", ["apply", "rollback"])
def test_on_a_full_disk_nothing_is_lost(root, way):
    old = "old\n" * 4096
    first = ["run apply"] if way == "rollback" else []
    lines = in_namespace(
        root,
        'mount -t tmpfs -o size=256k tmpfs "$ROOT"',
        'mkdir "$ROOT/etc"',
        'printf %%s "%s" > "$ROOT/etc/a"' % old,
        *first,
        'dd if=/dev/zero of="$ROOT/fill" bs=4k status=none 2>/dev/null || true',
        'sum() { md5sum < "$ROOT/etc/a"; }; before=$(sum)',
        "run %s" % way,
        '[ "$before" = "$(sum)" ] && echo whole',
        'ls -A "$ROOT/etc" | grep -c tmp || true',
        'rm "$ROOT/fill"',
        "run %s" % way,
        'head -n 1 "$ROOT/etc/a"',
    )
    refusal, whole, leftovers, done, content = lines[len(first) :]
    assert refusal.endswith("No space left on device. Free some space and run again.")
    assert (whole, leftovers, done) == ("whole", "0", "done")
    assert content == ("new" if way == "apply" else "old")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_etc_is_one_sentence_and_nothing_is_half_done(root):
    (root / "etc/a").write_text("old\n")
    read_only = 'mount --bind "$ROOT/etc" "$ROOT/etc"; mount -o remount,ro,bind "$ROOT/etc"'
    [refusal, content] = in_namespace(root, read_only, "run apply", 'cat "$ROOT/etc/a"')
    assert refusal.endswith("/etc/a can't be written: Read-only file system. Remount it read-write.") and content == "old"
    assert os.listdir(root / "etc") == ["a"]
    apply([File("a", "/etc/a", always(NEW)), File("b", "/etc/d/b", always("b\n"))], Node.at(str(root)))
    [refusal, content] = in_namespace(root, read_only, "run rollback", 'head -n 1 "$ROOT/etc/a"')
    assert refusal.endswith("Read-only file system. Remount it read-write.") and content == "new"
    roll_back(Node.at(str(root)))
    assert (root / "etc/a").read_text() == "old\n" and os.listdir(root / "etc") == ["a"]


@pytest.mark.parametrize("year", [0, 4_102_444_800])
def test_a_clock_far_off_changes_nothing(root, year):
    wanted = [File("a", "/etc/a", always(NEW)), File("b", "/etc/d/b", always("b\n"))]
    (root / "etc/a").write_text("old\n")
    apply(wanted, Node.at(str(root)))
    for folder, _folders, names in os.walk(root):
        for name in names:
            os.utime(os.path.join(folder, name), (year, year))
    state = (root / FOLDER[1:] / "state.json").read_bytes()
    assert not apply(wanted, Node.at(str(root))).changed
    assert (root / FOLDER[1:] / "state.json").read_bytes() == state
    roll_back(Node.at(str(root)))
    assert (root / "etc/a").read_text() == "old\n"
