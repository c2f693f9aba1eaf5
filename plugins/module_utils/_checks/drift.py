# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a host still what was proved? Its baseline against the one of today, one Finding a difference."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.baseline import (
    GPU_VALUES,
    HOST_VALUES,
    UNREAD,
    Compared,
    Facts,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import HOST, Finding, Subject

NEVER_PROVED = Finding(
    "never-proved",
    "unknown",
    found="no expected.json",
    expected="a proof that was recorded",
    action="fix configuration",
)


def unreadable(why: str) -> Finding:
    """There is an ``expected.json``, and it cannot be used: nothing is known, which is not "never proved"."""
    return Finding(
        "expected-readable",
        "unknown",
        found=why,
        expected="a readable expected.json",
        action="fix configuration",
    )


def edited() -> Finding:
    """``expected.json`` is not as it was written: what it says was proved may never have been."""
    return Finding(
        "expected-edited",
        "unknown",
        found="expected.json was changed by hand since it was written",
        expected="the record of a proof, or a change that drift_accept names; site.yml proves and records anew",
        action="fix configuration",
    )


def compare(expected: t.Optional[Facts], now: Facts, environment: Facts) -> t.List[Finding]:
    """The Findings of drift: ``now`` is the baseline as it would be written today, ``environment`` today's."""
    if expected is None:
        return [NEVER_PROVED]
    then = expected["baseline"]
    found = [edited()] if expected.get("edited") else []
    subject = Subject("environment", str(then.get("environment", {}).get("python") or ""))
    for row in HOST_VALUES:
        before, today = (side.get(row.part, {}) if row.part else side for side in (then, now))
        if row.key in before:  # a record of before this value was compared says nothing of it
            found += _value(row, before[row.key], today.get(row.key), subject if row.part == "environment" else HOST)
    found += _compare_gpus(then.get("gpus", []), now.get("gpus", []), str(now.get(UNREAD) or ""))
    found += _compare_packages(then["environment"], environment)
    found += _environment_whole(environment)
    due = [finding.id for finding in found if finding.evidence.get("proof")]
    if due:
        found.append(_proof_due(due))
    if not any(finding.policy == "block" for finding in found):
        looked = f"{environment.get('files', 0)} files of {len(environment.get('packages', {}))} packages by size"
        found.append(Finding("drift", "ok", found=f"as proved on {expected['written_at']}; {looked}"))
    return found


def _proof_due(because: t.Sequence[str]) -> Finding:
    return Finding(
        "proof-due",
        "warn",
        found=f"not proved as it is now: {_few(because)}",
        expected="a proof on the next idle slot: site.yml, or gpufleet-gate --prove on the host",
        policy="report",
        evidence={"because": list(because)},
    )


def _value(row: Compared, before: t.Any, today: t.Any, subject: Subject) -> t.List[Finding]:
    if before == today or (row.less and today is not None and today > before):
        return []
    evidence: t.Dict[str, t.Any] = {"proved": before, "now": today}
    if row.proof:
        evidence["proof"] = True
    return [
        Finding(
            row.check,
            "unknown" if today is None and row.state == "fail" else row.state,
            subject,
            found=f"{row.key} {_text(today)}",
            expected=f"{_text(before)}, as proved",
            action=row.action,
            policy=row.policy,
            evidence=evidence,
        )
    ]


def _text(value: t.Any) -> str:
    return "unknown" if value is None else "none" if value == "" else str(value)


def _compare_gpus(then: t.Sequence[Facts], now: t.Sequence[Facts], unread: str) -> t.List[Finding]:
    today = {gpu.get("uuid"): gpu for gpu in now}
    before = {gpu.get("uuid"): gpu for gpu in then}
    gone = [gpu for uuid, gpu in before.items() if uuid not in today]
    new = [gpu for uuid, gpu in today.items() if uuid not in before]
    found = []
    for gpu in gone:
        swap = swapped_for(gpu, new)
        if unread:
            found.append(
                Finding(
                    "drift-gpu-missing",
                    "unknown",
                    Subject("gpu", str(gpu.get("uuid"))),
                    found=f"not seen: {gpu.get('name')} at {gpu.get('pci_address')} ({unread})",
                    expected="every GPU's answer",
                    action="drain and inspect",
                )
            )
        elif swap is not None:
            new.remove(swap)
            found.append(
                Finding(
                    "drift-gpu-swapped",
                    "warn",
                    Subject("gpu", str(swap.get("uuid"))),
                    found=f"{swap.get('name')} {swap.get('uuid')} at {swap.get('pci_address')}",
                    expected=f"{gpu.get('uuid')}, as proved",
                    policy="report",
                    evidence={"proof": True, "proved": gpu.get("uuid"), "now": swap.get("uuid")},
                )
            )
        else:
            found.append(
                Finding(
                    "drift-gpu-missing",
                    "fail",
                    Subject("gpu", str(gpu.get("uuid"))),
                    found=f"{len(now)} GPUs, without {gpu.get('name')} at {gpu.get('pci_address')}",
                    expected=f"{len(then)} GPUs, as proved",
                    action="drain and inspect",
                )
            )
    found += [
        Finding(
            "drift-gpu-new",
            "warn",
            Subject("gpu", str(gpu.get("uuid"))),
            found=f"{gpu.get('name')} at {gpu.get('pci_address')} was never proved",
            expected="the proved GPUs",
            policy="report",
            evidence={"proof": True},
        )
        for gpu in new
    ]
    for uuid, gpu in before.items():
        if uuid in today:
            for row in GPU_VALUES:
                if gpu.get(row.key) is not None:  # what the driver did not tell then is no loss now
                    found += _value(row, gpu[row.key], today[uuid].get(row.key), Subject("gpu", str(uuid)))
    return found


def swapped_for(gone: Facts, new: t.Sequence[Facts]) -> t.Optional[Facts]:
    """Which of the new GPUs stands for the one that is gone: one of its kind, in its slot where there is one."""
    alike = [gpu for gpu in new if gpu.get("name") == gone.get("name")]
    in_place = [gpu for gpu in alike if gpu.get("pci_address") == gone.get("pci_address")]
    return next(iter(in_place + alike), None)


def _compare_packages(then: Facts, environment: Facts) -> t.List[Finding]:
    """Torch, NumPy and what they require: one finding for all that changed; torch itself has its own row."""
    if environment.get("error") or "packages" not in then:
        return []
    before, today = dict(then.get("packages", {})), dict(environment.get("packages", {}))
    changed = [
        f"{name} {today.get(name, 'gone')} (proved {before.get(name, 'without it')})"
        for name in sorted({*before, *today} - {"torch"})
        if before.get(name) != today.get(name)
    ]
    if not changed:
        return []
    return [
        Finding(
            "drift-packages",
            "fail",
            Subject("environment", str(environment.get("python") or "")),
            found=_few(changed),
            expected="the packages that were proved; site.yml puts back our own, verify.yml proves yours",
            action="fix configuration",
            evidence={"changed": changed},
        )
    ]


def _few(items: t.Sequence[str]) -> str:
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")


def _environment_whole(environment: Facts) -> t.List[Finding]:
    subject = Subject("environment", str(environment.get("python") or ""))
    if environment.get("error"):
        return [
            Finding(
                "environment-whole",
                "unknown" if environment.get("denied") else "fail",
                subject,
                found=str(environment["error"]),
                expected="an interpreter that has torch",
                action="fix configuration",
            )
        ]
    missing = list(environment.get("missing", []))
    if missing:
        # What cannot be loaded at all says more than a source file.
        missing.sort(key=lambda path: ".so" not in path)
        return [
            Finding(
                "environment-whole",
                "fail",
                subject,
                found="missing or of another size: " + _few(missing),
                expected="every file that the wheels installed",
                action="fix configuration",
                evidence={"missing": missing[:50], "count": len(missing)},
            )
        ]
    return []
