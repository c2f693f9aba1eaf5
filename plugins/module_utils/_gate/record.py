# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written of a proved host into ``expected.json``, and how a host is compared with it."""

from __future__ import annotations

import contextlib
import os
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding, _state
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import drift
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.baseline import (
    UNREAD,
    Facts,
    baseline,
    same_identity,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, now

Content = t.Dict[str, t.Any]

FOREIGN = Finding(
    "expected-foreign", "unknown", found="expected.json is of another machine",
    expected="a proof of this one: site.yml", action="fix configuration",
)  # fmt: skip


def content(
    expected: t.Optional[Facts], plan: Facts, policy: Facts, observed: Facts, held: Facts, proof: Facts
) -> t.Optional[Content]:
    """The record of a proof, None where the one there says the same of the same host.

    ``observed``: an Observation; ``held``: the environment, as _probe.environment gives it; ``proof``: of gpu_matmul.
    """
    made: Content = {
        "schema": _state.EXPECTED_SCHEMA,
        "collection": _state.COLLECTION,
        "written_at": now(),
        "machine_id": observed.get("host", {}).get("machine_id"),
        "plan": dict(plan),
        "policy": dict(policy),
        "baseline": {
            key: value
            for key, value in baseline(str(plan.get("accelerator")), observed, held, proof).items()
            if key != UNREAD
        },
    }
    if (
        expected is not None
        and not expected.get("edited")
        and not foreign(expected, observed)
        and same_identity(expected["baseline"], made["baseline"])
        and all(expected.get(key) == made[key] for key in ("plan", "policy", "collection"))
    ):
        return None
    return made


def compared(expected: Facts, observed: Facts, held: Facts) -> t.List[Finding]:
    """The Findings of drift of a host that was proved."""
    found = drift.compare(expected, today(expected, observed, held), held)
    return [FOREIGN, *found] if foreign(expected, observed) else found


def foreign(expected: Facts, observed: Facts) -> bool:
    """Whether the record is of another machine, as in a cloned image: not one GPU of it is here, and it says so itself.

    A machine whose GPUs were all exchanged is still itself, and so is one that gets another identity at each start.
    """
    then, today_id = expected.get("machine_id"), observed.get("host", {}).get("machine_id")
    proved = {gpu["uuid"] for gpu in expected["baseline"]["gpus"]}
    here = {gpu.get("uuid") for gpu in observed.get("gpus", [])}
    return bool(then and today_id and then != today_id and not proved & here)


def today(expected: Facts, observed: Facts, held: Facts) -> Content:
    """The baseline as it would be written now, without rates."""
    return baseline(str(expected["baseline"].get("accelerator")), observed, held, {})


def remember_failed(directory: str, bad: t.Sequence[Finding]) -> None:
    """The looks to come compute nothing, and must not call ready what computed wrong."""
    content = {"schema": 1, "findings": [finding.to_dict() for finding in bad]}
    with contextlib.suppress(OSError):  # the verdict has it
        _state.write_atomic(os.path.join(directory, _state.FAILED), _finding.dumps(content))


def failed(directory: str) -> t.List[Finding]:
    """What the last proof on this host found wrong."""
    path = os.path.join(directory, _state.FAILED)
    try:
        return [_finding.from_dict(item) for item in _state.read_json(path)["findings"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = f"{path} cannot be read: {type(error).__name__}: {error}"
        return [Finding("proof-known", "unknown", found=said, expected="a file of ours; site.yml proves anew")]
