# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A verdict (node_verify's result) for programs: one record for JSON, and JUnit's XML for CI."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Tuple

from .change import DRIFT, FOREIGN, IN_PLACE, NOT_APPLICABLE, PENDING

_KEPT = ("differing", "counts", "reboot_required", "restart_required", "pending_commands", "concerns")

# XML 1.0 has no place for these at all, escaped or not; half a surrogate stands for a byte that isn't UTF-8.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\n", "&#10;"))

_SKIPPED = {PENDING: "pending", NOT_APPLICABLE: "not applicable", FOREIGN: "someone else's"}


def record(verdict: Mapping[str, Any], node: str, plan: Mapping[str, Any]) -> Dict[str, Any]:
    """The verdict with the node's name and what the plan is: stable keys, nothing else."""
    about = {"schema": 1, "node": node, "profile": plan["profile"], "workload": plan["workload"], "fingerprint": plan["fingerprint"]}
    return {**about, **{key: verdict[key] for key in _KEPT}}


def junit(verdict: Mapping[str, Any], node: str) -> str:
    """JUnit XML: a suite for each concern, a case for each item. Drift fails; what is pending, doesn't apply or is someone else's is
    skipped, and its message begins with that word; a concern that the node refuses is an error."""
    suites = [_suite(node, name, result) for name, result in verdict["concerns"].items()]
    counts = [sum(suite_counts[position] for suite_counts, _lines in suites) for position in range(4)]
    lines = [line for _counts, suite in suites for line in suite]
    head = "<testsuites%s>" % _attributes((("name", "gpufleet.node"), *_counted(counts)))
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *lines, "</testsuites>"]) + "\n"


def _suite(node: str, name: str, result: Mapping[str, Any]) -> Tuple[List[int], List[str]]:
    cases = list(_cases(result))
    kinds = [kind for _item, kind, _message in cases]
    counts = [len(cases), kinds.count("failure"), kinds.count("error"), kinds.count("skipped")]
    suite = "%s.%s" % (node, name)
    lines = ["  <testsuite%s>" % _attributes((("name", suite), ("hostname", node), *_counted(counts)))]
    for item, kind, message in cases:
        case = "    <testcase%s" % _attributes((("classname", suite), ("name", item)))
        lines.append(case + (">\n      <%s%s/>\n    </testcase>" % (kind, _attributes((("message", message),))) if kind else "/>"))
    return counts, [*lines, "  </testsuite>"]


def _cases(result: Mapping[str, Any]) -> Iterator[Tuple[str, str, str]]:
    """Item, element ("" for one that passes) and message."""
    if result.get("refused"):
        yield "the node takes the plan", "error", result["refused"]
    for finding in result["findings"]:
        status, message = finding["status"], finding["message"] or ""
        if status == IN_PLACE:
            yield finding["item"], "", ""
        elif status == DRIFT:
            yield finding["item"], "failure", "drift: %s" % message
        else:
            until = " until %s" % finding["until"] if finding.get("until") else ""
            yield finding["item"], "skipped", "%s%s: %s" % (_SKIPPED[status], until, message)


def _counted(counts: Sequence[int]) -> Sequence[Tuple[str, str]]:
    return [(name, str(count)) for name, count in zip(("tests", "failures", "errors", "skipped"), counts)]


def _attributes(pairs: Sequence[Tuple[str, str]]) -> str:
    return "".join(' %s="%s"' % (name, _escaped(value)) for name, value in pairs)


def _escaped(text: str) -> str:
    text = _NOT_XML.sub("\ufffd", text)
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text
