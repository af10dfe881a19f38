"""Run on a node: what it has while it is up of what a run may change, as JSON: the kernel's values, systemd's, the swap in use."""

import glob
import json
import resource
import subprocess

PATTERNS = (
    *("/proc/sys/vm/*", "/proc/sys/kernel/*", "/proc/sys/fs/*", "/proc/sys/net/core/*", "/proc/sys/net/ipv4/*"),
    *("/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/mm/transparent_hugepage/defrag"),
    *("/sys/devices/system/node/node*/hugepages/*/nr_hugepages", "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"),
    "/proc/irq/default_smp_affinity",
)
SLICES = ("system.slice", "user.slice", "init.scope")
SERVICES = ("irqbalance", "tuned")


def text(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:  # a folder, or one that is only written
        return None


def said(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()


found = {path: text(path) for pattern in PATTERNS for path in glob.glob(pattern)}
online = text("/sys/devices/system/cpu/online")
# Without the controller there is no file, and nothing is kept from any CPU.
found.update(("CPUs of " + name, text("/sys/fs/cgroup/%s/cpuset.cpus.effective" % name) or online) for name in SLICES)
found["limits of services"] = said("systemctl", "show", "--property=DefaultLimitMEMLOCK")
found.update((name + " is", said("systemctl", "is-active", name)) for name in SERVICES)
found["memory that a login may lock"] = str(resource.getrlimit(resource.RLIMIT_MEMLOCK))
found["swap in use"] = " ".join(sorted(line.split()[0] for line in text("/proc/swaps").splitlines()[1:]))
print(json.dumps({name: value for name, value in found.items() if value is not None}))
