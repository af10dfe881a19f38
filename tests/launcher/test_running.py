"""The real launcher on this machine: the policy is in force, and everything else is the command's."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from launcher.launching import BIND, INTERLEAVE, LOCAL, PREFERRED_MANY, WEIGHTED, environment, found, run

MODES = {"interleave": INTERLEAVE, "weighted": WEIGHTED, "preferred-many": PREFERRED_MANY, "bind": BIND, "local": LOCAL}
NUMA_MAPS = {
    **{mode: f"{mode}:" for mode in MODES},
    "weighted": "weighted interleave:",
    "preferred-many": "prefer (many):",
    "local": "local",
}
KERNEL = tuple(int(part) for part in os.uname().release.split(".")[:2])
NEEDS = {"weighted": (6, 9), "preferred-many": (5, 15)}

pytestmark = pytest.mark.skipif(not Path("/sys/devices/system/node").is_dir(), reason="this kernel has no NUMA")


def usable_nodes() -> list[int]:
    """The nodes that `auto` should take here, found another way than the launcher does."""
    status = Path("/proc/self/status").read_text()
    words = status.split("Mems_allowed:\t")[1].split("\n")[0].split(",")
    allowed = int("".join(words), 16)
    nodes = []
    for folder in Path("/sys/devices/system/node").glob("node[0-9]*"):
        number, total = int(folder.name[4:]), (folder / "meminfo").read_text().split("MemTotal:")[1].split()[0]
        if allowed >> number & 1 and int(total) and (folder / "cpulist").read_text().strip():
            nodes.append(number)
    return sorted(nodes)


@pytest.mark.parametrize("mode", MODES)
def test_policy_in_force(numaspread: Path, show: Path, mode: str) -> None:
    if NEEDS.get(mode, (0, 0)) > KERNEL:
        pytest.skip(f"kernel {os.uname().release} has no {mode}")
    seen = found(numaspread, "--mode", mode, "--verify", show)
    assert (seen["policy"], seen["nodes"]) == (MODES[mode], [] if mode == "local" else usable_nodes())
    maps = run(numaspread, "--mode", mode, "cat", "/proc/self/numa_maps").stdout.splitlines()
    assert maps
    assert all(line.split(" ", 1)[1].startswith(NUMA_MAPS[mode]) for line in maps)


def test_default_is_interleave_over_auto(numaspread: Path, show: Path) -> None:
    seen = found(numaspread, show)
    assert (seen["policy"], seen["nodes"]) == (INTERLEAVE, usable_nodes())


def test_cpus(numaspread: Path, show: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    assert found(numaspread, "--cpus", str(cpu), show)["cpus"] == [cpu]
    assert found(numaspread, show)["cpus"] == sorted(os.sched_getaffinity(0))


def test_cpus_that_the_kernel_would_drop_are_refused(numaspread: Path, show: Path) -> None:
    cpu, beyond = max(os.sched_getaffinity(0)), os.cpu_count() or 1
    result = run(numaspread, "--cpus", f"{cpu},{beyond}", show)
    assert result.returncode == 125
    assert f"drops {beyond}," in result.stderr
    assert run(numaspread, "--cpus", str(beyond), show).returncode == 125
    assert found(numaspread, "--best-effort", "--cpus", f"{cpu},{beyond}", show)["cpus"] == [cpu]


@pytest.mark.parametrize("words", [["--", "echo", "-n", "a b"], ["echo", "-n", "a b"], ["echo", "-n", "--help -v"]])
def test_the_command_line_is_the_command_s(numaspread: Path, words: list[str]) -> None:
    assert run(numaspread, *words).stdout == words[-1]


def test_options_by_environment_and_the_command_line_wins(numaspread: Path, show: Path) -> None:
    by_environment = environment(NUMASPREAD_MODE="bind", NUMASPREAD_VERIFY="1", NUMASPREAD_BEST_EFFORT="0", NUMASPREAD_CPUS="")
    assert found(numaspread, show, env=by_environment)["policy"] == BIND
    assert found(numaspread, "--mode", "local", show, env=by_environment)["policy"] == LOCAL
    result = run(numaspread, show, env=environment(NUMASPREAD_VERIFY="yes"))
    assert result.returncode == 125
    assert "NUMASPREAD_VERIFY" in result.stderr


def test_environment_reaches_the_command_unchanged(numaspread: Path) -> None:
    given = {"A": "one", "B": "zwei ß", "NUMASPREAD_MODE": "bind"}
    assert run(numaspread, "/usr/bin/env", env=given).stdout == run("/usr/bin/env", env=given).stdout


def test_it_becomes_the_command(numaspread: Path) -> None:
    """The same process: its PID, its parent; no child is left to forward signals."""
    with subprocess.Popen([numaspread, "sh", "-c", "echo $$"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.read()) == process.pid


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGHUP])
def test_signals_are_the_command_s(numaspread: Path, signum: signal.Signals) -> None:
    # env(1) undoes what a caller such as nohup ignores: an ignored signal stays ignored through every exec.
    command = ["env", "--default-signal", numaspread, "sh", "-c", "echo ready; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signum)
        assert process.wait(30) == -signum


def test_ignored_and_blocked_signals_stay_so(numaspread: Path) -> None:
    """SigBlk, SigIgn and SigCgt of the command are those it would have had without the launcher."""
    words = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]
    look = ["grep", "^Sig[BIC]", "/proc/self/status"]
    assert run(*words, numaspread, *look).stdout == run(*words, *look).stdout


@pytest.mark.parametrize("status", [0, 1, 42, 124, 125, 255])
def test_exit_status_is_the_command_s(numaspread: Path, status: int) -> None:
    assert run(numaspread, "sh", "-c", f"exit {status}").returncode == status


def test_exit_status_when_the_command_cannot_run(numaspread: Path, tmp_path: Path) -> None:
    """As env(1): 127 not found, 126 found and not executable; each with one sentence."""
    text, orphan = tmp_path / "text", tmp_path / "orphan"
    text.write_text("just text\n")
    orphan.write_text("#!/no/such/interpreter\n")
    orphan.chmod(0o755)
    for command, status in (("no-such-command", 127), (tmp_path / "nothing", 127), ("", 127), (text, 126), (tmp_path, 126), (orphan, 127)):
        ours, env = run(numaspread, "--", command), run("env", "--", command)
        assert (ours.returncode, env.returncode) == (status, status), command
        assert len(ours.stderr.splitlines()) == 1, command
    assert "interpreter" in run(numaspread, orphan).stderr


@pytest.mark.parametrize("words", ["", "--", "--mode", "--mode spread true", "--unknown true", "-z true", "--verify=1 true"])
def test_misuse_is_125_and_one_sentence(numaspread: Path, words: str) -> None:
    result = run(numaspread, *words.split())
    assert result.returncode == 125
    assert len(result.stderr.splitlines()) == 1


def test_standard_input_passes_through(numaspread: Path) -> None:
    assert run(numaspread, "cat", input="all of it").stdout == "all of it"


def test_descriptors_are_the_command_s(numaspread: Path, show: Path) -> None:
    """Nothing leaks into the command, and what was closed stays closed."""
    assert found(numaspread, show, close_fds=True)["descriptors"] == [0, 1, 2]
    closed = found("sh", "-c", 'exec "$@" <&-', "sh", numaspread, "--verify", show)
    assert closed["descriptors"] == [1, 2]
    reader, writer = os.pipe()
    try:
        assert writer in found(numaspread, show, pass_fds=[writer])["descriptors"]
    finally:
        os.close(reader)
        os.close(writer)


def test_closed_standard_error_does_not_stop_it(numaspread: Path) -> None:
    result = run("sh", "-c", 'exec "$@" 2>&-', "sh", numaspread, "--verbose", "echo", "ran")
    assert (result.returncode, result.stdout) == (0, "ran\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("option", ["--help", "--version", "--dry-run"])
def test_output_that_cannot_be_written_is_an_error(numaspread: Path, option: str) -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run([numaspread, option], stdout=full, stderr=subprocess.DEVNULL, check=False).returncode == 125


def test_huge_argument_lists(numaspread: Path, show: Path) -> None:
    """As much as the kernel takes: 100,000 bytes in one argument, and 20,000 arguments."""
    assert found(numaspread, show, "x" * 100_000)["bytes"] == 100_000
    assert found(numaspread, show, *["argument"] * 20_000)["arguments"] == 20_000


def test_arguments_arrive_byte_for_byte(numaspread: Path) -> None:
    words = ["", " ", "a b", "%s%n", "$HOME", ";", "'\"\\", "ü€", "-", "--", "\t\n"]
    assert run(numaspread, "printf", "%s\\0", *words).stdout.split("\0")[:-1] == words


def test_help_and_version(numaspread: Path) -> None:
    help_text = run(numaspread, "--help")
    assert help_text.returncode == 0
    assert max(len(line) for line in help_text.stdout.splitlines()) <= 110
    assert run(numaspread, "--version").stdout.startswith("numaspread ")
    assert run(numaspread, "-V").stdout == run(numaspread, "--version").stdout


def test_dry_run_runs_nothing(numaspread: Path, tmp_path: Path) -> None:
    assert run(numaspread, "--dry-run", "touch", tmp_path / "made").returncode == 0
    assert not (tmp_path / "made").exists()


def namespace(*commands: str) -> list[str]:
    """A command prefix: in a mount namespace of its own, after these shell commands."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("mount namespaces need unshare and root")
    return ["unshare", "--mount", "sh", "-c", f'{"; ".join(commands)}; exec "$@"', "sh"]


def test_without_proc(numaspread: Path, show: Path) -> None:
    seen = found(*namespace("mount -t tmpfs none /proc"), numaspread, "--verify", show)
    assert (seen["policy"], seen["nodes"]) == (INTERLEAVE, usable_nodes())


def test_without_sys(numaspread: Path, show: Path) -> None:
    """A container that hides sysfs: the nodes that the kernel allows."""
    seen = found(*namespace("mount -t tmpfs none /sys"), numaspread, show)
    assert seen["policy"] == INTERLEAVE
    assert set(usable_nodes()) <= set(seen["nodes"])


def test_in_a_cpuset(numaspread: Path, show: Path, tmp_path: Path) -> None:
    """A cpuset cgroup with one memory node and one CPU."""
    parent = Path("/sys/fs/cgroup/cpuset")
    group = parent / f"numaspread-{os.getpid()}"
    node, cpu = usable_nodes()[0], max(os.sched_getaffinity(0))
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no writable cpuset cgroup (version 1): {error}")
    try:
        (group / "cpuset.mems").write_text(str(node))
        (group / "cpuset.cpus").write_text(str(cpu))
        inside = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", numaspread]
        seen = found(*inside, show)
        assert (seen["nodes"], seen["cpus"]) == ([node], [cpu])
        others = [other for other in os.sched_getaffinity(0) if other != cpu]
        if others:
            assert run(*inside, "--cpus", str(others[0]), "true").returncode == 125
    finally:
        group.rmdir()
