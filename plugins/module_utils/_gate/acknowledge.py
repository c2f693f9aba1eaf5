# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings that somebody has seen and answers for until a day: ``acknowledged.json`` beside ``expected.json``.

An acknowledgement lets a host start work although a finding stands. It holds
for what was found when it was given: another state or other words, worse or
not, are a new finding. It ends on its day, and every verdict counts it.
"""

from __future__ import annotations

import calendar
import os
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _state
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, replace

FILE = "acknowledged.json"
SCHEMA = 1
FIELDS = ("id", "by", "until", "reason", "state", "found")
#: Seconds for which somebody can answer for a finding.
LONGEST = 367 * 24 * 3600.0
#: The Finding that counts them.
COUNT = "acknowledgements"
#: States that can be acknowledged.
LOUD = ("fail", "unknown", "warn")

Entry = t.Mapping[str, str]


def read(directory: str) -> t.List[t.Dict[str, str]]:
    """The entries of the file, none where there is none. Raises StateError where it cannot be used or believed."""
    path = os.path.join(directory, FILE)
    try:
        data = _state.read_json(path)
        entries = data["acknowledged"]
        if data["schema"] != SCHEMA or not all(isinstance(item[name], str) for item in entries for name in FIELDS):
            raise ValueError(f"schema {data['schema']!r}; {SCHEMA} is read, with {', '.join(FIELDS)} as text")
        for item in entries:
            ends(item["until"])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _state.StateError(
            f"{path} cannot be used ({type(error).__name__}: {error}): no acknowledgement holds; mend or remove it"
        ) from None
    return t.cast("t.List[t.Dict[str, str]]", entries)


def unreadable(why: str) -> Finding:
    """No acknowledgement holds, which hides nothing; it is said."""
    return Finding(COUNT, "warn", found=why, expected="a file of ours, or none", policy="report")


def ends(until: str) -> float:
    """The end of a day (``2026-12-31``) or a moment (``2026-12-31T12:00:00Z``), UTC, as seconds since 1970."""
    if "T" in until:
        return float(calendar.timegm(time.strptime(until, "%Y-%m-%dT%H:%M:%SZ")))
    return float(calendar.timegm(time.strptime(until, "%Y-%m-%d")) + 24 * 3600)


def apply(findings: t.Iterable[Finding], entries: t.Sequence[Entry], now: float) -> t.List[Finding]:
    """The same Findings, acknowledged ones as ``report``; and one that counts, where there is an entry."""
    found = list(findings)
    valid = {entry["id"]: entry for entry in entries if now < ends(entry["until"])}
    held, other = [], []
    for place, finding in enumerate(found):
        entry = valid.get(finding.id)
        if entry is None or finding.state not in LOUD:
            continue
        if (finding.state, finding.found) != (entry["state"], entry["found"]):
            other.append(finding.id)
            continue
        held.append(finding.id)
        words = f"acknowledged by {entry['by']} until {entry['until']}: {entry['reason']}"
        reason = f"{finding.reason}; {words}" if finding.reason else words
        evidence = {**finding.evidence, "acknowledged": {name: entry[name] for name in ("by", "until", "reason")}}
        found[place] = replace(finding, policy="report", reason=reason, evidence=evidence)
    expired = sorted(entry["id"] for entry in entries if entry["id"] not in valid)
    if held or other or expired:
        found.append(_counted(held, other, expired))
    return found


def _counted(held: t.List[str], other: t.List[str], expired: t.List[str]) -> Finding:
    parts = [
        f"{len(ids)} {what}: {', '.join(ids[:3])}" + (" and more" if len(ids) > 3 else "")
        for ids, what in (
            (held, "acknowledged"),
            (other, "acknowledged with other words, which does not hold"),
            (expired, "expired"),
        )
        if ids
    ]
    return Finding(
        COUNT,
        "warn",
        found="; ".join(parts),
        # What is acknowledged was judged, so that a host of which nothing else is said is not "nothing judged".
        policy="block" if held else "report",
        evidence={"held": held, "other": other, "expired": expired},
    )


def add(
    directory: str, findings: t.Iterable[Finding], ids: t.Sequence[str], by: str, until: str, reason: str, now: float
) -> t.Tuple[t.Dict[str, t.Any], t.Dict[str, t.Any]]:
    """The content of the file before and with these findings acknowledged; expired entries go. Raises StateError."""
    if not by.strip() or not reason.strip():
        raise _state.StateError("drift_acknowledge needs drift_accept_by and drift_accept_reason: who answers, and why")
    try:
        end = ends(until)
    except (ValueError, TypeError):
        raise _state.StateError(f"drift_acknowledge_until is {until!r}; a day is needed, as 2026-12-31") from None
    if end <= now:
        raise _state.StateError(f"drift_acknowledge_until is {until}, which is past")
    if end > now + LONGEST:
        raise _state.StateError(
            f"drift_acknowledge_until is {until}; a year is the most: what should never hold a host back is"
            " gpufleet_policy, CHECK: report"
        )
    loud = {finding.id: finding for finding in findings if finding.state in LOUD}
    wrong = [name for name in ids if name not in loud]
    if wrong:
        raise _state.StateError(f"no finding of this look: {', '.join(wrong)}; there are: {', '.join(loud) or 'none'}")
    before = read(directory)
    kept = [item for item in before if item["id"] not in ids and now < ends(item["until"])]
    new = [
        {
            "id": name,
            "by": by,
            "until": until,
            "reason": reason,
            "state": loud[name].state,
            "found": loud[name].found,
        }
        for name in ids
    ]
    return {"schema": SCHEMA, "acknowledged": before}, {"schema": SCHEMA, "acknowledged": kept + new}
