# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How things of kubelet's configuration are called: its files and ours, the fields that the rules look at, their flags.

Apart from what reads and merges them, so that facts and plans, which need the names alone, don't load that.
"""

from __future__ import annotations

from typing import Dict, Mapping, Sequence

MAIN_FILE = "/var/lib/kubelet/config.yaml"
# Distributions whose kubelet is part of their own process.
EMBEDDED = ("k3s", "rke2")
# What kubeadm merges into the file that it writes anew at an upgrade, from the folder that its --patches names.
PATCH = "kubeletconfiguration-gpufleet+merge.yaml"

# What every KubeletConfiguration starts with, each file of it too.
HEADER = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}

# The socket of the container runtime: a field that we only read, and its flag.
ENDPOINT, ENDPOINT_FLAG = "containerRuntimeEndpoint", "container-runtime-endpoint"

# Applied where the main file has no evictionHard. Source: pkg/kubelet/eviction/defaults_linux.go.
EVICTION_DEFAULTS = {
    "memory.available": "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
    "imagefs.inodesFree": "5%",
}
DROP_IN_MINOR = 32  # the first whose drop-ins of ours are read
MERGE_EVICTION_MINOR = 33  # the first with mergeDefaultEvictionSettings

# What k3s and RKE2 are configured by, and files of ours beside others': kubelet's flags for these two, and the part of kubelet's unit that
# has it read a folder of drop-ins.
RANCHER = "/etc/rancher/%s/config.yaml"
ARGUMENTS = "/etc/rancher/%s/config.yaml.d/zz-gpufleet.yaml"
UNIT_DROP_IN = "zz-gpufleet-config-dir.conf"

TEXT, TRUTH, NAMES = "text", "true or false", "a list"
TEXTS, TRUTHS, RESERVATIONS = "a mapping of texts", "a mapping of truths", "a list of reservations"
SWAP = "a mapping with swapBehavior"

# The fields that the rules look at, with what kubelet takes for their values: "cpu: 2" instead of 'cpu: "2"' makes it exit.
FIELDS = {
    "cgroupDriver": TEXT,
    "cgroupsPerQOS": TRUTH,
    "cpuManagerPolicy": TEXT,
    "cpuManagerPolicyOptions": TEXTS,
    "enforceNodeAllocatable": NAMES,
    "evictionHard": TEXTS,
    "failSwapOn": TRUTH,
    "featureGates": TRUTHS,
    "kubeReserved": TEXTS,
    "kubeReservedCgroup": TEXT,
    "memoryManagerPolicy": TEXT,
    "memorySwap": SWAP,
    "mergeDefaultEvictionSettings": TRUTH,
    "protectKernelDefaults": TRUTH,
    "reservedMemory": RESERVATIONS,
    "reservedSystemCPUs": TEXT,
    "systemReserved": TEXTS,
    "systemReservedCgroup": TEXT,
    "topologyManagerPolicy": TEXT,
    "topologyManagerPolicyOptions": TEXTS,
    "topologyManagerScope": TEXT,
}

# In what kubelet has in the end: the feature gates that it set earlier on, of its flags and when it set defaults, where they are others.
EARLIER_GATES = "featureGates earlier"

# Command-line flags by the field that they replace (B17).
FLAGS = {
    "cgroup-driver": "cgroupDriver",
    "cgroups-per-qos": "cgroupsPerQOS",
    "cpu-manager-policy": "cpuManagerPolicy",
    "cpu-manager-policy-options": "cpuManagerPolicyOptions",
    "enforce-node-allocatable": "enforceNodeAllocatable",
    "eviction-hard": "evictionHard",
    "fail-swap-on": "failSwapOn",
    "feature-gates": "featureGates",
    "kube-reserved": "kubeReserved",
    "kube-reserved-cgroup": "kubeReservedCgroup",
    "memory-manager-policy": "memoryManagerPolicy",
    "protect-kernel-defaults": "protectKernelDefaults",
    "reserved-cpus": "reservedSystemCPUs",
    "reserved-memory": "reservedMemory",
    "system-reserved": "systemReserved",
    "system-reserved-cgroup": "systemReservedCgroup",
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
    "topology-manager-scope": "topologyManagerScope",
}

# Flags whose values add up when they are repeated, with the sign that joins them here: one that no argument holds where kubelet doesn't
# cut values at a comma (one of --cpu-manager-policy-options for each flag).
REPEATED = {
    **{flag: "," for flag, field in FLAGS.items() if FIELDS[field] in (TEXTS, TRUTHS, NAMES)},
    "cpu-manager-policy-options": "\0",
    "reserved-memory": "\0",
}

# Go's ParseBool.
TRUTH_WORDS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}


def with_words(flags: Mapping[str, str], words: Sequence[str]) -> Dict[str, str]:
    """Flags as kubelet has them when words ("name=value") are added to them: the last one counts, or adds to those before. It reads them
    all, so one that it can't read stays."""
    found = dict(flags)
    for word in words:
        name, _equals, value = word.partition("=")
        if name in found and name in REPEATED:
            sign = REPEATED[name]
            value = sign.join([found[name], value] if sign != "," else filter(None, (found[name], value)))
        elif name in found and FIELDS.get(FLAGS.get(name, "")) == TRUTH and found[name] not in TRUTH_WORDS:
            continue
        found[name] = value
    return found
