# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every health check of a GPU has in common: facts of one GPU in, a judgement out, Findings of the host. Pure.

A check is one function under ``@check(...)``. It names the facts that it needs and is asked only where they are
known: not supported and absent are ``not_applicable``, unknown (null) is ``unknown``. Its docstring says what a bad
value means, the limits and who set them; docs/checks.md is made of it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import HOST, Finding, Subject

Observation = t.Mapping[str, t.Any]

NOT_SUPPORTED = "not_supported"
#: A fact that was not read: this driver has no such call or element.
ABSENT = "absent"


class Gpu:
    """The facts of one GPU by path, and its siblings: the GPUs of the same model in this host."""

    def __init__(self, facts: t.Mapping[str, t.Any], observed: Observation) -> None:
        self.facts = facts
        self.observed = observed

    def __getitem__(self, path: str) -> t.Any:
        """A fact as the Observation has it; ``absent`` where it was not read."""
        place: t.Any = self.facts
        for part in path.split("."):
            if not isinstance(place, dict) or part not in place:  # t.Mapping takes ten times as long
                return ABSENT
            place = place[part]
        return place

    def known(self, path: str) -> t.Any:
        """The value, or None where there is none for whatever reason."""
        value = self[path]
        return None if value in (ABSENT, NOT_SUPPORTED) else value

    def siblings(self) -> t.List[Gpu]:
        """The other readable GPUs of the same model."""
        return [
            Gpu(other, self.observed)
            for other in self.observed["gpus"]
            if other is not self.facts and other["state"] == "ok" and other.get("name") == self.facts.get("name")
        ]

    @property
    def mobile(self) -> bool:
        """A laptop's: it is slowed down and capped by its battery, its adapter and its lid."""
        return any(word in str(self.facts.get("name")) for word in ("Laptop", "Max-Q", "Mobile"))

    @property
    def subject(self) -> Subject:
        """By UUID, else by PCI address."""
        return Subject("gpu", str(self.facts.get("uuid") or self.facts.get("pci_address") or ""))

    @property
    def label(self) -> str:
        """How a person finds it."""
        return f"GPU {self.facts.get('index')} at {self.facts.get('pci_address')}"

    @property
    def identity(self) -> t.Dict[str, t.Any]:
        """How the vendor finds it."""
        return {key: self.facts.get(key) for key in ("index", "pci_address", "uuid", "serial", "name")}


class Judged(t.NamedTuple):
    """What a check makes of one GPU; fields as in Finding."""

    state: str
    found: str
    expected: str = ""
    action: str = "none"
    reason: str = ""


def ok(found: str) -> Judged:
    """Nothing to do."""
    return Judged("ok", found)


def warn(found: str, expected: str, action: str = "none", reason: str = "") -> Judged:
    """To be known; the host stays ready."""
    return Judged("warn", found, expected, action, reason)


def fail(found: str, expected: str, action: str, reason: str = "") -> Judged:
    """The GPU must not start work."""
    return Judged("fail", found, expected, action, reason)


def unknown(found: str, expected: str, action: str, reason: str = "") -> Judged:
    """Could not be told."""
    return Judged("unknown", found, expected, action, reason)


def skip(reason: str) -> Judged:
    """Not a question for this GPU."""
    return Judged("not_applicable", "", reason=reason)


Judge = t.Callable[[Gpu], Judged]


class Check(t.NamedTuple):
    """A health check: ``needs`` are the paths without which it cannot be asked."""

    name: str
    policy: str
    needs: t.Tuple[str, ...]
    judge: Judge

    def judged(self, gpu: Gpu) -> Judged:
        """One GPU. Also where a needed fact is missing."""
        values = [(path, gpu[path]) for path in self.needs]
        lacking = [path for path, value in values if value in (ABSENT, NOT_SUPPORTED)]
        if lacking:
            return skip(f"this GPU or its driver does not tell {' and '.join(lacking)}")
        blank = [path for path, value in values if value is None]
        if blank:
            return unknown(
                f"{' and '.join(blank)} could not be read",
                "a value, as this GPU has one",
                "drain and inspect",
                "the driver answers with an error",
            )
        return self.judge(gpu)

    def findings(self, observed: Observation) -> t.List[Finding]:
        """A Finding of each GPU that is not ok, one of the host where all say the same; none where none can be read."""
        judged = [(gpu, self.judged(gpu)) for gpu in readable(observed)]
        bad = [(gpu, one) for gpu, one in judged if one.state in ("fail", "warn", "unknown")]
        if len(bad) > 1 and len(bad) == len(judged) and len({one for _gpu, one in bad}) == 1:
            return [self._finding(HOST, bad[0][1], f"all {len(bad)} GPUs", [gpu for gpu, _one in bad])]
        if bad:
            return [self._finding(gpu.subject, one, gpu.label, [gpu]) for gpu, one in bad]
        good = [one for _gpu, one in judged if one.state == "ok"]
        if good:
            told = sorted({one.found for one in good})
            count = "1 GPU" if len(good) == 1 else f"{len(good)} GPUs"
            text = f"{count}: {', '.join(told[:3])}" + (f" and {len(told) - 3} more" if len(told) > 3 else "")
            return [Finding(self.name, "ok", HOST, found=text, policy=self.policy)]
        return [self._finding(HOST, one, "", []) for _gpu, one in judged[:1]]

    def _finding(self, subject: Subject, one: Judged, label: str, gpus: t.Sequence[Gpu]) -> Finding:
        return Finding(
            self.name,
            one.state,
            subject,
            found=f"{label}: {one.found}" if label else one.found,
            expected=one.expected,
            action=one.action,
            policy=self.policy,
            reason=one.reason,
            evidence={"gpus": [{**gpu.identity, **{path: gpu[path] for path in self.needs}} for gpu in gpus]},
        )


def readable(observed: Observation) -> t.List[Gpu]:
    """GPUs that answer. What the others lack, gpu-count says."""
    return [Gpu(facts, observed) for facts in observed["gpus"] if facts["state"] == "ok"]


def check(name: str, policy: str, *needs: str) -> t.Callable[[Judge], Check]:
    """Make a check of a judging function: its name, its policy (``block``, ``report``), the facts it needs."""
    return lambda judge: Check(name, policy, needs, judge)
