"""A converged run of ours against the same settings as one task each (peer.yml), on the same node, in turn.

The peers' collections come with the package `ansible`; it is installed beside the others, without its dependencies, on first use.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from fleet import REPOSITORY, Fleet
from table import Row

from ansible_collections.gpufleet.node.plugins.module_utils.core.codec import to_json
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology
from machines.scratch import scratch

ANSIBLE = "14.5.0"  # the community package that goes with the pinned ansible-core
ROUNDS = 3
POLICY = {"gpufleet_profile": "isolated"}


def peers() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpufleet" / f"ansible-{ANSIBLE}"
    if not (folder / "ansible_collections" / "ansible" / "posix").is_dir():
        print(f"    installing the package ansible {ANSIBLE} once, for the peers' collections", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), f"ansible=={ANSIBLE}"]
        subprocess.run(command, check=True)
    return folder


def peer_variables(root: Path) -> dict:
    """What our plan writes on this node, in the shapes that the peer's tasks take."""
    node = Root(str(root))
    plan = to_json(build_plan(read_topology(node, Command(node)), policy_from_variables(POLICY)))
    fstab = [line.split() for line in (root / "etc/fstab").read_text().splitlines() if line.strip() and not line.startswith("#")]
    limits = {"memlock": plan["limits"]["memlock"], "nofile": plan["limits"]["nofile"]}
    configuration = plan["kubelet"]["configuration"]
    return {
        "sysctls": plan["sysctl"],
        "thp": plan["transparent_hugepage"],
        "swaps": [{"src": fields[0], "path": fields[1]} for fields in fstab if fields[2] == "swap"],
        "limits": limits,
        "service_limits": {"DefaultLimitMEMLOCK": "infinity", "DefaultLimitNOFILE": limits["nofile"]},
        "kernel_arguments": plan["kernel_arguments"],
        "kubelet": {key: value for key, value in configuration.items() if key not in ("apiVersion", "kind")},
    }


def rows() -> list[Row]:
    collections = (peers(),)
    site, peer = REPOSITORY / "playbooks" / "site.yml", Path(__file__).with_name("peer.yml")
    with scratch() as folder:
        # Two copies of the node: on one they would undo each other's work.
        ours = Fleet(folder / "ours", "reference", 1, collections)
        theirs = Fleet(folder / "theirs", "reference", 1, collections)
        their_root = theirs.folder / theirs.hosts[0]
        for place in ("etc/security/limits.d", "etc/systemd/system/containerd.service.d"):
            (their_root / place).mkdir(parents=True, exist_ok=True)  # as a distribution or an administrator made it
        settings = theirs.folder / "settings.json"
        settings.write_text(json.dumps(peer_variables(their_root)))
        policy = ours.folder / "policy.json"
        policy.write_text(json.dumps(POLICY))
        theirs.run(peer, "-e", f"@{settings}")
        ours.run(site, "-e", f"@{policy}")
        rounds = []
        for _round in range(ROUNDS):
            their_seconds, their_calls, their_output = theirs.run(peer, "-e", f"@{settings}")
            our_seconds, our_calls, our_output = ours.run(site, "-e", f"@{policy}")
            for output in (their_output, our_output):
                if re.search(r"changed=[1-9]", output):
                    raise SystemExit(f"not converged:\n{output[-3000:]}")
            rounds.append((our_seconds / their_seconds, our_seconds, their_seconds))
        ratio, our_seconds, their_seconds = sorted(rounds)[ROUNDS // 2]
        counts = [len(calls[ours.hosts[0]]) for calls in (our_calls, their_calls)]
        detail = f"{counts[0]} module calls against {counts[1]}; CPU {our_seconds:.1f} s against {their_seconds:.1f} s"
        return [Row("converged site.yml / the same settings as single tasks", ratio, 0.15, detail=detail)]
