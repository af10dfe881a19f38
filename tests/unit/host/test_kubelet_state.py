"""kubelet's state files on folders that stand for nodes, and the program that looks at them at boot, as a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import user_systemd
import yaml
from kubelet_states import cpu_state, memory_state, sealed
from strategies import make_topology

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_state_unit
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_merge import as_flags
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Kubelet
from ansible_collections.gpufleet.node.plugins.module_utils.host import bundle, kubelet_state_program
from ansible_collections.gpufleet.node.plugins.module_utils.host.apply import Node, apply
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.kubelet import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.host.kubelet_state import in_use, read_machine
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines.build import build, load
from machines.scratch import scratch

GIB, MIB = 1 << 30, 1 << 20
SIZES = {0: 64 * GIB, 1: 63 * GIB + 4096}
PAGES = {0: {2 * MIB: 512, GIB: 0}, 1: {2 * MIB: 0, GIB: 0}}
RESERVED = {0: GIB, 1: GIB}
CONFIGURATION = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: 0,4
memoryManagerPolicy: Static
evictionHard:
  memory.available: 2Gi
reservedMemory:
- numaNode: 0
  limits:
    memory: 1Gi
- numaNode: 1
  limits:
    memory: 1Gi
"""
UNIT = "[Service]\nExecStart=%s\n[Install]\nWantedBy=multi-user.target\n"
UNITS = {
    "kubelet.service": "/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml",
    "k3s.service": "/usr/local/bin/k3s server",
    "k3s-agent.service": "/usr/local/bin/k3s agent",
    "rke2-server.service": "/usr/local/bin/rke2 server",
    "rke2-agent.service": "/usr/local/bin/rke2 agent",
}


class Machine:
    """Two NUMA nodes of four CPUs below a folder, with a kubelet of 1.34 that has run well."""

    def __init__(self, root: Path, unit: str = "kubelet.service", folder: str = "/var/lib/kubelet", more: str = "") -> None:
        self.root, self.folder = root, folder
        self.put("/sys/devices/system/cpu/online", "0-7\n")
        for node, size in SIZES.items():
            self.memory(node, size)
            for page, count in PAGES[node].items():
                self.pages(node, page, count)
        self.put("/usr/lib/systemd/system/" + unit, UNIT % (UNITS[unit] + more))
        self.put("/etc/kubernetes/kubelet.conf.d/00-cluster.conf", CONFIGURATION)
        self.put("/var/lib/kubelet/config.yaml", CONFIGURATION)
        for name in ("k3s", "rke2"):
            self.put("/var/lib/rancher/%s/agent/etc/kubelet.conf.d/00-x.conf" % name, CONFIGURATION)
        self.version("1.34.4")
        self.state("cpu_manager_state", cpu_state("0-7", 34))
        self.state("memory_manager_state", memory_state({node: (SIZES[node], PAGES[node]) for node in SIZES}, RESERVED, 34))

    def put(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def memory(self, node: int, size: int) -> None:
        self.put(
            "/sys/devices/system/node/node%d/meminfo" % node,
            "Node %d MemTotal:  %d kB\nNode %d MemFree: 1 kB\n" % (node, size // 1024, node),
        )

    def pages(self, node: int, size: int, count: int) -> None:
        self.put("/sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages" % (node, size // 1024), "%d\n" % count)

    def version(self, version: str) -> None:
        self.put("/var/lib/dpkg/status", "Package: kubelet\nStatus: install ok installed\nVersion: %s-1.1\n\n" % version)

    def state(self, name: str, text: str) -> None:
        self.put("%s/%s" % (self.folder, name), text)

    @property
    def states(self) -> dict[str, str]:
        folder = self.root / self.folder.lstrip("/")
        return {path.name: path.read_text() for path in folder.glob("*_state")}

    @property
    def aside(self) -> dict[str, str]:
        folder = self.root / "var/lib/gpufleet/set-aside" / self.folder.lstrip("/")
        return {path.name: path.read_text() for path in folder.glob("*_state")}

    def boot(self, program: Path) -> list[str]:
        """The program's lines."""
        done = subprocess.run([sys.executable, "-I", str(program), "--root", str(self.root)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped file."""
    path = tmp_path_factory.mktemp("program") / "kubelet_state.pyz"
    path.write_bytes(bundle.bundle(kubelet_state_program.__name__))
    return path


@pytest.mark.parametrize("unit", UNITS)
def test_a_boot_that_changed_nothing_leaves_the_state(tmp_path: Path, program: Path, unit: str) -> None:
    machine = Machine(tmp_path, unit)
    before = machine.states
    assert machine.boot(program) == []
    assert machine.states == before and len(before) == 2 and not machine.aside


def test_our_own_part_counts_at_boot(tmp_path: Path, program: Path) -> None:
    """A folder that our part of kubelet's unit passes, and flags that k3s and RKE2 have from us."""
    kubeadm = Machine(tmp_path / "kubeadm")
    kubeadm.put("/var/lib/kubelet/config.yaml", CONFIGURATION[: CONFIGURATION.index("cpuManagerPolicy")])
    drop_in = "[Service]\nExecStart=\nExecStart=%s --config-dir=/etc/kubernetes/kubelet.conf.d\n" % UNITS["kubelet.service"]
    kubeadm.put("/etc/systemd/system/kubelet.service.d/zz-gpufleet-config-dir.conf", drop_in)
    rke2 = Machine(tmp_path / "rke2", "rke2-agent.service")
    shutil.rmtree(tmp_path / "rke2/var/lib/rancher/rke2/agent")
    words = as_flags(yaml.safe_load(CONFIGURATION))
    rke2.put("/etc/rancher/rke2/config.yaml.d/zz-gpufleet.yaml", yaml.safe_dump({"kubelet-arg+": words}))
    for machine in (kubeadm, rke2):
        assert machine.boot(program) == [] and len(machine.states) == 2


@pytest.mark.parametrize("unit", UNITS)
def test_a_boot_with_other_memory(tmp_path: Path, program: Path, unit: str) -> None:  # B4
    machine = Machine(tmp_path, unit)
    machine.memory(1, SIZES[1] + 43_696_128)
    before = machine.states
    (line,) = machine.boot(program)
    assert (
        "memory_manager_state is taken away, because kubelet would not start on it (it has 67645739008 bytes of memory on NUMA node 1"
        in line
    )
    assert set(machine.states) == {"cpu_manager_state"}
    assert machine.aside == {"memory_manager_state": before["memory_manager_state"]}
    assert machine.boot(program) == []


def gpu_memory_online(machine: Machine) -> None:
    machine.memory(2, 96 * GIB)


def hugepages_missing(machine: Machine) -> None:
    machine.pages(0, 2 * MIB, 300)


def cpus_missing(machine: Machine) -> None:
    machine.put("/sys/devices/system/cpu/online", "0-6\n")


def configured_anew(machine: Machine) -> None:
    machine.put(
        "/var/lib/kubelet/config.yaml", CONFIGURATION.replace("static", "none").replace("Static", "None").partition("reservedMemory")[0]
    )


def strictly(machine: Machine) -> None:
    machine.put("/var/lib/kubelet/config.yaml", CONFIGURATION + 'cpuManagerPolicyOptions:\n  strict-cpu-reservation: "true"\n')


def cut_short(machine: Machine) -> None:
    machine.state("cpu_manager_state", "")
    machine.state("memory_manager_state", machine.states["memory_manager_state"][:-20])


def downgraded(machine: Machine) -> None:
    content = {"policyName": "static", "defaultCpuSet": "0-3", "podEntries": {"gone": {"cpuSet": "4-7"}}}
    machine.state("cpu_manager_state", sealed("cpu_manager_state", content, 36, pod_level=True))


def upgraded(machine: Machine) -> None:
    machine.version("1.37.2")


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (gpu_memory_online, {"cpu_manager_state"}),
        (hugepages_missing, {"cpu_manager_state"}),  # B14
        (cpus_missing, {"memory_manager_state"}),  # A2, A5, A26
        (configured_anew, set()),  # A1: what waited for the boot
        (strictly, {"memory_manager_state"}),  # A18
        (cut_short, set()),  # A27
        (downgraded, {"memory_manager_state"}),
        (upgraded, {"cpu_manager_state", "memory_manager_state"}),
    ],
)
def test_what_a_boot_changes(tmp_path: Path, program: Path, change, left: set[str]) -> None:
    machine = Machine(tmp_path)
    change(machine)
    before = machine.states
    lines = machine.boot(program)
    assert set(machine.states) == left
    assert len(lines) == 2 - len(left) and machine.aside == {name: before[name] for name in {*before} - left}


def test_another_root_folder(tmp_path: Path, program: Path) -> None:  # A1
    machine = Machine(tmp_path, folder="/data/kubelet", more=" --root-dir=/data/kubelet")
    cut_short(machine)
    machine.put("/var/lib/kubelet/cpu_manager_state", "not its own")
    assert len(machine.boot(program)) == 2 and not machine.states and len(machine.aside) == 2
    assert (tmp_path / "var/lib/kubelet/cpu_manager_state").exists()


def test_pods_that_run_keep_their_state(tmp_path: Path, program: Path) -> None:  # A27: no fresh boot after all
    machine = Machine(tmp_path)
    machine.state("cpu_manager_state", cpu_state("0,2-4,6", 34, entries={"12-ab": {"main": "1,5"}}))  # CPU 7 is missing
    machine.put("/sys/fs/cgroup/kubepods.slice/kubepods-pod12_ab.slice/cgroup.events", "populated 1\n")
    (line,) = machine.boot(program)
    assert "stays" in line and "pod 12-ab (main) runs by it" in line and len(machine.states) == 2


def test_a_node_without_kubelet_or_state(tmp_path: Path, program: Path) -> None:
    (tmp_path / "etc").mkdir()
    Machine.boot(type("Bare", (), {"root": tmp_path})(), program)
    assert list(tmp_path.iterdir()) == [tmp_path / "etc"]
    assert subprocess.run([sys.executable, str(program), "--wrong"], capture_output=True, check=False).returncode == 2


def test_what_cant_be_read_is_said_and_nothing_goes(tmp_path: Path, program: Path) -> None:
    machine = Machine(tmp_path)
    cut_short(machine)
    machine.put("/var/lib/kubelet/config.yaml", "a file that is no configuration\n")
    done = subprocess.run([sys.executable, str(program), "--root", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "/var/lib/kubelet/config.yaml" in done.stderr and len(machine.states) == 2


# The machine and who is at work on it ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reference", "gb200", "cloudvm", "power9", "nosmt"])
def test_the_machine_is_that_of_the_facts(name: str) -> None:
    with scratch() as folder:
        root = Root(str(build(load(name), folder / "root")))
        machine, facts = read_machine(root), read_topology(root, Command(root), ())
    assert machine.online == facts.cpus.online  # A30
    assert {id: node.memory_bytes for id, node in machine.nodes.items()} == {node.id: node.memory_bytes for node in facts.numa_nodes}
    pools = {node.id: {size: pool.total for size, pool in node.hugepages.items()} for node in facts.numa_nodes}
    assert {id: node.hugepages for id, node in machine.nodes.items()} == pools


def test_who_holds_cpus(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    root = Root(str(tmp_path))
    text = cpu_state("0,4", 34, entries={"11-aa": {"main": "1"}, "22-bb": {"main": "2"}, "33-cc": {"main": "3"}})
    states = {"cpu_manager_state": text}
    assert len(in_use(root, states, 34)) == 3  # kubelet's cgroups aren't where they are known to be: every entry counts
    for pod, populated in (("11_aa", 1), ("22_bb", 0), ("44_dd", 1)):
        machine.put("/sys/fs/cgroup/kubepods.slice/kubepods-pod%s.slice/cgroup.events" % pod, "populated %d\nfrozen 0\n" % populated)
    (tmp_path / "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice").mkdir()
    (tmp_path / "var/log/pods/prod_web-0_11-aa").mkdir(parents=True)
    assert in_use(root, states, 34) == ["pod prod/web-0 (main)"]
    # By a file that nobody can read, every Guaranteed pod that runs may hold some.
    assert in_use(root, {"cpu_manager_state": "{"}, 34) == ["pod prod/web-0", "pod 44-dd"]
    assert in_use(root, {}, 34) == []


def test_who_holds_cpus_with_the_other_driver(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup/cpuset/kubepods/pod11-aa").mkdir(parents=True)
    states = {"cpu_manager_state": cpu_state("0,4", 34, entries={"11-aa": {"main": "1"}, "22-bb": {"main": "2"}})}
    assert in_use(Root(str(tmp_path)), states, 34) == ["pod 11-aa (main)"]


# The unit --------------------------------------------------------------------------------------------------------------------


def run(root: Path, unit: str) -> None:
    kubelet = Kubelet("plain", unit, "1.34.4", config_file="/var/lib/kubelet/config.yaml")
    wanted = {"kubelet": build_plan(make_topology(kubelet=kubelet), policy_from_variables({})).kubelet if unit else {}}
    node = Node.at(str(root))
    apply(CONCERN.artifacts(wanted, CONCERN.read(node.root, node.command, wanted)), node)


def test_the_unit_follows_the_kubelet_that_there_is_and_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    for unit in ("kubelet.service", "rke2-agent.service"):
        run(tmp_path, unit)
        links = [path.relative_to(tmp_path) for path in (tmp_path / "etc/systemd/system").glob("*.wants/*")]
        assert [str(path) for path in links] == ["etc/systemd/system/%s.wants/%s" % (unit, kubelet_state_unit.SERVICE)]
        assert os.readlink(tmp_path / links[0]) == "/etc/systemd/system/" + kubelet_state_unit.SERVICE
        assert "Before=%s\n" % unit in (tmp_path / "etc/systemd/system" / kubelet_state_unit.SERVICE).read_text()
    assert (tmp_path / kubelet_state_unit.PROGRAM.lstrip("/")).stat().st_mode & 0o777 == 0o755
    run(tmp_path, "")
    assert not [path for path in tmp_path.rglob("*kubelet*state*") if path.is_file() and "originals" not in str(path)]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze isn't installed")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path, unit: str) -> None:
    (tmp_path / "etc").mkdir()
    run(tmp_path, unit)
    units = tmp_path / "etc/systemd/system"
    own = units / kubelet_state_unit.SERVICE
    # The program isn't installed on the machine that runs this test, and no kubelet.
    own.write_text(own.read_text().replace("ExecStart=/usr/bin/python3 ", "ExecStart=%s " % os.path.realpath(sys.executable)))
    (units / unit).write_text(UNIT % "/bin/true")
    found = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(own), str(units / unit)],
        env={**os.environ, "SYSTEMD_UNIT_PATH": "%s:" % units},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, [line for line in found.stderr.splitlines() if "gpufleet" in line or unit in line]) == (0, [])


@pytest.mark.skipif(not user_systemd.runs(), reason="no systemd can be run in name spaces here")
def test_it_runs_once_before_kubelet_and_not_at_its_restart(tmp_path: Path) -> None:
    (tmp_path / "node/etc").mkdir(parents=True)
    run(tmp_path / "node", "kubelet.service")
    text = (tmp_path / "node/etc/systemd/system" / kubelet_state_unit.SERVICE).read_text()
    # A user's manager has no name spaces and capabilities to give: what counts here is the order.
    kept = [line for line in text.splitlines() if line.startswith(("[Unit]", "[Service]", "Before=", "Type=", "RemainAfterExit="))]
    log = tmp_path / "log"
    own = "\n".join((*kept, "ExecStart=/bin/sh -c 'sleep 0.2; echo check >> %s'" % log)) + "\n"
    kubelet = "[Service]\nExecStartPre=/bin/sh -c 'echo kubelet >> %s'\nExecStart=/bin/sleep 60\n" % log
    ends = "[Unit]\nSuccessAction=exit-force\nFailureAction=exit-force\nDefaultDependencies=no\n[Service]\nType=oneshot\n"
    commands = (
        "systemctl --user start kubelet; systemctl --user restart kubelet; systemctl --user stop kubelet; systemctl --user start kubelet"
    )
    units = {
        kubelet_state_unit.SERVICE: own,
        "kubelet.service": kubelet + "[Unit]\nWants=%s\n" % kubelet_state_unit.SERVICE,  # what the link in its .wants folder says
        "driver.service": ends + "ExecStart=/bin/sh -c '%s; sleep 0.3'\n" % commands,
    }
    with user_systemd.start(tmp_path / "home", "driver.service", units) as process:
        process.wait()
    assert log.read_text().split() == ["check", "kubelet", "kubelet", "kubelet"]


def test_the_program_is_the_same_each_time(program: Path) -> None:
    assert program.read_bytes() == bundle.bundle(kubelet_state_program.__name__)
