"""The launcher's source: warnings, sanitizers, valgrind, cppcheck, reproducible bytes, no heap, and its man page."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launcher.launching import EIGHT_GPUS, GB200, SOURCE, TWO_SOCKETS, Machine, build_launcher, environment, needs_no_loader, run

PROGRAM = SOURCE / "numaspread.c"
CASES = {
    "interleave": ["--verify", "-v", "true"],
    "weighted": ["--mode", "weighted", "--best-effort", "true"],
    "malformed list": ["--nodes", "0-3,9-", "true"],
    "absent node": ["--nodes", "0-1023", "true"],
    "CPUs": ["--cpus", "0-8191", "true"],
    "best effort": ["--cpus", "0-8191", "--nodes", "0-1023", "--best-effort", "true"],
    "no command": [],
    "not found": ["no-such-command"],
    "help": ["--help"],
    "34 nodes": ["--root", "ROOT", "--dry-run"],
    "rank": ["--root", "ROOT", "--dry-run", "--gpu", "rank"],
    "visible": ["--root", "ROOT", "--dry-run", "--gpu", "GPU-00000003"],
    "address": ["--root", "ROOT", "--dry-run", "--gpu", "0000:dd:00.0"],
    "long root": ["--root", "/" * 5000, "--dry-run"],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Machine({**GB200, **TWO_SOCKETS}, EIGHT_GPUS).write(tmp_path_factory.mktemp("machine") / "root")


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launcher under AddressSanitizer and UndefinedBehaviorSanitizer."""
    flags = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    return build_launcher(tmp_path_factory.mktemp("sanitized"), CFLAGS=flags, LDFLAGS="-fsanitize=address,undefined")


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launcher linked dynamically, so that valgrind sees malloc."""
    if not shutil.which("valgrind"):
        pytest.skip("valgrind is not installed")
    return build_launcher(tmp_path_factory.mktemp("dynamic"), CFLAGS="-O1 -g", LDFLAGS="")


def words(case: str, root: Path) -> list[str]:
    return [str(root) if word == "ROOT" else word for word in CASES[case]]


@pytest.mark.parametrize("case", CASES)
def test_sanitizers(numaspread: Path, sanitized: Path, root: Path, case: str) -> None:
    """The same answer as the ordinary build, and no word from a sanitizer."""
    variables = environment(LOCAL_RANK="6", CUDA_VISIBLE_DEVICES="7,6,5,4,GPU-00000003,2,1,0", ASAN_OPTIONS="exitcode=99")
    ours, ordinary = (run(program, *words(case, root), env=variables) for program in (sanitized, numaspread))
    assert "Sanitizer" not in ours.stderr and "runtime error" not in ours.stderr
    assert (ours.returncode, ours.stdout, ours.stderr) == (ordinary.returncode, ordinary.stdout, ordinary.stderr)


@pytest.mark.parametrize("case", ["interleave", "absent node", "best effort", "34 nodes", "rank"])
def test_valgrind_finds_no_error_and_no_allocation(dynamic: Path, root: Path, case: str, tmp_path: Path) -> None:
    log = tmp_path / "valgrind.log"
    valgrind = ["valgrind", "--error-exitcode=99", "--leak-check=full", f"--log-file={log}", "--trace-children=no"]
    result = run(*valgrind, dynamic, *words(case, root), env=environment(LOCAL_RANK="1", NUMASPREAD_DRY_RUN="1"))
    assert result.returncode in (0, 125)
    text = log.read_text()
    assert "ERROR SUMMARY: 0 errors" in text, text
    assert "total heap usage: 0 allocs" in text, text


def test_cppcheck() -> None:
    if not shutil.which("cppcheck"):
        pytest.skip("cppcheck is not installed")
    result = run("cppcheck", "--quiet", "--enable=warning,style,performance,portability", "--error-exitcode=3", PROGRAM)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("flags", ["-O0", "-O2", "-O3 -D_FORTIFY_SOURCE=2", "-Os -Wconversion -Wcast-qual", "-O2 -fanalyzer"])
def test_no_warnings(tmp_path: Path, flags: str) -> None:
    result = run("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *flags.split(), "-c", "-o", tmp_path / "x.o", PROGRAM)
    assert result.returncode == 0, result.stderr


def test_builds_with_the_headers_of_linux_4_18(tmp_path: Path) -> None:
    """RHEL 8's linux/mempolicy.h ends at MPOL_LOCAL."""
    modes = ("DEFAULT", "PREFERRED", "BIND", "INTERLEAVE", "LOCAL", "MAX")
    (tmp_path / "linux").mkdir()
    (tmp_path / "linux/mempolicy.h").write_text(
        f"enum {{ {', '.join(f'MPOL_{mode}' for mode in modes)} }};\n#define MPOL_F_MEMS_ALLOWED (1 << 2)\n"
    )
    result = run("gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}", "-c", "-o", tmp_path / "x.o", PROGRAM)
    assert result.returncode == 0, result.stderr


def test_same_source_same_bytes(numaspread: Path, tmp_path: Path) -> None:
    """In another folder, under another name of the source folder, at another time."""
    copy = tmp_path / "elsewhere" / "source"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("build"))
    subprocess.run(["make", "--silent", "-C", str(copy), "OUT=out"], check=True)
    assert (copy / "out/numaspread").read_bytes() == numaspread.read_bytes()


def test_build_leaves_the_source_alone(tmp_path: Path) -> None:
    before = sorted(SOURCE.rglob("*"))
    build_launcher(tmp_path)
    assert sorted(SOURCE.rglob("*")) == before


def test_install(tmp_path: Path) -> None:
    build_launcher(tmp_path / "out")
    command = ["make", "--silent", "-C", str(SOURCE), f"OUT={tmp_path / 'out'}", f"DESTDIR={tmp_path / 'image'}", "PREFIX=/usr", "install"]
    subprocess.run(command, check=True)
    assert (tmp_path / "image/usr/bin/numaspread").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "image/usr/share/man/man1/numaspread.1").is_file()


def test_needs_no_library(numaspread: Path) -> None:
    assert needs_no_loader(numaspread)
    assert not needs_no_loader(Path(sys.executable).resolve())


def test_system_calls_come_from_the_headers() -> None:
    """No number beside a call: the numbers differ between architectures."""
    source = PROGRAM.read_text()
    assert set(re.findall(r"syscall\((\w+)", source)) == {"SYS_get_mempolicy", "SYS_set_mempolicy", "SYS_getdents64"}
    assert not re.search(r"define\s+(SYS|__NR)_", source)


def test_man_page_tells_every_option(numaspread: Path) -> None:
    page = (SOURCE / "numaspread.1").read_text().replace("\\-", "-")
    options = set(re.findall(r"--[a-z-]+", run(numaspread, "--help").stdout))
    assert len(options) >= 11
    assert [option for option in sorted(options) if f"{option}" not in page] == []
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    assert run("groff", "-man", "-ww", "-Tutf8", "-z", SOURCE / "numaspread.1").stderr == ""
