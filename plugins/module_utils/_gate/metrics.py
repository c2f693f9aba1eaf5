# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict as metrics, in Prometheus' text format 0.0.4, for node_exporter's textfile collector.

The collector reads a file at any moment, so it is replaced whole; and for as long as it is there, so the age of the
verdict is left to the query: ``time() - gpufleet_verdict_timestamp_seconds``.
"""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict

STATES = ("ready", "not_ready", "unknown")
#: What a person wants to be told; a finding that is well has no line of its own.
TOLD = ("fail", "warn", "unknown")

Sample = t.Tuple[t.Mapping[str, str], float]


def text(made: verdict.Verdict) -> str:
    """The content of the file. A verdict that does not hold is ``unknown`` here too, and has no time."""
    findings = made["findings"]
    counts = collections.Counter((finding["state"], finding["policy"]) for finding in findings)
    families: t.List[t.Tuple[str, str, t.List[Sample]]] = [
        ("gpufleet_ready", "Whether the host may train: 1 where it is ready.", [({}, float(made["state"] == "ready"))]),
        (
            "gpufleet_state",
            "The state of the host: 1 for the one that holds.",
            [({"state": state}, float(made["state"] == state)) for state in STATES],
        ),
        (
            "gpufleet_findings",
            "Findings of the verdict, by state and by what they may do.",
            [
                ({"state": state, "policy": policy}, float(counts[(state, policy)]))
                for state in (*TOLD, "ok", "not_applicable")
                for policy in ("block", "report")
            ],
        ),
        (
            "gpufleet_finding",
            "A finding that is not well.",
            [(labels, 1.0) for labels in _unwell(findings)],
        ),
    ]
    if "judged_at" in made:
        judged = verdict.seconds_of(made["judged_at"])
        families += [
            ("gpufleet_verdict_timestamp_seconds", "When the verdict was made, in Unix time.", [({}, judged)]),
            ("gpufleet_verdict_valid_seconds", "For how long it holds.", [({}, float(made["valid_for"]))]),
        ]
    return "".join(_family(*family) for family in families)


def _unwell(findings: t.Iterable[t.Mapping[str, t.Any]]) -> t.List[t.Dict[str, str]]:
    """Of each finding its labels, once: two of one id may say different things."""
    found = [
        {
            "check": finding["check"],
            "kind": finding["subject"]["kind"],
            "key": finding["subject"].get("key", ""),
            "state": finding["state"],
            "policy": finding["policy"],
            "action": finding["action"],
        }
        for finding in findings
        if finding["state"] in TOLD
    ]
    unique = {tuple(labels.values()): labels for labels in found}
    return [unique[name] for name in sorted(unique)]


def _family(name: str, says: str, samples: t.Sequence[Sample]) -> str:
    lines = [f"# HELP {name} {says}\n# TYPE {name} gauge\n"] if samples else []
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
        lines.append(f"{name}{{{inside}}} {value:.0f}\n" if inside else f"{name} {value:.0f}\n")
    return "".join(lines)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
