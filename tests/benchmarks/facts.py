"""What topology_facts costs as an Ansible task, against setup, both over ping.

    python tests/benchmarks facts

Each module is a playbook of CALLS tasks on the live root of this machine; the playbooks take turns. The floor, ping, holds what any module
call costs. Elapsed time is what a user waits for; CPU time is shown beside it. So is a task on the capture of a machine with
112 CPUs, 300 PCI functions and 1,857 device interrupts.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from captures.unpack import CAPTURES, unpacked
from table import Row

REPOSITORY = Path(__file__).resolve().parents[2]
PLAYBOOK = Path(sys.executable).parent / "ansible-playbook"
FLOOR, OURS, PEER = "ansible.builtin.ping", "gpufleet.node.topology_facts", "ansible.builtin.setup"
CAPTURE = "ppc.master.internal"
CALLS, ROUNDS = 10, 3
LIMIT = 0.25

PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - {module}: {arguments}
      loop: "{{{{ range({calls}) | list }}}}"
      loop_control: {{label: ""}}
"""


def run(module: str, folder: Path, arguments: str = "") -> tuple[float, float]:
    """Elapsed and CPU seconds of one playbook."""
    playbook = folder / f"{module}.yml"
    playbook.write_text(PLAY.format(module=module, arguments=arguments, calls=CALLS))
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(REPOSITORY / "playbooks" / "collections")}
    command = [str(PLAYBOOK), "-i", "localhost,", "-e", f"ansible_python_interpreter={sys.executable}", str(playbook)]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    elapsed, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{module} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        turns = [[run(module, Path(temporary)) for module in (FLOOR, OURS, PEER)] for _round in range(ROUNDS)]
        captured = list(on_capture(Path(temporary), statistics.median(floor[0] for floor, *_others in turns)))
    elapsed, cpu = (statistics.median((ours[i] - floor[i]) / (peer[i] - floor[i]) for floor, ours, peer in turns) for i in (0, 1))
    medians = [statistics.median(turn[i][0] for turn in turns) / CALLS for i in range(3)]
    detail = "a call: ping {:.2f} s, topology_facts {:.2f} s, setup {:.2f} s".format(*medians)
    return [
        Row("topology_facts over ping / setup over ping", elapsed, LIMIT, "elapsed", detail),
        Row("the same in CPU time", cpu, unit="CPU", detail="Ansible's own share included"),
        *captured,
    ]


def on_capture(folder: Path, floor: float) -> Iterator[Row]:
    """A task that reads the captured machine, in seconds over ping, whose playbook took ``floor`` seconds."""
    if not (CAPTURES / f"{CAPTURE}.tar.xz").is_file():
        return
    elapsed, _cpu = run(OURS, folder, f"{{root: {unpacked(CAPTURE)}}}")
    yield Row(
        "topology_facts on a capture with 112 CPUs, over ping",
        (elapsed - floor) / CALLS,
        unit="s",
        detail=f"a call: {elapsed / CALLS:.2f} s",
    )
