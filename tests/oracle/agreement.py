"""Compare core/admission.py with kubelet on random cases.

    python tests/oracle/agreement.py 37 --cases 10000

A case is a machine, a configuration that kubelet accepts, devices, and pods that come and go. What differs is made as small as it still
differs, and shown; --keep adds it to golden/decisions/differed.json. --sample N writes N cases with kubelet's answers to golden/decisions/.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE.parents[1] / "playbooks" / "collections")]

import cases as generate  # noqa: E402
from driver import Oracle, Unavailable, versions  # noqa: E402
from driver import build as program  # noqa: E402
from predict import Case, Json, Prediction, difference, facts, predict  # noqa: E402

from ansible_collections.gpufleet.node.plugins.module_utils.core.errors import GpufleetError  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.feature_gates import is_on  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.plan import build_plan  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.policy import PROFILES, policy_from_variables  # noqa: E402
from ansible_collections.gpufleet.node.plugins.module_utils.core.topology import Kubelet, Topology  # noqa: E402
from machines.build import build, load  # noqa: E402
from machines.scratch import scratch  # noqa: E402

GOLDEN = HERE / "golden" / "decisions"
FLEET = ("reference", "nps4", "oddeven", "halfcores", "nosmt")
LASTING = 1500  # questions to one process: kubelet's managers never end what they started, so each leaves something behind

TRIES = 8  # kubelet takes some devices as a map gives them: another time others


@dataclass
class Place:
    """A machine that has been built and read."""

    description: Json
    root: str
    topology: Topology


class Kubelets:
    """The oracle of a minor, started again from time to time and when kubelet's code has ended it."""

    def __init__(self, minor: int) -> None:
        self.program, self.oracle, self.asked = program(minor), None, 0

    def ask(self, question: Json) -> Json:
        """The answer; {"error": …} when there is none."""
        if self.oracle is None:
            self.oracle, self.asked = Oracle(self.program), 0
        self.asked += 1
        try:
            answer = self.oracle.ask(question)
        except Unavailable as problem:
            answer = {"error": str(problem)}
        if "error" in answer or self.asked >= LASTING:
            self.end()
        return answer

    def end(self) -> None:
        """End its process."""
        if self.oracle:
            self.oracle.__exit__(None, None, None)
        self.oracle = None


@dataclass
class Result:
    """What came of a minor's cases."""

    counts: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    differing: list[tuple[Case, Json]] = field(default_factory=list)
    agreed: list[tuple[Case, Json]] = field(default_factory=list)

    @property
    def compared(self) -> int:
        """Cases that kubelet answered and that were compared."""
        return sum(count for ending, count in self.counts.items() if ending.startswith(("agrees", "differs")))


def places(rng: random.Random, count: int, folder: Path) -> list[Place]:
    """The fleet and random machines, built and read."""
    descriptions = [load(name) for name in FLEET] + [generate.machine(rng) for unused in range(count)]
    found = []
    for number, description in enumerate(descriptions):
        root = str(build(description, folder / str(number)))
        found.append(Place(description, root, facts(root)))
    return found


def planned(rng: random.Random, minor: int, topology: Topology) -> Json:
    """The configuration that our own plan has for this machine; {} where there is none."""
    kubelet = Kubelet("kubeadm", "kubelet.service", f"1.{minor}.0", config_file="/var/lib/kubelet/config.yaml")
    try:
        plan = build_plan(replace(topology, kubelet=kubelet, gathered=()), policy_from_variables({"profile": rng.choice(sorted(PROFILES))}))
    except GpufleetError:
        return {}
    return {key: value for key, value in plan.kubelet["configuration"].items() if key not in ("apiVersion", "kind")}


def case_of(rng: random.Random, minor: int, place: Place) -> Case:
    """A random case on a machine."""
    configuration = (rng.random() < 0.15 and planned(rng, minor, place.topology)) or generate.configuration(rng, minor, place.topology)
    devices = generate.devices(rng, place.topology)
    whole = is_on("PodLevelResourceManagers", configuration.get("featureGates"), minor)
    if whole and rng.random() < 0.8:
        devices = []
    return Case(minor, place.description, configuration, devices, generate.events(rng, minor, place.topology, devices, whole))


def judge(case: Case, place: Place, kubelet: Kubelets) -> tuple[str, Json, int | None]:
    """How a case ends: agrees, differs (with kubelet's answer and the decision that differs), or is no question."""
    prediction = predict(case, place.topology)
    if prediction.endless is not None:
        case = replace(case, events=before(case.events, prediction.endless))
    answer = kubelet.ask(case.question(place.root))
    if "error" in answer:
        return "kubelet's code ended", answer, len(prediction.decisions) - 1
    if answer.get("refused"):
        return "configuration refused", answer, None
    if any(decision.get("invalid") for decision in answer["events"]):
        return "invalid pod", answer, None
    at = difference(prediction, answer["events"])
    if at is None:
        return "agrees", answer, None
    others = (kubelet.ask(case.question(place.root)) for unused in range(TRIES if case.devices else 0))
    if any("events" in other and difference(prediction, other["events"]) is None for other in others):
        return "agrees by chance", answer, None
    return "differs", answer, at


def before(events: Any, number: int) -> list[Json]:
    """The events before the arrival of this number."""
    arrivals = [index for index, event in enumerate(events) if "add" in event]
    return list(events[: arrivals[number]])


def smaller(case: Case) -> Iterator[Case]:
    """The case with one thing less."""
    for index in range(len(case.events)):
        yield replace(case, events=[*case.events[:index], *case.events[index + 1 :]])
    if case.devices:
        yield replace(case, devices=[])
        for index in range(len(case.devices)):
            yield replace(case, devices=[*case.devices[:index], *case.devices[index + 1 :]])
    for key in case.configuration:
        yield replace(case, configuration={name: value for name, value in case.configuration.items() if name != key})
        if isinstance(case.configuration[key], dict):
            for option in case.configuration[key]:
                rest = {name: value for name, value in case.configuration[key].items() if name != option}
                yield replace(case, configuration={**case.configuration, key: rest})
    for index, event in enumerate(case.events):
        for pod in smaller_pods(event["add"]) if "add" in event else ():
            yield replace(case, events=[*case.events[:index], {"add": pod}, *case.events[index + 1 :]])


def smaller_pods(pod: Json) -> Iterator[Json]:
    """The pod with one thing less."""
    for part in ("initContainers", "containers"):
        for index, container in enumerate(pod["spec"].get(part, ())):
            less = copy.deepcopy(pod)
            del less["spec"][part][index]
            if less["spec"]["containers"]:
                yield less
            for kind, amounts in container.get("resources", {}).items():
                for resource in amounts:
                    less = copy.deepcopy(pod)
                    del less["spec"][part][index]["resources"][kind][resource]
                    yield less
    if "resources" in pod["spec"]:
        less = copy.deepcopy(pod)
        del less["spec"]["resources"]
        yield less


def shrink(case: Case, at: int, differs: Callable[[Case], int | None], most: int = 400) -> Case:
    """The smallest case that still differs."""
    case = replace(case, events=before(case.events, at + 1) if at + 1 < sum("add" in event for event in case.events) else case.events)
    tries, found = 0, True
    while found and tries < most:
        found = False
        for candidate in smaller(case):
            tries += 1
            if differs(candidate) is not None:
                case, found = candidate, True
                break
            if tries >= most:
                break
    return case


def explore(minor: int, here: list[Place], wanted: int, seed: int, patience: int, until: float) -> Result:
    """Ask until there are as many cases as wanted, or too many that differ, or the time is up."""
    rng, kubelet, result = random.Random(f"{seed} {minor}"), Kubelets(minor), Result()
    while time.monotonic() < until and result.compared < wanted and len(result.differing) < patience:
        place = rng.choice(here) if rng.random() < 0.97 else here[rng.randrange(len(FLEET))]
        case = case_of(rng, minor, place)
        ending, answer, at = judge(case, place, kubelet)
        result.counts[ending] += 1
        if ending == "agrees":
            result.pods += len(answer["events"])
            if len(result.agreed) < 5000:
                result.agreed.append((case, answer))
        elif at is not None:

            def still(candidate: Case, place: Place = place, ending: str = ending) -> int | None:
                try:
                    again, unused, index = judge(candidate, place, kubelet)
                except (KeyError, ValueError, IndexError, GpufleetError):
                    return None
                return index if again == ending else None

            case = shrink(case, at, still)
            unused, answer, at = judge(case, place, kubelet)
            result.differing.append((case, answer))
            show(case, predict(case, place.topology), answer, at)
    kubelet.end()
    return result


def show(case: Case, prediction: Prediction, answer: Json, at: int | None) -> None:
    """A case that differs, for people."""
    print(json.dumps({"minor": case.minor, "machine": case.machine.get("summary") or case.machine, "configuration": case.configuration,
                      "devices": case.devices, "events": case.events}))  # fmt: skip
    print("  differs at decision", at)
    print("  kubelet:", json.dumps(answer["events"][at] if at is not None and answer.get("events") else answer))
    print("  we:     ", json.dumps(prediction.decisions[at] if at is not None and prediction.decisions else None), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minors", nargs="*", type=int, help="minors of kubelet; default: all that the oracle is built for")
    parser.add_argument("--newest", action="store_true", help="the newest of them alone")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--machines", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--patience", type=int, default=10, help="stop a minor after so many cases that differ")
    parser.add_argument("--minutes", type=float, default=60, help="stop a minor after so many minutes")
    parser.add_argument("--keep", action="store_true", help="keep what differs, with kubelet's answer, for make test")
    parser.add_argument("--sample", type=int, default=0, help="write so many cases with kubelet's answers")
    options = parser.parse_args()
    wrong = 0
    with scratch() as folder:
        here = places(random.Random(options.seed), options.machines, folder)
        for minor in [max(versions())] if options.newest else options.minors or versions():
            begun = time.monotonic()
            result = explore(minor, here, options.cases, options.seed, options.patience, begun + options.minutes * 60)
            wrong += len(result.differing) + (result.compared == 0)
            counts = ", ".join(f"{count} {name}" for name, count in sorted(result.counts.items()))
            print(f"kubelet 1.{minor}: {counts}; {result.pods} decisions alike, {time.monotonic() - begun:.0f} s", flush=True)
            if options.keep:
                keep(result.differing)
            if options.sample:
                write_sample(minor, result.agreed[: options.sample])
    return 1 if wrong else 0


def keep(differing: list[tuple[Case, Json]]) -> None:
    """Add cases to those that once differed."""
    path = GOLDEN / "differed.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    kept += [{**asdict(case), "decisions": answer["events"]} for case, answer in differing if "events" in answer]
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def write_sample(minor: int, agreed: list[tuple[Case, Json]]) -> None:
    """Cases with kubelet's answers, as `make test` replays them."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    machines: list[Json] = []
    kept = []
    for case, answer in agreed:
        if case.machine not in machines:
            machines.append(case.machine)
        kept.append({"machine": machines.index(case.machine), "configuration": case.configuration, "devices": case.devices,
                     "events": case.events, "decisions": answer["events"]})  # fmt: skip
    text = json.dumps({"minor": minor, "machines": machines, "cases": kept}, sort_keys=True)
    (GOLDEN / f"v1.{minor}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Unavailable as problem:
        sys.exit(f"There is no oracle here: {problem}.")
