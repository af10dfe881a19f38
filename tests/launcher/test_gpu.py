"""--gpu: the rank goes to its GPU's node, with the node's CPUs that are allowed; or nothing is bound, and this is said."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launcher.launching import BIND, EIGHT_GPUS, GRACE_HOPPER, TWO_SOCKETS, Gpu, Machine, Node, environment, found, run

Decide = Callable[..., dict[str, Any]]
SERVER = Machine(TWO_SOCKETS, EIGHT_GPUS)
ADDRESSES = list(EIGHT_GPUS)
CPUS = {0: "0-95,192-287", 1: "96-191,288-383"}


@pytest.fixture
def place(numaspread: Path, tmp_path: Path) -> Callable[..., tuple[str, subprocess.CompletedProcess[str]]]:
    """The GPU that an option and an environment mean, and the whole answer."""

    def place(which: str, machine: Machine = SERVER, /, *options: str, **variables: str) -> tuple[str, subprocess.CompletedProcess[str]]:
        root = tmp_path / "root"
        if not root.exists():
            machine.write(root)
        result = run(numaspread, "--root", root, "--dry-run", "--gpu", which, *options, env=environment(**variables))
        lines = dict(line.split(": ", 1) for line in result.stdout.splitlines())
        return lines.get("gpu", ""), result

    return place


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A temporary folder that other users may enter; pytest's are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


Place = Callable[..., tuple[str, subprocess.CompletedProcess[str]]]


@pytest.mark.parametrize(("address", "gpu"), EIGHT_GPUS.items(), ids=ADDRESSES)
def test_each_gpu_by_address(decide: Decide, address: str, gpu: Gpu) -> None:
    decision = decide(SERVER, "--gpu", address)
    assert (decision["mode"], decision["nodes"], decision["cpus"]) == (["bind"], [str(gpu.node)], [CPUS[gpu.node]])


@pytest.mark.parametrize("which", ["0000:9d:00.0", "9d:00.0", "00000000:9D:00.0", "4", "GPU-00000004-aaaa", "GPU-00000004", "gpu-x"])
def test_the_same_gpu_in_many_words(place: Place, which: str) -> None:
    gpu, result = place(which)
    if which == "gpu-x":
        assert result.returncode == 125
    else:
        assert gpu == "0000:9d:00.0"


def test_numbers_follow_pci_addresses_not_the_order_of_files(place: Place) -> None:
    assert [place(str(number))[0] for number in range(8)] == ADDRESSES


VISIBLE = [
    ("2,3", "0", 2),
    ("2,3", "1", 3),
    ("6,1", "0", 6),  # CUDA counts in the order of the list
    ("GPU-00000005-aaaa,GPU-00000002", "1", 2),
    ("0,GPU-00000007", "1", 7),
    ("MIG-GPU-00000006-aaaa/3/0", "0", 6),
    ("1,-1,2", "1", None),  # a wrong entry ends the list
    ("1,99,2", "1", None),
    ("GPU-0000000,2", "0", None),  # ambiguous
    ("", "0", None),
    ("-1", "0", None),
    ("NoDevFiles", "0", None),
]


@pytest.mark.parametrize(("visible", "which", "index"), VISIBLE)
def test_cuda_visible_devices(place: Place, visible: str, which: str, index: int | None) -> None:
    gpu, result = place(which, SERVER, CUDA_VISIBLE_DEVICES=visible)
    assert gpu == (ADDRESSES[index] if index is not None else "")
    assert result.returncode == (0 if gpu else 125)
    if not gpu:
        assert "CUDA_VISIBLE_DEVICES" in result.stderr


def test_a_mig_device_does_not_tell_its_gpu(place: Place) -> None:
    gpu, result = place("0", SERVER, CUDA_VISIBLE_DEVICES="MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f")
    assert (gpu, result.returncode) == ("", 0)
    assert "MIG" in result.stderr
    assert "cpus: unchanged" in result.stdout


@pytest.mark.parametrize("name", ["LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"])
def test_rank(place: Place, name: str) -> None:
    assert [place("rank", SERVER, **{name: str(rank)})[0] for rank in (0, 3, 7)] == [ADDRESSES[rank] for rank in (0, 3, 7)]


def test_rank_with_one_gpu_for_each_rank(place: Place) -> None:
    """SLURM gives each task its own GPU: the task's number isn't the GPU's then."""
    assert place("rank", SERVER, SLURM_LOCALID="5", CUDA_VISIBLE_DEVICES="GPU-00000005")[0] == ADDRESSES[5]


@pytest.mark.parametrize("variables", [{}, {"LOCAL_RANK": ""}, {"LOCAL_RANK": "x"}, {"LOCAL_RANK": "8"}, {"LOCAL_RANK": "1 "}])
def test_rank_that_means_nothing_is_refused(place: Place, variables: dict[str, str]) -> None:
    unused, result = place("rank", SERVER, **variables)
    assert result.returncode == 125
    assert len(result.stderr.splitlines()) == 1
    gpu, result = place("rank", SERVER, "--best-effort", **variables)
    assert (gpu, result.returncode) == ("", 0)


@pytest.mark.parametrize(("order", "said"), [("PCI_BUS_ID", False), ("FASTEST_FIRST", True)])
def test_cuda_device_order(place: Place, order: str, said: bool) -> None:
    gpu, result = place("1", SERVER, CUDA_DEVICE_ORDER=order)
    assert gpu == ADDRESSES[1]
    assert ("CUDA_DEVICE_ORDER" in result.stderr) == said
    assert "CUDA_DEVICE_ORDER" not in place("GPU-00000004", SERVER, CUDA_DEVICE_ORDER=order)[1].stderr


def test_the_driver_s_list_bounds_what_a_container_sees(place: Place, tmp_path: Path) -> None:
    """The toolkit shows a container its own GPUs under /proc/driver/nvidia, and all of them under /sys."""
    SERVER.write(tmp_path / "root")
    for address in ADDRESSES[:6]:
        shutil.rmtree(tmp_path / "root/proc/driver/nvidia/gpus" / address)
    assert place("0")[0] == ADDRESSES[6]
    assert place("2")[1].returncode == 125


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="changing the user needs root and setpriv")
def test_a_gpu_whose_device_file_is_forbidden_does_not_count(numaspread: Path, open_path: Path) -> None:
    """A device cgroup answers EPERM to access(2), a mode EACCES: the GPU is another job's."""
    root = SERVER.write(open_path / "root")
    shutil.copy(numaspread, root / "numaspread")
    (root / "dev").mkdir()
    for minor in range(8):
        (root / f"dev/nvidia{minor}").touch()
        (root / f"dev/nvidia{minor}").chmod(0o666 if minor in (3, 5) else 0)
    user = ["setpriv", "--reuid", "65534", "--clear-groups"]
    assert f"gpu: {ADDRESSES[5]}\n" in run(*user, root / "numaspread", "--root", root, "--dry-run", "--gpu", "1").stdout


def test_without_the_nvidia_driver_sysfs_tells(decide: Decide) -> None:
    """AMD's accelerators and unbound NVIDIA GPUs; a BMC's display controller and an Intel NIC are no GPUs."""
    gpus = {
        "0000:03:00.0": Gpu(0, vendor="0x1a03", device_class="0x030000"),
        "0000:04:00.0": Gpu(0, vendor="0x8086", device_class="0x020000"),
        "0000:05:00.0": Gpu(0, vendor="0x1002", device_class="0x120000"),
        "0001:05:00.0": Gpu(1, vendor="0x1002", device_class="0x038000"),
    }
    machine = Machine(TWO_SOCKETS, gpus)
    assert decide(machine, "--gpu", "0")["gpu"] == ["0000:05:00.0"]
    assert decide(machine, "--gpu", "1")["gpu"] == ["0001:05:00.0"]


def test_cpus_are_the_node_s_that_are_allowed(decide: Decide) -> None:
    machine = Machine(TWO_SOCKETS, EIGHT_GPUS, cpus_allowed=range(90, 110))
    assert decide(machine, "--gpu", "0")["cpus"] == ["90-95"]
    assert decide(machine, "--gpu", "7")["cpus"] == ["96-109"]


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (Machine(TWO_SOCKETS, EIGHT_GPUS, cpus_allowed=[96]), "no CPU of node 0"),
        (Machine(TWO_SOCKETS, EIGHT_GPUS, mems_allowed=[1]), "no memory of node 0"),
        (Machine(TWO_SOCKETS, {"0000:1b:00.0": Gpu(-1)}), "isn't known"),  # H23
        (Machine(GRACE_HOPPER, {"0000:1b:00.0": Gpu(1)}), "no CPU of node 1"),
    ],
)
def test_nothing_is_bound_and_this_is_said(decide: Decide, machine: Machine, said: str) -> None:
    decision = decide(machine, "--gpu", "0000:1b:00.0")
    assert decision["mode"] == ["none, the policy stays as it is"]
    assert decision["cpus"] == ["unchanged"]
    assert said in decision["said"][0]


def test_unknown_node_on_a_machine_with_one_node(decide: Decide) -> None:
    """H23: numa_node reads -1 and there is one node: it is that one."""
    decision = decide(Machine({0: Node(range(8))}, {"0000:1b:00.0": Gpu(-1)}), "--gpu", "1b:00.0")
    assert (decision["nodes"], decision["cpus"]) == (["0"], ["0-7"])


def test_a_gpu_that_is_not_there(place: Place) -> None:
    gpu, result = place("0000:aa:00.0")
    assert (gpu, result.returncode) == ("", 125)
    assert "lspci" in result.stderr


@pytest.mark.parametrize("options", [["--nodes", "0"], ["--cpus", "0"], ["--cpuless"], ["--mode", "interleave"], ["--mode", "weighted"]])
def test_options_that_contradict_it(place: Place, options: list[str]) -> None:
    assert place("0", SERVER, *options)[1].returncode == 125


@pytest.mark.parametrize("mode", ["bind", "preferred-many", "local"])
def test_modes_that_suit_it(place: Place, mode: str) -> None:
    assert f"mode: {mode}\n" in place("0", SERVER, "--mode", mode)[1].stdout


def test_bound_for_real(numaspread: Path, show: Path, tmp_path: Path) -> None:
    """This machine as the GPU's: node 0 with its CPUs, and a GPU that says so."""
    cpu = max(os.sched_getaffinity(0))
    root = Machine({0: Node([cpu])}, {"0000:1b:00.0": Gpu(0)}).write(tmp_path / "root")
    seen = found(numaspread, "--root", root, "--gpu", "0", "--verify", show)
    assert (seen["policy"], seen["nodes"], seen["cpus"]) == (BIND, [0], [cpu])
