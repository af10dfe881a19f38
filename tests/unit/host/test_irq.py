"""Device interrupts on folders that stand for nodes, and the shipped program as a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from ansible_collections.gpufleet.node.plugins.module_utils.core import irq_units
from ansible_collections.gpufleet.node.plugins.module_utils.core.change import DRIFT, FOREIGN, IN_PLACE, NOT_APPLICABLE, PENDING
from ansible_collections.gpufleet.node.plugins.module_utils.host import bundle, irq_live, irq_program
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply, inspect
from ansible_collections.gpufleet.node.plugins.module_utils.host.irq import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root

PACKAGE = "ansible_collections.gpufleet.node.plugins.module_utils"
NIC, DRIVE, WIRED = "0000:41:00.0", "0000:42:00.0", "0000:43:00.0"
IRQS = {NIC: [30, 31, 32, 33], DRIVE: [40, 41], WIRED: [19]}
UNIT = "[Service]\nEnvironmentFile=-/usr/lib/irqbalance/defaults.env\nEnvironmentFile=-/etc/sysconfig/irqbalance\n"
PLAN = {
    "placement": "housekeeping",
    "irqbalance": "off",
    "default_affinity": "0-3",
    "isolated": "",
    "devices": [{"device": device, "kind": "nic", "numa_node": 0, "cpus": "0,2"} for device in IRQS],
}
KEEP = {**PLAN, "irqbalance": "keep", "isolated": "4-7"}
NONE = {"placement": "none", "irqbalance": "keep", "default_affinity": "", "isolated": "", "devices": []}


def put(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            place.symlink_to(text[3:])
        else:
            place.write_text(text)


def add_irqs(root: Path, device: str, irqs: list[int]) -> None:
    """Message-signalled interrupts as a driver that was just bound gets them."""
    for number in irqs:
        put(
            root,
            {
                f"sys/bus/pci/devices/{device}/msi_irqs/{number}": "msix\n",
                f"proc/irq/{number}/smp_affinity_list": "0-7\n",
                f"proc/irq/{number}/effective_affinity_list": "5\n",
            },
        )


@pytest.fixture
def root(tmp_path):
    """Eight CPUs, a NIC with four vectors, a drive with two, and a card on the wired line 19."""
    add_irqs(tmp_path, NIC, IRQS[NIC])
    add_irqs(tmp_path, DRIVE, IRQS[DRIVE])
    put(
        tmp_path,
        {
            f"sys/bus/pci/devices/{WIRED}/irq": "19\n",
            "proc/irq/19/smp_affinity_list": "0-7\n",
            "proc/irq/19/effective_affinity_list": "5\n",
            "proc/irq/default_smp_affinity": "ff\n",
            "proc/interrupts": "           CPU0       CPU1\n 19:          1          2  IR-IO-APIC   19-fasteoi   card\n",
            "sys/devices/system/cpu/online": "0-7\n",
            "usr/bin/python3.11": "",
            "usr/bin/python3": "-> python3.11",
            "usr/lib/systemd/system/irqbalance.service": UNIT,
            "etc/systemd/system/multi-user.target.wants/irqbalance.service": "-> /usr/lib/systemd/system/irqbalance.service",
            "etc/sysconfig/irqbalance": "IRQBALANCE_ARGS=--journal\nIRQBALANCE_BANNED_CPULIST=\n",
        },
    )
    return tmp_path


def artifacts(root, plan):
    node = Node.at(str(root))
    section = {"interrupts": plan}
    return CONCERN.artifacts(section, CONCERN.read(node.root, node.command, section))


def run(root, plan):
    return apply(artifacts(root, plan), Node.at(str(root)))


def affinities(root):
    return {
        int(path.parent.name): path.read_text().strip()
        for path in sorted((root / "proc/irq").glob("*/smp_affinity_list"), key=lambda p: int(p.parent.name))
    }


def files_of(root):
    """What /etc and /usr hold, links as their targets."""
    return {
        str(path.relative_to(root)): os.readlink(path) if path.is_symlink() else path.read_bytes()
        for top in ("etc", "usr")
        for path in (root / top).rglob("*")
        if not path.is_dir() or path.is_symlink()
    }


def test_apply_places_and_a_second_run_changes_nothing(root):
    first = run(root, PLAN)
    assert first.changed and affinities(root) == {19: "0", 30: "0", 31: "2", 32: "0", 33: "2", 40: "0", 41: "2"}
    assert (root / "proc/irq/default_smp_affinity").read_text() == "0000000f\n"
    assert os.readlink(root / "etc/systemd/system/irqbalance.service") == "/dev/null"
    second = run(root, PLAN)
    assert not second.changed
    assert {f.status for f in second.findings} == {IN_PLACE, PENDING}
    waiting = [f.item for f in second.findings if f.until == "interrupt"]
    assert [item.partition(" (IRQ")[0] for item in waiting] == [f"interrupts of {device}" for device in IRQS]
    assert [f.command[1:] for f in second.findings if f.command] == [("stop", "irqbalance.service"), ("start", "gpufleet-irq.timer")]


def test_interrupts_that_moved_are_in_place(root):
    run(root, PLAN)
    for number, cpu in affinities(root).items():
        (root / f"proc/irq/{number}/effective_affinity_list").write_text(cpu + "\n")
    assert [f.status for f in inspect(artifacts(root, PLAN), Node.at(str(root))) if f.item.startswith("interrupts of")] == [IN_PLACE] * 3


def test_a_hand_moved_interrupt_is_drift_and_is_mended(root):
    run(root, PLAN)
    (root / "proc/irq/31/smp_affinity_list").write_text("6\n")
    drift = [f for f in inspect(artifacts(root, PLAN), Node.at(str(root))) if f.status == DRIFT]
    assert [(f.item, f.before, f.after) for f in drift] == [(f"interrupt 31 of {NIC}", "6", "2")]
    assert run(root, PLAN).changed and affinities(root)[31] == "2"


def test_no_choice_leaves_anything_of_another(root):
    before = files_of(root)
    run(root, PLAN)
    off = files_of(root)
    run(root, KEEP)
    keep = files_of(root)
    assert keep.pop("etc/sysconfig/irqbalance") != before["etc/sysconfig/irqbalance"]
    assert "etc/systemd/system/irqbalance.service" in off and "etc/systemd/system/irqbalance.service" not in keep
    run(root, PLAN)
    assert {**files_of(root), "etc/sysconfig/irqbalance": b""} == {**off, "etc/sysconfig/irqbalance": b""}
    run(root, NONE)
    after = files_of(root)
    # An empty list of banned CPUs, once taken away, isn't brought back: it means nothing good in any version.
    assert after.pop("etc/sysconfig/irqbalance") == b"IRQBALANCE_ARGS=--journal\n"
    assert after == {path: content for path, content in before.items() if path != "etc/sysconfig/irqbalance"}
    assert not run(root, NONE).changed and not run(root, {}).changed


def test_irqbalance_is_off_where_that_is_asked_for_and_nothing_is_placed(root):
    outcome = run(root, {**NONE, "irqbalance": "off"})
    assert outcome.changed and affinities(root)[30] == "0-7"
    assert os.readlink(root / "etc/systemd/system/irqbalance.service") == "/dev/null"
    assert [f.command for f in outcome.findings if f.command] == [("systemctl", "stop", "irqbalance.service")]
    assert not run(root, {**NONE, "irqbalance": "off"}).changed
    run(root, NONE)
    assert not (root / "etc/systemd/system/irqbalance.service").is_symlink()


@pytest.mark.parametrize("extra", [{}, {"usr/lib/systemd/system/crio.service": "[Service]\n"}])
def test_irqbalance_that_is_kept_where_nothing_is_placed_is_left_as_it_is(root, extra):
    put(root, {**extra, "etc/sysconfig/irqbalance": "IRQBALANCE_ARGS=--policyscript=/site/policy\n"})
    outcome = run(root, NONE)
    assert not outcome.changed and {finding.status for finding in outcome.findings} == {IN_PLACE}


def test_isolated_cpus_are_banned_where_nothing_is_placed(root):
    run(root, {**NONE, "isolated": "4-7"})
    assert "IRQBALANCE_BANNED_CPULIST=4-7" in (root / "etc/sysconfig/irqbalance").read_text()
    assert not (root / "usr/local/lib/gpufleet").exists() and not run(root, {**NONE, "isolated": "4-7"}).changed


def test_keep_leaves_irqbalance_its_file_and_the_other_interrupts(root):  # E9
    run(root, KEEP)
    assert (root / "etc/sysconfig/irqbalance").read_text().splitlines() == [
        "IRQBALANCE_ARGS=--journal",
        "# BEGIN gpufleet.node",
        'IRQBALANCE_ARGS="--journal --policyscript=/usr/local/lib/gpufleet/irqbalance-policy"',
        "IRQBALANCE_BANNED_CPULIST=4-7",
        "# END gpufleet.node",
    ]
    assert os.access(root / "usr/local/lib/gpufleet/irqbalance-policy", os.X_OK)
    assert not run(root, KEEP).changed


def test_affinities_are_written_after_irqbalance_was_restarted(root):  # E12
    order = [artifact.item for artifact in artifacts(root, KEEP)]
    assert order.index("irqbalance runs with its settings") < order.index("default interrupt affinity")


def test_the_banned_list_is_left_to_cri_o(root):  # E11
    put(root, {"usr/lib/systemd/system/crio.service": "[Service]\n"})
    outcome = run(root, KEEP)
    assert "BANNED_CPULIST=4" not in (root / "etc/sysconfig/irqbalance").read_text()
    assert [f.item for f in outcome.findings if f.status == FOREIGN] == ["irqbalance banned CPUs"]


def test_another_policy_script_is_left_in_place_and_said(root):
    put(root, {"etc/sysconfig/irqbalance": "IRQBALANCE_ARGS=--policyscript=/site/policy\n"})
    outcome = run(root, KEEP)
    assert "gpufleet/irqbalance-policy" not in (root / "etc/sysconfig/irqbalance").read_text()
    assert [f.item for f in outcome.findings if f.status == FOREIGN] == ["irqbalance policy of somebody else"]


def test_an_administrators_unit_is_not_replaced_by_a_mask(root):
    put(root, {"etc/systemd/system/irqbalance.service": UNIT})
    outcome = run(root, PLAN)
    assert (root / "etc/systemd/system/irqbalance.service").read_text() == UNIT
    assert [f.item for f in outcome.findings if f.status == FOREIGN] == ["irqbalance is masked"]


def test_without_irqbalance_nothing_is_masked(root):
    (root / "usr/lib/systemd/system/irqbalance.service").unlink()
    run(root, PLAN)
    assert not (root / "etc/systemd/system/irqbalance.service").is_symlink()


def test_no_file_of_ours_holds_an_irq_number(root):
    run(root, {**PLAN, "devices": PLAN["devices"][:1]})
    for path in (irq_units.UDEV_RULE, "/etc/gpufleet/irq.json"):
        text = (root / path[1:]).read_text()
        assert NIC in text and not any(str(number) in text.replace(NIC, "") for number in IRQS[NIC])


@pytest.mark.parametrize(
    ("links", "chosen"),
    [
        ({"python3": "python3.9"}, "/usr/bin/python3"),
        ({"python3": "../../etc/alternatives/python3", "python3.6": "platform", "python3.12": "x"}, "/usr/bin/python3.12"),
        ({"python3": "python3.6"}, "/usr/bin/python3"),
    ],
)
def test_the_units_run_the_nodes_own_python(root, links, chosen):
    for path in (root / "usr/bin").iterdir():
        path.unlink()
    put(root, {"etc/alternatives/python3": "-> /usr/bin/python3.6"})
    for name, target in links.items():
        put(root, {f"usr/bin/{name}": f"-> {target}" if name == "python3" else ""})
        if name == "python3" and target == "python3.9":
            put(root, {"usr/bin/python3.9": ""})
    run(root, PLAN)
    assert f"ExecStart={chosen} -I /usr/local/lib" in (root / "etc/systemd/system/gpufleet-irq.service").read_text()


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze isn't installed")
def test_systemd_finds_no_fault_in_the_units(root):
    run(root, PLAN)
    units = root / "etc/systemd/system"
    for name in ("gpufleet-irq.service", "gpufleet-irq-watch.service"):
        text = (units / name).read_text()
        # The program isn't installed on the machine that runs this test.
        (units / name).write_text(text.replace("ExecStart=/usr/bin/python3 ", f"ExecStart={os.path.realpath(sys.executable)} "))
    names = ["gpufleet-irq.service", "gpufleet-irq-watch.service", "gpufleet-irq.timer"]
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(units / name) for name in names)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{units}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, [line for line in found.stderr.splitlines() if "gpufleet" in line]) == (0, [])


# The program ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The shipped file."""
    path = tmp_path_factory.mktemp("program") / "irq_affinity.pyz"
    path.write_bytes(bundle.bundle(irq_program.__name__))
    return path


@pytest.fixture
def planned(root):
    """A node that has the plan and no interrupt in place."""
    put(root, {"etc/gpufleet/irq.json": json.dumps(PLAN)})
    return root


def start(program, root, *arguments, code=""):
    """The program on a root, as the units start it; or code that has it on its path."""
    command = ["-c", code, program] if code else [program]
    return subprocess.run(
        [sys.executable, "-I", *map(str, command), "--root", str(root), *arguments, "/etc/gpufleet/irq.json"],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )


def test_the_program_does_what_the_module_does(program, planned):
    done = start(program, planned)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8 written\n", "")
    assert affinities(planned) == {19: "0", 30: "0", 31: "2", 32: "0", 33: "2", 40: "0", 41: "2"}
    assert start(program, planned).stdout.splitlines()[0] == "0 written"
    assert not [f for f in run(planned, PLAN).found if f.status == DRIFT and f.path.startswith("/proc")]


def test_the_program_looks_again_when_a_device_has_other_interrupts(program, planned):
    start(program, planned, "--if-changed")
    (planned / "proc/irq/30/smp_affinity_list").write_text("6\n")
    assert start(program, planned, "--if-changed").stdout == ""  # somebody moved it: not what the timer is for
    add_irqs(planned, DRIVE, [42])
    # The new one, the moved one, and the next device's, which makes room to keep the load even.
    assert start(program, planned, "--if-changed").stdout.splitlines()[0] == "3 written"
    # Bound anew, the driver gets the same numbers: only the folder is another.
    shutil.move(planned / f"sys/bus/pci/devices/{NIC}/msi_irqs", planned / "former")
    add_irqs(planned, NIC, IRQS[NIC])
    assert start(program, planned, "--if-changed").stdout.splitlines()[0] == "4 written"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "/etc/gpufleet/irq.json is missing."),
        ("{", "/etc/gpufleet/irq.json is damaged."),
        (json.dumps({**PLAN, "placement": "everywhere"}), '"everywhere" is not a known interrupt placement.'),
    ],
)
def test_the_program_says_in_a_sentence_what_it_lacks(program, root, text, sentence):
    if text is not None:
        put(root, {"etc/gpufleet/irq.json": text})
    done = start(program, root)
    assert done.returncode == 1 and done.stderr.startswith(sentence) and "Traceback" not in done.stderr


# A folder can't refuse a write as the kernel does, so these processes get a lowest writer that can. All above it is the shipped program.
FAULTY = """
import sys
program = sys.argv.pop(1)
sys.path.insert(0, program)
from {package}.host import files, irq_program
real = files.write_kernel
def write_kernel(path, text):
    number = path.split("/")[-2]
{fault}
    return real(path, text)
files.write_kernel = write_kernel
sys.exit(irq_program.main())
"""


def faulty(fault):
    return FAULTY.format(package=PACKAGE, fault="".join(f"    {line}\n" for line in fault.splitlines()))


@pytest.mark.parametrize("refusal", ["EIO", "EPERM"])  # E1, E2, E5
def test_interrupts_that_the_kernel_keeps_are_said_and_the_others_placed(program, planned, refusal):
    code = faulty(f'if number in ("40", "41"): return "{refusal}"')
    done = start(program, planned, code=code)
    assert done.returncode == 0 and done.stdout.splitlines()[0] == "6 written"
    assert [line for line in done.stdout.splitlines() if "kernel-managed" in line] == [
        f"interrupt {number} of {DRIVE}: kernel-managed: nobody but the kernel moves it" for number in (40, 41)
    ]
    # Verify writes nothing and knows all the same; a second run doesn't try again.
    findings = {f.item: f.status for f in inspect(artifacts(planned, PLAN), Node.at(str(planned)))}
    assert findings[f"interrupt 40 of {DRIVE}"] == NOT_APPLICABLE
    assert start(program, planned).stdout.splitlines()[0] == "0 written"


def test_a_full_cpu_sends_its_interrupt_to_the_next_one(program, planned):
    code = faulty('if text == "0" and number in ("32", "40"): return "ENOSPC"')
    done = start(program, planned, code=code)
    assert done.returncode == 0 and affinities(planned)[32] == affinities(planned)[40] == "2"
    again = start(program, planned)
    assert again.stdout.splitlines()[0] == "0 written" and affinities(planned)[32] == "2"
    assert f"interrupt 32 of {NIC}: CPU 0: no free interrupt vector, so it stays on 2" in again.stdout


def test_no_room_anywhere_is_said(program, planned):
    done = start(program, planned, code=faulty('if number == "33": return "ENOSPC"'))
    assert done.returncode == 0 and "CPU 0,2: no free interrupt vector, so it stays on 0-7" in done.stdout


def test_an_interrupt_that_goes_meanwhile_is_no_fault(program, planned):  # E4
    fault = 'import shutil\nif number == "33": shutil.rmtree(path.rsplit("/", 1)[0]); return "ENOENT"'
    done = start(program, planned, code=faulty(fault))
    assert done.returncode == 0 and f"interrupt 33 of {NIC}: vanished" in done.stdout
    assert affinities(planned) == {19: "0", 30: "0", 31: "2", 32: "0", 40: "0", 41: "2"}


def test_an_interrupt_that_goes_right_after_the_write_is_no_fault(program, planned):  # E4
    fault = 'import shutil\nif number == "33": shutil.rmtree(path.rsplit("/", 1)[0]); return None'
    done = start(program, planned, code=faulty(fault))
    assert done.returncode == 0 and f"interrupt 33 of {NIC}: vanished" in done.stdout


def test_four_bad_ones_among_hundreds_of_good_ones(program, planned):  # E5, E13
    add_irqs(planned, DRIVE, list(range(100, 944)))
    done = start(program, planned, code=faulty('if number in ("101", "102", "500", "943"): return "EIO"'))
    assert done.returncode == 0 and done.stdout.splitlines()[0] == f"{8 + 840} written"


def test_the_program_is_the_same_wherever_it_is_built(program, tmp_path):
    """Ansible sends modules in an archive: what is built inside one has the bytes of what is built from files."""
    archive = tmp_path / "sent.zip"
    with zipfile.ZipFile(archive, "w") as sent, zipfile.ZipFile(program) as shipped:
        for name in shipped.namelist():
            if name != "__main__.py":
                sent.writestr(name, shipped.read(name))
        sent.writestr(bundle.__name__.replace(".", "/") + ".py", Path(bundle.__file__).read_bytes())
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); from {bundle.__name__} import bundle; "
        f"sys.stdout.buffer.write(bundle({irq_program.__name__!r}))"
    )
    built = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True, cwd="/").stdout
    assert built == program.read_bytes()


def test_the_program_compiles_its_modules_once(program, tmp_path):
    code = (
        "import pwd, runpy, sys, types; compiled = []; "
        f"pwd.getpwuid = lambda user: types.SimpleNamespace(pw_dir={str(tmp_path)!r}); "  # a home where nothing is kept
        "sys.addaudithook(lambda event, what: compiled.append(str(what[1])) if event == 'compile' else None)\n"
        "try: runpy.run_path(sys.argv.pop(1))\n"
        "except SystemExit: print('\\n'.join(compiled))"
    )
    command = [sys.executable, "-I", "-c", code, str(program), "--no-such-option"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    paths = [path for path in said.stdout.split() if "/module_utils/" in path and not path.endswith(("__init__.py", "compile_once.py"))]
    assert len(paths) == len(set(paths)) >= 3


def test_the_program_needs_nothing_but_itself_and_the_standard_library(program):
    with zipfile.ZipFile(program) as shipped:
        modules = [name for name in shipped.namelist() if not name.endswith("__init__.py")]
        assert [name.rpartition("/")[2] for name in modules if "/edge/" in name or "/modules/" in name] == ["compile_once.py"]
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p]; sys.path.insert(0, sys.argv[1]); "
        f"import {PACKAGE}.host.irq_live; "
        "print(sorted({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names if sys.version_info >= (3, 10) else ())))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(program)], capture_output=True, text=True, check=True, cwd="/")
    if sys.version_info >= (3, 10):
        assert done.stdout.strip() == "['__main__', 'ansible_collections']"


# Real data --------------------------------------------------------------------------------------------------------------


@pytest.mark.captures
def test_thousands_of_interrupts(captures, tmp_path):
    """A server with 112 CPUs and 1,874 interrupts: two files for each, and nothing to do the second time."""
    with tarfile.open(captures / "ppc.master.internal.tar.xz") as archive:
        for member in archive:
            if member.isfile() and member.name.startswith(("./proc/irq", "./proc/interrupts", "./sys/devices/system/cpu/online")):
                put(tmp_path, {member.name: archive.extractfile(member).read().decode()})
    # Its kernel doesn't say which device an interrupt belongs to, and the capture has no msi_irqs: twenty devices share them.
    for position, path in enumerate(sorted(tmp_path.glob("proc/irq/*/smp_affinity_list"))):
        put(tmp_path, {f"sys/bus/pci/devices/0000:{position % 20:02x}:00.0/msi_irqs/{path.parent.name}": "msix\n"})
    devices = [{"device": f"0000:{n:02x}:00.0", "kind": "nic", "numa_node": 0, "cpus": ("0,56", "1,57")[n % 2]} for n in range(20)]
    plan = {**PLAN, "devices": devices}
    looked = Root(str(tmp_path))
    live = irq_live.read_live(looked, plan)
    count = sum(map(len, live.interrupts.values()))
    assert count > 1800 and len(looked.opened) <= 2 * count + 5
    assert run(tmp_path, plan).changed and not run(tmp_path, plan).changed
    spread = Counter(affinities(tmp_path).values())
    assert set(spread) == {"0", "1", "56", "57"} and max(spread.values()) - min(spread.values()) <= 1


@pytest.mark.skipif(
    os.geteuid() != 0 or not list(Path("/proc/irq").glob("*/smp_affinity_list")), reason="needs root and interrupts of this machine"
)
def test_this_kernel_tells_its_managed_interrupts_without_a_write():
    """The question changes nothing, and agrees with kernels that show the answer as the file's mode."""
    before = {path: path.read_text() for path in Path("/proc/irq").glob("*/smp_affinity_list")}
    numbers = {int(path.parent.name): path for path in before}
    managed = irq_live.managed(Root("/"), numbers)
    assert {path: path.read_text() for path in before} == before
    read_only = {number for number, path in numbers.items() if not stat.S_IMODE(path.stat().st_mode) & stat.S_IWUSR}
    assert read_only <= managed
    if read_only:  # such a kernel marks all of them
        assert managed == read_only
