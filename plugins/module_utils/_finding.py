# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check saw (Finding) and what follows from many of them (fold).

Report, gate, drift and exit codes know only this file, so that a new check
is one new function that returns Findings.
"""

from __future__ import annotations

import json
import math
import time
import typing as t

STATES = ("ok", "warn", "fail", "unknown", "not_applicable")
POLICIES = ("block", "report")
SUBJECT_KINDS = ("host", "gpu", "link", "nic", "psu", "bmc", "environment", "fleet")
#: What somebody has to do. Only a ``fail`` whose action is not ``none`` may drain a host.
ACTIONS = (
    "none",
    "restart job",
    "reset GPU",
    "reboot",
    "drain and inspect",
    "replace",
    "ask facility",
    "fix configuration",
)

READY = "ready"
NOT_READY = "not_ready"
UNKNOWN = "unknown"


# Named tuples: the module dataclasses takes a tenth of the time of a whole look of the gate to import.
class _Subject(t.NamedTuple):
    kind: str
    key: str = ""


class Subject(_Subject):
    """What a Finding is about: its kind and the name that survives a reboot (UUID, PCI address, serial)."""

    __slots__ = ()

    if not t.TYPE_CHECKING:

        def __new__(cls, *values, **named):
            made = super().__new__(cls, *values, **named)
            if made.kind not in SUBJECT_KINDS:
                raise ValueError(f"subject kind {made.kind!r} is none of {', '.join(SUBJECT_KINDS)}")
            return made


HOST = Subject("host")


class _Finding(t.NamedTuple):
    check: str
    state: str
    subject: Subject = HOST
    found: str = ""
    expected: str = ""
    action: str = "none"
    policy: str = "block"
    reason: str = ""
    evidence: t.Mapping[str, t.Any] = {}
    observed_at: str = ""
    valid_for: t.Optional[int] = None


class Finding(_Finding):
    """One judgement of one check on one subject.

    ``found`` and ``expected`` are text for a person; what a program needs
    lies in ``evidence`` (JSON values). ``observed_at`` is UTC, RFC 3339;
    ``valid_for`` is seconds, None for "until something changes".
    """

    __slots__ = ()

    if not t.TYPE_CHECKING:

        def __new__(cls, *values, **named):
            made = super().__new__(cls, *values, **named)
            for name, value, allowed in (
                ("state", made.state, STATES),
                ("action", made.action, ACTIONS),
                ("policy", made.policy, POLICIES),
            ):
                if value not in allowed:
                    raise ValueError(f"{made.check}: {name} {value!r} is none of {', '.join(allowed)}")
            if made.state == "not_applicable" and not made.reason:
                raise ValueError(f"{made.check}: not_applicable needs a reason")
            return made

    @property
    def id(self) -> str:
        """Stable over runs and hosts' reboots, so that a finding can be acknowledged and followed."""
        parts = [self.check, self.subject.kind]
        if self.subject.key:
            parts.append(self.subject.key)
        return "/".join(parts)

    def to_dict(self) -> t.Dict[str, t.Any]:
        """The JSON form: every field, and ``id``."""
        form = {
            "id": self.id,
            "check": self.check,
            "subject": {"kind": self.subject.kind, "key": self.subject.key},
            "state": self.state,
            "found": str(self.found),  # a fact of a device may be none
            "expected": str(self.expected),
            "action": self.action,
            "policy": self.policy,
            "reason": str(self.reason),
            "evidence": dict(self.evidence),
            "observed_at": self.observed_at,
            "valid_for": self.valid_for,
        }
        return t.cast("t.Dict[str, t.Any]", sendable(form))


def replace(finding: Finding, **changes: t.Any) -> Finding:
    """The same Finding but for ``changes``; looked at as a new one is, which ``_replace`` would not do."""
    return Finding(**{**finding._asdict(), **changes})


def from_dict(data: t.Mapping[str, t.Any]) -> Finding:
    """The Finding of its JSON form. Raises ValueError or KeyError where a field is missing or not of the form."""
    subject = data["subject"]
    return Finding(
        check=str(data["check"]),
        state=str(data["state"]),
        subject=Subject(str(subject["kind"]), str(subject.get("key", ""))),
        found=str(data.get("found", "")),
        expected=str(data.get("expected", "")),
        action=str(data.get("action", "none")),
        policy=str(data.get("policy", "block")),
        reason=str(data.get("reason", "")),
        evidence=dict(data.get("evidence") or {}),
        observed_at=str(data.get("observed_at", "")),
        valid_for=data.get("valid_for"),
    )


def sendable(value: t.Any) -> t.Any:
    """A JSON value without what no UTF-8 can carry: odd bytes of a file or of a name, shown as ``\\udce9``.

    Ansible refuses the whole answer of a module that has one. Nor has JSON a NaN or an infinity.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, t.Mapping):
        return {sendable(key): sendable(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [sendable(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def now() -> str:
    """The time of an observation, UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def stamp(findings: t.Iterable[Finding], observed_at: str) -> t.List[Finding]:
    """The same findings, dated: checks are pure and do not know the time."""
    return [replace(finding, observed_at=finding.observed_at or observed_at) for finding in findings]


def apply_policy(findings: t.Iterable[Finding], policy: t.Mapping[str, str]) -> t.List[Finding]:
    """The same findings under the user's policy, a mapping of check to ``block`` or ``report``.

    An acknowledgement is about one finding of one host, and goes before it.
    """
    return [
        finding
        if "acknowledged" in finding.evidence
        else replace(finding, policy=policy.get(finding.check, finding.policy))
        for finding in findings
    ]


def fold(findings: t.Iterable[Finding]) -> str:
    """The state of a host: ``not_ready``, ``unknown`` or ``ready``, in this order of weight.

    Nothing judged is ``unknown``: a host about which nobody said anything is not ready.
    """
    blocking = [finding.state for finding in findings if finding.policy == "block"]
    if "fail" in blocking:
        return NOT_READY
    if "unknown" in blocking or not {"ok", "warn"} & set(blocking):
        return UNKNOWN
    return READY


def verdict(findings: t.Sequence[Finding]) -> t.Dict[str, t.Any]:
    """The contract's JSON object of one host: ok, state, findings."""
    state = fold(findings)
    return {"ok": state == READY, "state": state, "findings": [finding.to_dict() for finding in findings]}


def dumps(value: t.Any) -> str:
    """JSON as every file of ours is written: sorted, so that two runs can be compared by diff."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
