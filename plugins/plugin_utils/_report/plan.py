# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Plan as Findings, and as lines that a person reads."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

Plan = t.Mapping[str, t.Any]


def findings(plan: Plan) -> list[Finding]:
    """One Finding for the plan: ok with what it says in short, or fail with its causes and remedies."""
    if plan.get("status") == "ok":
        return [Finding("plan", "ok", found=summary(plan), evidence={"warnings": list(plan.get("warnings", []))})]
    conflicts = list(plan.get("conflicts", []))
    return [
        Finding(
            "plan",
            "fail",
            found="; ".join(f"{c.get('rule')}: {c.get('found')}, needs {c.get('needs')}" for c in conflicts)
            or "no plan",
            expected="one coherent plan",
            action="fix configuration",
            evidence={"conflicts": conflicts, "remedies": list(plan.get("remedies", []))},
        )
    ]


def summary(plan: Plan) -> str:
    """The plan in one line: torch, and the driver with what is to be done about it."""
    parts = [str((plan.get("torch") or {}).get("requirement") or "no torch")]
    driver = plan.get("driver") or {}
    if driver:
        parts.append(f"driver {driver.get('version') or driver.get('branch')} ({driver.get('action')})")
    if (plan.get("fabric_manager") or {}).get("required"):
        parts.append("fabric manager")
    return ", ".join(parts)


def lines(plan: Plan, steps: t.Iterable[str] = ()) -> list[str]:
    """The plan with what would be done (``steps``), every reason, conflict and remedy, a line each."""
    result = [summary(plan)] if plan.get("status") == "ok" else ["no plan"]
    result += [f"  would {step}" for step in steps]
    for conflict in plan.get("conflicts", []):
        result.append(
            f"  {conflict.get('rule')}: {conflict.get('subject')}: "
            f"found {conflict.get('found')}, needs {conflict.get('needs')}"
        )
    result += [f"  {number}. {remedy}" for number, remedy in enumerate(plan.get("remedies", []), 1)]
    result += [f"  because {reason.get('says')} [{reason.get('rule')}]" for reason in plan.get("reasons", [])]
    result += [f"  note: {warning}" for warning in plan.get("warnings", [])]
    return result
