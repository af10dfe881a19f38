"""A kubelet in place of the real one: it answers healthz at once, then starts its managers, and exits on a state file that doesn't fit.

    python kubelet_stand_in.py CONFIGURATION STATE_FOLDER ONLINE PORT [FIELD=VALUE …]

What follows the port is what it is told by flags. It refuses the topology policy "restricted", as some kubelets refuse some configurations.
"""

from __future__ import annotations

import http.server
import json
import sys
import threading
import time
from pathlib import Path

import yaml
from kubelet_states import cpu_state, sealed

from ansible_collections.gpufleet.node.plugins.module_utils.core.cpuset import CpuSet, union


class Healthz(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_arguments: object) -> None:
        pass


def main(configuration: str, folder: str, online: str, port: str, *flags: str) -> None:
    fields = {**yaml.safe_load(Path(configuration).read_text()), **dict(flag.split("=") for flag in flags)}
    print("I1130 starting", flush=True)
    server = http.server.HTTPServer(("127.0.0.1", int(port)), Healthz)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    time.sleep(0.2)
    if fields.get("topologyManagerPolicy") == "restricted":
        sys.exit('E1130 "Failed to run kubelet" err="this kubelet takes no topology policy restricted"')
    start_managers(fields, Path(folder), CpuSet.parse(online))
    listen(Path(folder) / "device-plugins/kubelet.sock")
    threading.Event().wait()


def listen(path: Path) -> None:
    """The device manager, which is the last: its socket is new at each start."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch()  # a socket's path may be no longer than 108 bytes; what counts is that it is there


def start_managers(fields: dict, folder: Path, online: CpuSet) -> None:
    cpu_policy, memory_policy = fields.get("cpuManagerPolicy", "none"), fields.get("memoryManagerPolicy", "None")
    cpu, memory = folder / "cpu_manager_state", folder / "memory_manager_state"
    for path, policy in ((cpu, cpu_policy), (memory, memory_policy)):
        found = json.loads(path.read_text())["policyName"] if path.exists() else policy
        if found != policy:
            sys.exit('E1130 "Failed to start ContainerManager" err="configured policy %s differs from %s"' % (policy, found))
    if cpu_policy == "static" and cpu.exists():
        state = json.loads(cpu.read_text())
        shared, reserved = CpuSet.parse(state["defaultCpuSet"]), CpuSet.parse(str(fields["reservedSystemCPUs"]))
        given = union(CpuSet.parse(cpus) for containers in state.get("entries", {}).values() for cpus in containers.values())
        if reserved - shared or (shared | given) != online:
            sys.exit('E1130 "Failed to start ContainerManager" err="not all reserved cpus are present in defaultCpuSet"')
    if not cpu.exists():
        cpu.write_text(cpu_state(str(online) if cpu_policy == "static" else "", 34, policy=cpu_policy))
    if not memory.exists():
        memory.write_text(sealed("memory_manager_state", {"policyName": memory_policy, "machineState": {}}, 34))


if __name__ == "__main__":
    main(*sys.argv[1:])
