# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reviewed change becomes part of the baseline: by the finding's id, with a name and a reason. Pure."""

from __future__ import annotations

import copy
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import drift
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.baseline import GPU_VALUES, HOST_VALUES, Facts
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

#: How many acceptances a record remembers.
REMEMBERED = 50


class NotAccepted(Exception):
    """Nothing was accepted; the text says why."""


def accept(
    expected: Facts, now: Facts, environment: Facts, ids: t.Sequence[str], by: str, reason: str, at: str
) -> t.Dict[str, t.Any]:
    """The record with the differences of these findings taken over, and who took them. Raises NotAccepted.

    ``now`` and ``environment`` are today's, as drift.compare has them. A difference that is not named stays one. What
    was accepted before and is no difference any more is no error, so that a second run changes nothing.
    """
    if not by.strip() or not reason.strip():
        raise NotAccepted("drift_accept needs drift_accept_by and drift_accept_reason: who reviewed it, and why")
    findings = {finding.id: finding for finding in drift.compare(expected, now, environment)}
    known = {item.get("id") for item in expected.get("accepted", [])}
    wanted = [name for name in dict.fromkeys(ids) if name in findings or name not in known]
    wrong = [f"{name}: {why}" for name in wanted for why in [_why_not(findings.get(name))] if why]
    if wrong:
        there = ", ".join(sorted(name for name, finding in findings.items() if not _why_not(finding))) or "none"
        raise NotAccepted(f"not accepted: {'; '.join(wrong)}. What can be accepted on this host: {there}")
    content = copy.deepcopy({key: value for key, value in expected.items() if key != "edited"})
    for name in wanted:
        _take(content["baseline"], now, environment, findings[name])
        entry = {"id": name, "by": by, "reason": reason, "at": at, "found": findings[name].found}
        content["accepted"] = [*content.get("accepted", []), entry][-REMEMBERED:]
    return content


def _why_not(finding: t.Optional[Finding]) -> str:
    if finding is None:
        return "no finding of this look"
    if finding.check == "expected-edited":
        return ""
    if finding.state not in ("warn", "fail"):
        return f"it is {finding.state}: what could not be told cannot be accepted"
    if not finding.check.startswith("drift-"):
        return "it is no difference from the record"
    return ""


def _take(then: t.Dict[str, t.Any], now: Facts, environment: Facts, finding: Finding) -> None:
    """Take over what one finding is about."""
    key, check = finding.subject.key, finding.check
    for row in HOST_VALUES:
        if row.check == check:
            (then[row.part] if row.part else then)[row.key] = (now[row.part] if row.part else now)[row.key]
            return
    if check == "drift-packages":
        then["environment"]["packages"] = dict(environment["packages"])
        return
    gpus = {gpu["uuid"]: dict(gpu) for gpu in then["gpus"]}
    today = {gpu["uuid"]: gpu for gpu in now["gpus"]}
    for row in GPU_VALUES:
        if row.check == check:
            gpus[key][row.key] = today[key][row.key]
    if check in ("drift-gpu-missing", "drift-gpu-swapped"):
        gpus.pop(finding.evidence.get("proved", key), None)
    if check in ("drift-gpu-new", "drift-gpu-swapped"):
        gpus[key] = dict(today[key])
    then["gpus"] = sorted(gpus.values(), key=lambda gpu: str(gpu["pci_address"]))
