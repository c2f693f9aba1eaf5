# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what the tasks of a host returned to the host's Findings."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, from_dict, now, stamp
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import plan as plan_report

#: What each role registers, in the order of the flow.
RESULTS = (
    "plan_result",
    "driver_result",
    "pytorch_result",
    "verify_result",
    "gate_result",
)


def host_findings(variables: t.Mapping[str, t.Any], *, finished: bool, failure: t.Mapping[str, t.Any]) -> list[Finding]:
    """The Findings of one host.

    ``variables``: the host's variables, with the registered results. ``finished``: the host reached the end of
    the play. ``failure``: task and message of a task that failed, empty where none did.
    """
    found: list[Finding] = []
    unreachable = ""
    for name in RESULTS:
        result = variables.get(name)
        if not isinstance(result, t.Mapping):
            continue
        found += [from_dict(item) for item in result.get("findings") or []]
        if result.get("unreachable"):
            unreachable = str(result.get("msg", ""))
    planned = variables.get("gpufleet_plan")
    if isinstance(planned, t.Mapping) and planned.get("status"):
        found += plan_report.findings(planned)
    if unreachable:
        found.append(
            Finding(
                "host-reachable",
                "unknown",
                found=unreachable,
                expected="an answer over Ansible's connection",
                action="drain and inspect",
            )
        )
    elif failure and not any(item.state == "fail" for item in found):
        found.append(
            Finding(
                "task-failed",
                "fail",
                found=f"{failure.get('task')}: {failure.get('msg')}",
                expected="every task done",
                action="fix configuration",
            )
        )
    elif not finished and not failure:
        found.append(
            Finding(
                "host-finished",
                "unknown",
                found="the host was lost before the end of the run",
                expected="every task done",
                action="drain and inspect",
            )
        )
    return stamp(found, now())
