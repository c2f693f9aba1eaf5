# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an image was made for and nothing has proved yet: ``planned.json``, which the role gate leaves in the image.

``{"schema": 1, "plan": {...}, "policy": {...}, "python": "/opt/gpufleet/venv/bin/python"}``: plan and policy as
``expected.json`` has them. The proof at the first start of a host takes it for what is to be proved.
"""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _state
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import accelerator
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, stamp

Facts = t.Dict[str, t.Any]

FILE = "planned.json"
SCHEMA = 1


def read(directory: str) -> t.Optional[Facts]:
    """The content, None where there is none. Raises StateError where it cannot be used."""
    path = os.path.join(directory, FILE)
    try:
        data = _state.read_json(path)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r} where this version reads {SCHEMA}")
        return {"plan": dict(data["plan"]), "policy": dict(data["policy"]), "python": str(data["python"])}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _state.StateError(f"{path} cannot be used ({error}); run site.yml to prove the host") from None


def counted(findings: t.Sequence[Finding], observed: Facts, policy: Facts) -> t.List[Finding]:
    """The same Findings, the GPUs counted by what the image says: a first record is not learnt from 7 of 8."""
    stated = accelerator.Policy(
        accelerator=policy.get("accelerator") or accelerator.CUDA, gpus_expected=policy.get("gpus_expected")
    )
    again = stamp(accelerator.decide(observed, stated).findings, str(observed.get("observed_at", "")))
    said = {finding.check for finding in again}
    return [*(finding for finding in findings if finding.check not in said), *again]
