# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof on the host itself: the recorded environment computes again, and what is ready then is recorded anew."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding, _state
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import drift
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import READY, Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import look, planned, record
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import prove as matmul
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.jobs import LIMITS
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.environment import environment
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

LEVEL = "quick"
#: Checks of drift that say that a proof is due: this is one.
_ANSWERED = ("proof-due",)


def prove(seen: look.Seen, directory: str) -> t.List[Finding]:
    """The Findings of the look and of a proof. A ready host's record then says what was proved now.

    At the first start of an image the plan that it was made for is proved. Where there is neither, there is no plan to
    prove, which the look has said.
    """
    expected = seen.expected
    if expected is None:
        try:
            first = planned.read(directory)
        except _state.StateError as error:
            return [*seen.findings, Finding("proof-known", "unknown", found=str(error), expected="a file of ours")]
        if first is None:
            return seen.findings
        python, plan, policy = first["python"], first["plan"], first["policy"]
        rest = [finding for finding in seen.findings if finding.check != drift.NEVER_PROVED.check]
        seen = seen._replace(
            findings=planned.counted(rest, seen.observed, policy), environment=environment(Runner(), python)
        )
    else:
        python = str(expected["baseline"]["environment"].get("python"))
        plan, policy = expected["plan"], expected.get("policy") or {}
    settings = matmul.Settings(python, plan=plan, owned=policy.get("owned", True), level=LEVEL, timeout=LIMITS[LEVEL])
    proof, found = matmul.prove(settings)
    found = _finding.apply_policy(_finding.stamp(found, _finding.now()), policy.get("checks") or {})
    # What a proof of before found, this one answers.
    said = {finding.id for finding in seen.failed}
    findings = [*(finding for finding in seen.findings if finding.id not in said), *found]
    bad = [finding for finding in found if finding.policy == "block" and finding.state in ("fail", "unknown")]
    if bad:
        record.remember_failed(directory, bad)
    if _finding.fold(findings) != READY or any(_stands(finding) for finding in seen.findings):
        return findings
    _state.forget_failed(directory)
    content = record.content(expected, plan, policy, seen.observed, seen.environment, proof)
    if content is not None:
        try:
            _state.write_expected(directory, content)
        except (OSError, _state.StateError) as error:
            problem = f"{directory}/{_state.EXPECTED} cannot be written: {error}; the record of before stays"
            return [*findings, _finding.stamp([Finding("recorded", "warn", found=problem, policy="report")], "")[0]]
        findings = [finding for finding in findings if not _settled(finding)]
    done = Finding("recorded", "ok", found=f"{directory}/{_state.EXPECTED}", policy="report")
    return [*findings, *_finding.stamp([done], _finding.now())]


def _stands(finding: Finding) -> bool:
    """Whether it is a difference that only drift_accept takes into the record, however it is acknowledged."""
    return finding.check in ("expected-edited", "expected-foreign", "drift-packages", "environment-whole") or (
        finding.check.startswith("drift-") and finding.state in ("fail", "unknown")
    )


def _settled(finding: Finding) -> bool:
    """Whether this proof took away what the look had found."""
    return finding.check in _ANSWERED or bool(finding.evidence.get("proof"))
