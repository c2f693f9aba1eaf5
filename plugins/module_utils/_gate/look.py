# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fresh look at this host: everything that is known of it, judged by everything that was proved of it."""

from __future__ import annotations

import os
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding, _state
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import (
    accelerator,
    drift,
    driver,
    registry,
    shadows,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import (
    acknowledge,
    outside,
    record,
    remembered,
    verdict,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import shadows as shadows_probe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.whole import observe

Facts = t.Dict[str, t.Any]


class Seen(t.NamedTuple):
    """One look: the Findings, and the facts that they are of. ``expected`` is None where the host was never proved."""

    findings: t.List[Finding]
    failed: t.List[Finding]
    expected: t.Optional[Facts]
    observed: Facts
    environment: Facts


def look(runner: Runner, directory: str) -> Seen:
    """This host under the policy that was recorded with its proof, acknowledged where somebody answers for it."""
    observed = observe(runner, remember=True)
    expected: t.Optional[Facts] = None
    held: Facts = {}
    try:
        expected = _state.read_expected(directory)
    except _state.StateError as error:
        observed["errors"]["expected"] = str(error)
        found = [drift.unreadable(str(error))]
    else:
        if expected is None:
            found = [drift.NEVER_PROVED]
        else:
            held = remembered.environment(runner, str(expected["baseline"]["environment"].get("python")))
            found = record.compared(expected, observed, held)
            if not held.get("error"):
                prefix = os.path.dirname(os.path.dirname(str(held["python"])))
                found += shadows.doubled(shadows_probe.doubled(runner, prefix), str(held["python"]))
    policy = (expected or {}).get("policy") or {}
    stated = accelerator.Policy(
        accelerator=policy.get("accelerator") or accelerator.CUDA,
        gpus_expected=policy.get("gpus_expected"),
        baseline_gpus=len(expected["baseline"]["gpus"]) if expected else None,
    )
    failed = record.failed(directory)
    found += [
        *failed,
        *accelerator.decide(observed, stated).findings,
        *driver.check(observed),
        *registry.judge(observed),
        *outside.read(runner.path(outside.FOLDER), time.time()),
    ]
    found = _finding.apply_policy(_finding.stamp(found, observed["observed_at"]), policy.get("checks") or {})
    try:
        found = acknowledge.apply(found, acknowledge.read(directory), time.time())
    except _state.StateError as error:
        found.append(acknowledge.unreadable(str(error)))
    return Seen(found, failed, expected, observed, held)


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
