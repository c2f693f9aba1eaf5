# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a host is compared with what was proved of it: an Observation without what only a judgement needs.

Apart from observe.py because the module that only compares (gpu_drift) travels to every host.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host, nvml, owner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

_T = t.TypeVar("_T")


def observe(runner: Runner) -> t.Dict[str, t.Any]:
    """Host, driver and GPUs, as _checks/baseline.py takes them. Does not raise for what the host lacks or refuses."""
    errors: t.Dict[str, str] = {}
    machine = part(errors, "host", lambda: host.probe(runner), host.UNKNOWN)
    driver = part(errors, "driver", lambda: owner.probe(runner, machine), owner.UNKNOWN)
    answer = part(errors, "nvml", lambda: nvml.probe(runner, machine, driver), nvml.UNKNOWN)
    return {"host": machine, "driver": driver, "nvml": answer["nvml"], "gpus": answer["gpus"], "errors": errors}


def part(errors: t.Dict[str, str], name: str, look: t.Callable[[], _T], unknown: _T) -> _T:
    """What a look gives; where it fails, ``unknown``, and why in ``errors`` under its name."""
    try:
        return look()
    except Exception as error:  # pylint: disable=broad-except
        # Whatever breaks in one part must not hide the others, and is never taken for "nothing there".
        errors[name] = f"{type(error).__name__}: {error}"
        return unknown
