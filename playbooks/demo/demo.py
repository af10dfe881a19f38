"""Build the example fleet, run playbooks/site.yml on it twice, and show each node's plan and what was written.

    python playbooks/demo/demo.py [--keep FOLDER] [--brief] [HOST ...]

No root is needed: each node is a folder with the /sys, /proc, /etc and /boot files of its machine, and the playbook that is run
is the one that runs on a fleet. With --keep the folder stays, to look around in it.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
COLLECTIONS = REPOSITORY / "playbooks" / "collections"
sys.path[:0] = [str(COLLECTIONS), str(REPOSITORY / "tests")]

import yaml  # noqa: E402

from ansible_collections.gpufleet.node.plugins.module_utils.core import codec  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import policy_from_variables  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.report import plan_lines  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.host.command import Command  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.host.root import Root  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.host.topology import read_topology  # noqa: E402
from machines import build  # noqa: E402

DIFF_LINES = 14
KERNEL_ROWS = 12


def main() -> int:
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="gpufleet-demo-") as temporary:
        fleet = Path(arguments.keep or temporary)
        hosts = fleet_variables()
        chosen = arguments.hosts or list(hosts)
        started = time.monotonic()
        for host in chosen:
            step(f"building {host}")
            build.build(build.load(host), fleet / host)
        plans = {host: plan_of(fleet / host, hosts[host]) for host in chosen}
        before = {host: snapshot(fleet / host) for host in chosen}
        step("running playbooks/site.yml on the fleet")
        first = run_site(fleet, chosen)
        step("running it again: a second run must change nothing")
        second = run_site(fleet, chosen)
        shown: dict[tuple[str, ...], str] = {}
        for host in chosen:
            show_node(host, plans[host], before[host], snapshot(fleet / host), None if arguments.brief else shown)
        heading("The two runs")
        print(recap(first, "first run"))
        print(recap(second, "second run"))
        print(f"\n{len(chosen)} nodes in {time.monotonic() - started:.0f} seconds.")
        print("Next: playbooks/plan.yml prints the plan of a real node and touches nothing; README.md says how to name yours.")
        if arguments.keep:
            print(f"The roots of the nodes are in {fleet}.")
        changed_again = re.search(r"changed=[1-9]", second)
        return 1 if changed_again else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("hosts", nargs="*", metavar="HOST", help="nodes of playbooks/demo/inventory.yml; all of them by default")
    parser.add_argument("--keep", metavar="FOLDER", help="build the roots there and leave them")
    parser.add_argument("--brief", action="store_true", help="plans only, without what was written")
    arguments = parser.parse_args()
    unknown = set(arguments.hosts) - set(fleet_variables())
    if unknown:
        parser.error("unknown: %s; the fleet has %s" % (", ".join(sorted(unknown)), ", ".join(fleet_variables())))
    return arguments


def fleet_variables() -> dict[str, dict]:
    """The policy variables of each host, by group and host as the inventory has them."""
    inventory = yaml.safe_load((HERE / "inventory.yml").read_text(encoding="utf-8"))
    found = {}
    for group in inventory["all"]["children"].values():
        for host, own in group["hosts"].items():
            found[host] = {**group.get("vars", {}), **(own or {})}
    return found


def plan_of(root: Path, variables: dict) -> list[str]:
    node = Root(str(root))
    topology = read_topology(node, Command(node))
    plan = build_plan(topology, policy_from_variables(variables))
    return plan_lines(codec.to_json(plan), codec.to_json(topology))


def run_site(fleet: Path, hosts: list[str]) -> str:
    environment = {
        **os.environ,
        "GPUFLEET_DEMO": str(fleet),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "0",
        "ANSIBLE_FORKS": "4",
    }
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(HERE / "inventory.yml"), "--limit", ",".join(hosts)]
    done = subprocess.run(
        [*command, str(REPOSITORY / "playbooks" / "site.yml")], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"playbooks/site.yml failed:\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def recap(output: str, label: str) -> str:
    counts = r"^(\S+)\s+: ok=(\d+)\s+changed=(\d+)\s+unreachable=\d+\s+failed=(\d+)"
    rows = re.findall(counts, output.partition("PLAY RECAP")[2], re.MULTILINE)
    return "\n".join(f"{label:<11} {host:<12} ok={ok:<3} changed={changed:<3} failed={failed}" for host, ok, changed, failed in rows)


def snapshot(root: Path) -> dict[str, str]:
    """All files and links below /etc, /boot, /usr/local, /proc/sys, /proc/irq and the settings in /sys, as text."""
    found = {}
    for top in (
        "etc",
        "boot",
        "usr/local",
        "var/lib/kubelet",
        "var/lib/rancher",
        "proc/sys",
        "proc/irq",
        "sys/kernel/mm",
        "sys/devices/system",
    ):
        for folder, _folders, names in os.walk(root / top):
            for name in names:
                path = Path(folder, name)
                inside = "/" + str(path.relative_to(root))
                if path.is_symlink():
                    found[inside] = f"link to {os.readlink(path)}\n"
                elif path.is_file():
                    found[inside] = path.read_bytes().decode("utf-8", "replace")
    return found


def show_node(host: str, plan: list[str], before: dict[str, str], after: dict[str, str], shown: dict[tuple[str, ...], str] | None) -> None:
    """The plan and what was written; ``shown`` are the changes seen before, by path and lines, with their node. None is for plans only."""
    heading(host)
    print("\n".join(plan))
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    kernel = [path for path in changed if path.startswith(("/proc/", "/sys/"))]
    files = [path for path in changed if path not in kernel]
    print(f"\nwritten: {len(files)} files, {len(kernel)} kernel values")
    if shown is None:
        return
    for path in files:
        lines = change_lines(before.get(path), after.get(path))
        sign = "-" if path not in after else "~" if path in before else "+"
        first = shown.setdefault((path, *lines), host)
        print(f"  {sign} {path}{f'  (as on {first})' if first != host else ''}")
        for line in lines if first == host else ():
            print(f"      {line}")
    groups: dict[tuple[str, str, str], int] = {}
    for path in kernel:
        shape = re.sub(r"/\d+(?=/)|(?<=cpu)\d+|(?<=policy)\d+", lambda match: "/N" if match.group().startswith("/") else "N", path)
        values = (shape, before.get(path, "").split("\n")[0], after.get(path, "").split("\n")[0])
        groups[values] = groups.get(values, 0) + 1
    rows = sorted(groups.items(), key=lambda row: -row[1])
    for (path, old, new), count in rows[:KERNEL_ROWS]:
        print(f"  {path}{f' ({count}x)' if count > 1 else ''}: {' '.join(old.split())} -> {' '.join(new.split())}")
    if len(rows) > KERNEL_ROWS:
        print(f"  ... and {len(rows) - KERNEL_ROWS} more kinds of values")


def change_lines(old: str | None, new: str | None) -> list[str]:
    """What changed in a file, cut after DIFF_LINES lines."""
    if new is None:
        return []
    if "\0" in new or "\ufffd" in new:
        return [f"({len(new)} bytes)"]
    lines = list(difflib.unified_diff((old or "").splitlines(), new.splitlines(), n=0, lineterm=""))[2:]
    changed = [line[:150] for line in lines if not line.startswith("@@")]
    more = [f"... {len(changed) - DIFF_LINES} more lines"] if len(changed) > DIFF_LINES else []
    return changed[:DIFF_LINES] + more


def heading(text: str) -> None:
    print(f"\n=== {text} {'=' * max(3, 110 - len(text))}\n")


def step(text: str) -> None:
    print(f"... {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
