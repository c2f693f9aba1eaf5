# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what the tasks of a host returned to the host's Findings."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import (
    Finding,
    apply_policy,
    from_dict,
    now,
    stamp,
)
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import plan as plan_report

#: The oldest that ansible-core 2.19 and our modules run on.
OLDEST_PYTHON = (3, 8)
#: What each role registers, in the order of the flow.
RESULTS = (
    "plan_observed",
    "driver_result",
    "cuda_result",
    "cuda_compiler_result",
    "cudnn_result",
    "nccl_result",
    "container_toolkit_packages",
    "container_toolkit_result",
    "pytorch_result",
    "topology_result",
    "power_cooling_limits",
    "power_cooling_result",
    "cuda_proof",
    "verify_result",
    "verify_image",
    "verify_fleet",
    "gate_result",
    "gate_installed",
    "gate_wired",
)


def host_findings(
    variables: t.Mapping[str, t.Any],
    *,
    finished: bool,
    failure: t.Mapping[str, t.Any],
    planned: t.Mapping[str, t.Any] | None = None,
) -> list[Finding]:
    """The Findings of one host, under the user's ``gpufleet_policy``.

    ``variables``: the host's variables, with the registered results. ``finished``: the host reached the end of
    the play. ``failure``: task and message of a task that failed, empty where none did. ``planned``: what the module
    plan returned of this host.
    """
    found = [from_dict(item) for item in (planned or {}).get("findings") or []]
    plan = (planned or {}).get("plan") or {}
    if plan:
        found += plan_report.findings(plan)
    unreachable = ""
    for name in RESULTS:
        result = variables.get(name)
        if not isinstance(result, t.Mapping):
            continue
        if "hosts" in result:  # one task for all hosts
            result = result["hosts"].get(variables.get("inventory_hostname")) or {}
        new = [from_dict(item) for item in result.get("findings") or []]
        if name == "plan_observed" and planned:
            new = _not_said_again(new, found, variables)
        # Two roles that look at one thing and see the same say it once, in the later one's words.
        said = {(item.id, item.state) for item in new}
        found = [item for item in found if (item.id, item.state) not in said] + new
        if result.get("unreachable"):
            unreachable = str(result.get("msg", ""))
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
        found.append(_task_failed(failure))
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
    return dated(found, variables)


def run_errors(variables: t.Iterable[t.Mapping[str, t.Any]]) -> list[str]:
    """What a task that ran once for all hosts could not do, though it is no fault of a host: each once."""
    results = (some.get(name) for some in variables for name in RESULTS)
    texts = (result.get("run_error") for result in results if isinstance(result, t.Mapping))
    return sorted({str(text) for text in texts if text})


def dated(found: t.Iterable[Finding], variables: t.Mapping[str, t.Any]) -> list[Finding]:
    """The Findings as they are judged: under the user's ``gpufleet_policy``, with their time."""
    return stamp(apply_policy(found, variables.get("gpufleet_policy") or {}), now())


def identity(variables: t.Mapping[str, t.Any]) -> dict[str, str]:
    """What the host is (_checks/identity.py), where this play looked; empty where it did not."""
    result = variables.get("gate_result")
    return dict(result.get("identity") or {}) if isinstance(result, t.Mapping) else {}


def planned_of(host: str, variables: t.Iterable[t.Mapping[str, t.Any]]) -> t.Mapping[str, t.Any]:
    """What the module plan, which ran once for all, returned of a host: from the first variables that have it."""
    for some in variables:
        result = some.get("plan_all")
        if isinstance(result, t.Mapping):
            return t.cast("t.Mapping[str, t.Any]", (result.get("hosts") or {}).get(host) or {})
    return {}


def _not_said_again(seen: list[Finding], planned: list[Finding], variables: t.Mapping[str, t.Any]) -> list[Finding]:
    """What gpu_info says of one host and the plan, which knows the other hosts too, does not say again.

    A look from before the driver was changed says nothing of the new one; after a restart there is another look.
    """
    driver = variables.get("driver_result")
    if isinstance(driver, t.Mapping) and driver.get("changed"):
        return []
    said = {finding.check for finding in planned}
    return [finding for finding in seen if finding.check not in said]


def _task_failed(failure: t.Mapping[str, t.Any]) -> Finding:
    found = f"{failure.get('task')}: {failure.get('msg')}"
    expected = "every task done"
    stderr = str(failure.get("stderr") or "").strip()
    if stderr:  # Ansible's message has only that no answer came.
        found += f": {stderr.splitlines()[-1].strip()}"
    python = re.match(r"Python (\d+)\.(\d+)\S*", str(failure.get("python") or "").strip())
    if stderr and python and (int(python[1]), int(python[2])) < OLDEST_PYTHON:
        found = f"{failure.get('task')}: the host's {python[0]} is too old for Ansible's modules"
        expected = "Python {}.{} or newer, named by ansible_python_interpreter".format(*OLDEST_PYTHON)
    return Finding(
        "task-failed",
        "fail",
        found=found,
        expected=expected,
        action="fix configuration",
        evidence={"stderr": stderr} if stderr else {},
    )
