"""Compare the rules for kubelet's configuration with kubelet on what our plan renders, and on mutations of it.

    python tests/oracle/configuration_agreement.py 37 --cases 2500

What differs is made as small as it still differs, and shown. --sample N writes so many cases with kubelet's answers to
golden/configurations/, which `make test` replays without Go.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE.parents[1] / "playbooks" / "collections")]

from agreement import Kubelets  # noqa: E402
from configurations import Place, Setup, files, fleet, good, mutations, text_of, with_text  # noqa: E402
from driver import Unavailable, versions  # noqa: E402
from predict import Json  # noqa: E402

from ansible_collections.gpufleet.node.plugins.module_utils.core import kubelet_merge, kubelet_rules  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import InvalidInput  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.kubelet_command import flags  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.quantity import parse_quantity  # noqa: E402
from machines.scratch import scratch  # noqa: E402

GOLDEN = HERE / "golden" / "configurations"

# Why we refuse what kubelet takes, by what we say. Each is meant: (name, a part of our sentence, the reason).
DELIBERATE: tuple[tuple[str, str, str], ...] = (
    ("YAML beyond ours", r"in a form that isn't read here|only one mapping in block style",
     "A node need not have a YAML library: anchors, tags, texts over several lines are refused, never guessed."),
    ("a key twice", r"has the key .* twice", "kubelet warns and takes one of the two; which was meant is the user's to say."),
    ("an odd amount", r"which is not a Kubernetes quantity|which is negative|which Kubernetes reads as",
     'kubelet reads "Gi" as 0 and "512m" as half a byte, and looks at some amounts only where they count; nobody means them.'),
    ("an odd share", r"which is no share", 'kubelet reads "nan%", "-0%" and "0x1p2%" too.'),
    ("odd CPUs", r"which is no list of CPUs", 'kubelet reads "+1" too.'),
    ("another case", r"reads the names of drop-ins in any case", "Of two spellings in one drop-in the last counts, in the main file none."),
    ("a later crash", r"kubelet crashes", "kubelet starts on such numbers of NUMA nodes, and crashes at the first pod."),
    ("memory of GPUs", r"may then place pods into GPU memory", "kubelet takes it for memory like any other."),
    ("an odd type", r"where kubelet reads|an entry that kubelet can't read",
     "Of drop-ins kubelet looks at types in what is left after the merge; here each file has to be right."),
)  # fmt: skip

# What fields are that nobody set. Source: pkg/kubelet/apis/config/v1beta1/defaults.go.
UNSET: Json = {
    "cgroupDriver": "cgroupfs", "cgroupsPerQOS": True, "cpuManagerPolicy": "none", "enforceNodeAllocatable": ["pods"], "failSwapOn": True,
    "mergeDefaultEvictionSettings": False, "memoryManagerPolicy": "None", "protectKernelDefaults": False, "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
}  # fmt: skip


@dataclass
class Verdict:
    """Ours on a setup: why it is refused, or what kubelet has in the end."""

    refusal: str = ""
    effective: Json = field(default_factory=dict)


def ours(setup: Setup, minor: int, machine: Json) -> Verdict:
    """What the rules say, called as on a node. ``machine`` is a plan's section."""
    try:
        found = kubelet_merge.effective(setup.main, setup.drop_ins or {}, flags(setup.flags), minor)
        kubelet_rules.check(found, minor, kubelet_rules.machine(machine))
    except InvalidInput as refusal:
        return Verdict(refusal=str(refusal))
    return Verdict(effective=found)


def ending(verdict: Verdict, answer: Json) -> str:
    """How the two compare; what begins with "differs" shouldn't be."""
    if answer["stage"]:
        return "both refuse" if verdict.refusal else "differs: kubelet alone refuses"
    if verdict.refusal:
        name = next((name for name, part, unused in DELIBERATE if re.search(part, verdict.refusal)), None)
        return f"we alone refuse: {name}" if name else "differs: we alone refuse"
    return "both take it" if merged_alike(verdict.effective, answer.get("effective")) else "differs: merged otherwise"


def merged_alike(mine: Mapping[str, Any], theirs: Mapping[str, Any] | None) -> bool:
    """Whether kubelet has the same in the end in the fields that the rules look at, as far as it said."""
    return theirs is None or not differing_fields(mine, theirs)


def differing_fields(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The fields that kubelet has otherwise than we think. Nothing, an empty mapping and what nobody set are the same."""
    return [
        name
        for name in kubelet_merge.FIELDS
        if (comparable(name, mine.get(name)) or UNSET.get(name)) != (comparable(name, theirs.get(name)) or UNSET.get(name))
    ]


def comparable(name: str, value: Any) -> Any:
    """A field's value, amounts of memory in thousandths, as kubelet shows them, up to its largest."""
    if name == "reservedMemory":
        return [
            (entry["numaNode"], sorted((kind, thousandths(amount)) for kind, amount in (entry["limits"] or {}).items()))
            for entry in value or ()
        ]
    if isinstance(value, Mapping):
        return {key: item for key, item in value.items() if name != "memorySwap" or (key == "swapBehavior" and item)}
    return value


def thousandths(amount: str) -> int:
    """An amount in thousandths, rounded up."""
    return -int(-min(parse_quantity(amount, "an amount"), (1 << 63) - 1) * 1000 // 1)


def asked(setup: Setup, place: Place, kubelet: Kubelets) -> Json:
    """kubelet's answer: the stage that refuses ("" when none does), its words, and what it has in the end."""
    answer = kubelet.ask(setup.question(place.root))
    if "error" in answer:
        return {"stage": "crash", "message": answer["error"]}
    return {"stage": answer.get("stage", ""), "message": answer.get("message", ""), "effective": answer.get("effective")}


@dataclass
class Result:
    """What came of a minor's cases."""

    counts: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    good: Counter[str] = field(default_factory=Counter)
    answered: list[tuple[Setup, Json]] = field(default_factory=list)
    wrong: int = 0


def explore(minor: int, places: dict[str, Place], wanted: int, seed: int, patience: int) -> Result:
    """Ask about all good ones, then about mutations of them."""
    rng, kubelet, result = random.Random(f"{seed} {minor}"), Kubelets(minor), Result()
    bases = good(places, versions()[minor])
    for number, setup in enumerate([*bases, *mutations(rng, bases, wanted)]):
        place = places[setup.machine]
        answer = asked(setup, place, kubelet)
        how = ending(ours(setup, minor, place.section(setup.swap)), answer)
        if number < len(bases) and how != "both take it":
            how = "differs: a rendered one is refused"
        (result.good if number < len(bases) else result.counts)[how] += 1
        result.stages[answer["stage"]] += number >= len(bases)
        result.answered.append((setup, answer))
        if how.startswith("differs"):
            result.wrong += 1
            if result.wrong <= patience:
                show(smallest(setup, minor, place, kubelet, how), minor, place, kubelet, how)
    kubelet.end()
    return result


def smallest(setup: Setup, minor: int, place: Place, kubelet: Kubelets, how: str, most: int = 150) -> Setup:
    """The smallest setup that still differs in the same way."""
    tries, found = 0, True
    while found and tries < most:
        found = False
        for candidate in smaller(setup):
            tries += 1
            answer = asked(candidate, place, kubelet)
            if ending(ours(candidate, minor, place.section(candidate.swap)), answer) == how:
                setup, found = candidate, True
                break
            if tries >= most:
                break
    return setup


def smaller(setup: Setup) -> Iterator[Setup]:
    """The setup with one thing less."""
    for name in setup.drop_ins or {}:
        rest = {other: text for other, text in (setup.drop_ins or {}).items() if other != name}
        yield replace(setup, drop_ins=rest or None)
    for index in range(len(setup.flags)):
        yield replace(setup, flags=(*setup.flags[:index], *setup.flags[index + 1 :]))
    if setup.main is not None:
        yield replace(setup, main=None)
    for name in files(setup):
        lines = text_of(setup, name).splitlines(keepends=True)
        starts = [number for number, line in enumerate(lines) if line.strip() and not line.startswith((" ", "-", "\t"))]
        for start, end in zip(starts, [*starts[1:], len(lines)]):
            yield replace(with_text(setup, name, "".join([*lines[:start], *lines[end:]]), ""), change=setup.change)
        for number, line in enumerate(lines):
            if line.startswith((" ", "-")):
                yield replace(with_text(setup, name, "".join([*lines[:number], *lines[number + 1 :]]), ""), change=setup.change)


def show(setup: Setup, minor: int, place: Place, kubelet: Kubelets, how: str) -> None:
    """A setup that differs, for people."""
    answer, verdict = asked(setup, place, kubelet), ours(setup, minor, place.section(setup.swap))
    print(f"--- 1.{minor} {how} on {setup.machine}: {setup.change}")
    print(f"    {json.dumps({'main': setup.main, 'drop_ins': setup.drop_ins, 'flags': setup.flags, 'swap': setup.swap})}")
    print(f"    kubelet: {answer['stage'] or 'takes it'} {answer['message'][:300]}")
    if not verdict.refusal and answer.get("effective"):
        names = differing_fields(verdict.effective, answer["effective"])
        print("    merged:", {name: (verdict.effective.get(name), answer["effective"].get(name)) for name in names})
    print(f"    we:      {verdict.refusal or 'take it'}", flush=True)


def write_sample(minor: int, places: dict[str, Place], answered: list[tuple[Setup, Json]]) -> None:
    """Cases with kubelet's answers, as `make test` replays them, with what kubelet has in the end of the fields that the rules look at."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    machines = {f"{name}{' with swap' if swap else ''}": place.section(swap) for name, place in places.items() for swap in (False, True)}
    kept = [
        {
            **({"main": setup.main} if setup.main is not None else {}),
            **({"drop_ins": setup.drop_ins} if setup.drop_ins is not None else {}),
            **({"flags": setup.flags} if setup.flags else {}),
            "machine": f"{setup.machine}{' with swap' if setup.swap else ''}",
            "change": setup.change,
            "stage": answer["stage"],
            **(
                {"message": answer["message"][:160]}
                if answer["stage"]
                else {"effective": {name: value for name, value in answer["effective"].items() if name in kubelet_merge.FIELDS}}
            ),
        }
        for setup, answer in answered
    ]
    text = json.dumps({"minor": minor, "machines": machines, "cases": kept}, sort_keys=True, ensure_ascii=False)
    (GOLDEN / f"v1.{minor}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minors", nargs="*", type=int, help="minors of kubelet; default: all that the oracle is built for")
    parser.add_argument("--newest", action="store_true", help="the newest of them alone")
    parser.add_argument("--cases", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=int, default=20, help="show so many cases that differ")
    parser.add_argument("--sample", type=int, default=0, help="write so many cases with kubelet's answers")
    options = parser.parse_args()
    wrong = 0
    with scratch() as folder:
        places = fleet(folder)
        for minor in [max(versions())] if options.newest else options.minors or versions():
            begun = time.monotonic()
            result = explore(minor, places, options.cases, options.seed, options.patience)
            wrong += result.wrong
            for name, counts in (("rendered", result.good), ("changed", result.counts), ("refused by", result.stages)):
                print(f"kubelet 1.{minor}, {name}: " + ", ".join(f"{count} {how or 'nobody'}" for how, count in sorted(counts.items())))
            print(f"kubelet 1.{minor}: {result.wrong} disagreements, {time.monotonic() - begun:.0f} s", flush=True)
            if options.sample:
                write_sample(minor, places, result.answered[: options.sample])
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unavailable as problem:
        sys.exit(f"There is no oracle here: {problem}.")
