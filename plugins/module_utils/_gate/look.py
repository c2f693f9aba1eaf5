# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fresh look at this host: everything that is known of it, judged by everything that was proved of it."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding, _state
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import accelerator, drift, driver, registry
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.environment import environment
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.observe import observe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

Expected = t.Optional[t.Dict[str, t.Any]]


def look(runner: Runner, directory: str) -> t.List[Finding]:
    """The Findings of this host under the policy that was recorded with its proof."""
    observed = observe(runner)
    found: t.List[Finding] = []
    expected: Expected = None
    try:
        expected = _state.read_expected(directory)
    except _state.StateError as error:
        observed["errors"]["expected"] = str(error)
        found.append(drift.unreadable(str(error)))
    else:
        found += _drift(runner, expected, observed)
    policy = (expected or {}).get("policy") or {}
    stated = accelerator.Policy(
        accelerator=policy.get("accelerator") or accelerator.CUDA,
        gpus_expected=policy.get("gpus_expected"),
        baseline_gpus=len(expected["baseline"]["gpus"]) if expected else None,
    )
    found += [*accelerator.decide(observed, stated).findings, *driver.check(observed), *registry.judge(observed)]
    return _finding.apply_policy(_finding.stamp(found, observed["observed_at"]), policy.get("checks") or {})


def _drift(runner: Runner, expected: Expected, observed: t.Mapping[str, t.Any]) -> t.List[Finding]:
    if expected is None:
        return [drift.NEVER_PROVED]
    then = expected["baseline"]
    held = environment(runner, str(then["environment"].get("python")))
    return drift.compare(expected, drift.baseline(then["accelerator"], observed, held, {}), held)


def judged(findings: t.Sequence[Finding], at: verdict.Now, valid_for: int) -> verdict.Verdict:
    """The verdict over these Findings, as the file has it."""
    return {
        **_finding.verdict(findings),
        "schema": verdict.SCHEMA,
        "judged_at": _finding.now(),
        "uptime": round(at.uptime, 3),
        "boot_id": at.boot_id,
        "collection": _state.COLLECTION,
        "valid_for": valid_for,
    }
