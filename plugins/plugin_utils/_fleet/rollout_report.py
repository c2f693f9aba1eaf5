# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout says of its hosts: Findings for the verdict, and lines for a person."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, from_dict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._words import LONGEST, count, plain
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import rollout

CHECK = "rollout"
#: States of Findings that are worth their place in the journal.
LOUD = ("fail", "unknown", "warn")
STATES = {
    rollout.WAITING: ("unknown", "none"),
    rollout.HELD: ("unknown", "fix configuration"),
    rollout.CHANGING: ("unknown", "drain and inspect"),
    rollout.FAILED: ("fail", "drain and inspect"),
    rollout.DONE: ("ok", "none"),
}


def findings(record: t.Mapping[str, t.Any]) -> list[Finding]:
    """The Findings of one host of the journal: where it is, and what its proof found."""
    state, action = STATES[record["state"]]
    if state == "ok" and record.get("note"):
        state = "warn"
    where = Finding(
        CHECK,
        state,
        found=says(record),
        expected="" if record["state"] == rollout.DONE else "changed, proved, back in service",
        action=action,
        observed_at=str(record.get("at", "")),
    )
    return [where, *(from_dict(item) for item in record.get("findings") or [])]


def says(record: t.Mapping[str, t.Any]) -> str:
    """Where a host is, in a few words."""
    state, note = record["state"], str(record.get("note") or "")
    step = str(record.get("step") or "")
    text = {
        rollout.WAITING: "waits for its batch",
        rollout.HELD: "is left alone",
        rollout.CHANGING: f"is out: {step}",
        rollout.FAILED: f"failed at {step}, is out" if step else "failed, is out",
        rollout.DONE: "done",
    }[state]
    return plain(f"{text}: {note}" if note else text, 2 * LONGEST)


def lines(plan: rollout.Schedule, records: rollout.Records) -> list[str]:
    """The schedule: a line a batch, and a line for each host that is not in it, with the reason."""
    result = []
    for number, batch in enumerate(plan.batches(), 1):
        kind = "again" if records[batch[0]]["state"] in rollout.OUT else "canary" if number == 1 else ""
        result.append(f"  batch {number}{f' ({kind})' if kind else ''}: {count(len(batch), 'host')}: {_names(batch)}")
    rest = [name for name in records if name not in set(plan.hosts)]
    for name in rest:
        if records[name]["state"] != rollout.DONE:
            result.append(f"  {name}: {says(records[name])}")
    done = sum(record["state"] == rollout.DONE for record in records.values())
    return [f"rollout: {len(plan.hosts)} of {len(records)} hosts to change, {done} done", *result]


def _names(names: t.Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{names[0]} to {names[-1]}"
