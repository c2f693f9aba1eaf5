# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every health check of a host as a whole has in common, beside those of its GPUs (gpu.py). Pure.

It is asked where the host has NVIDIA GPUs, and where the facts that it needs were read: absent is ``not_applicable``,
null is ``unknown``, as for GPUs.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    ABSENT,
    NOT_SUPPORTED,
    Judged,
    Observation,
    skip,
    unknown,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import HOST, Finding, Subject


class About(t.NamedTuple):
    """What a check makes of one part of the host (a GPU, a bridge), with the facts that it saw."""

    subject: Subject
    judged: Judged
    evidence: t.Mapping[str, t.Any] = {}


HostJudge = t.Callable[[Observation], t.Union[Judged, t.Sequence[About]]]


class HostCheck(t.NamedTuple):
    """A health check of a host: ``needs`` are the paths without which it cannot be asked."""

    name: str
    policy: str
    needs: t.Tuple[str, ...]
    judge: HostJudge

    def findings(self, observed: Observation) -> t.List[Finding]:
        """What follows, none where the host has no NVIDIA GPU."""
        if not gpu_addresses(observed):
            return []
        values = {path: at(observed, path) for path in self.needs}
        failed = observed.get("errors") or {}
        blank = [path for path, value in values.items() if value is None or path.split(".", 1)[0] in failed]
        absent = [path for path in values if path not in blank and values[path] in (ABSENT, NOT_SUPPORTED)]
        answer: t.Union[Judged, t.Sequence[About]]
        if absent:
            answer = skip(f"this host does not tell {' and '.join(absent)}")
        elif blank:
            answer = unknown(f"{' and '.join(blank)} could not be read", "a value", "none")
        else:
            answer = self.judge(observed)
        parts = [About(HOST, answer, {"facts": values})] if isinstance(answer, Judged) else answer
        return [
            Finding(
                self.name,
                part.judged.state,
                part.subject,
                found=part.judged.found,
                expected=part.judged.expected,
                action=part.judged.action,
                policy=self.policy,
                reason=part.judged.reason,
                evidence=part.evidence if part.judged.state not in ("ok", "not_applicable") else {},
            )
            for part in parts
        ]


def at(observed: Observation, path: str) -> t.Any:
    """A fact of the host by path; ``absent`` where it was not read."""
    place: t.Any = observed
    for part in path.split("."):
        if not isinstance(place, t.Mapping) or part not in place:
            return ABSENT
        place = place[part]
    return place


def gpu_addresses(observed: Observation) -> t.List[str]:
    """PCI addresses of the NVIDIA GPUs that the bus or the driver shows; one of WSL has none on the bus."""
    seen = [device["address"] for device in observed["pci"] if device["role"] == "gpu"]
    return seen + [
        str(gpu["pci_address"]) for gpu in observed["gpus"] if gpu.get("pci_address") and gpu["pci_address"] not in seen
    ]


def host_check(name: str, policy: str, *needs: str) -> t.Callable[[HostJudge], HostCheck]:
    """Make a check of a judging function: its name, its policy (``block``, ``report``), the facts it needs."""
    return lambda judge: HostCheck(name, policy, needs, judge)
