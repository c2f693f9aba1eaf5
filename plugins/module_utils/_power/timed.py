# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The reading of the host's own BMC on a timer (``gpufleet-gate power``), beside the gate's path and not in it.

What it finds goes where the gate folds it in (_gate/outside.py). What the host drew beside its GPUs while they worked
is remembered: it is the base load that a reading at rest cannot measure.
"""

from __future__ import annotations

import json
import math
import os
import sys
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import cooling, supplies
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.read import Ipmi, read
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.reading import Reading, number
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.web import Bmc
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.observe import observe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

REMEMBERED = "/var/lib/gpufleet/power.json"
OUTSIDE = "findings.d/power.json"


def run(options: t.Mapping[str, str], folder: str) -> int:
    """Read, judge, write; 2 where an option is none. ``folder``: of the verdict."""
    try:
        policy = supplies.Policy(
            options.get("redundancy", "n+1"),
            _finite(options.get("supply-watts", "0")),
            int(options.get("expected", 0)),
        )
        base = _finite(options.get("base-load", "0"))
        inlet = _finite(options.get("inlet-max", str(cooling.INLET_MAX_C)))
        valid_for, limit = int(options.get("valid-for", 900)), _finite(options.get("limit", "60"))
    except ValueError as error:
        sys.stderr.write(f"gpufleet-gate power: {error}\n")
        return 2
    runner = Runner()
    observed = observe(runner)
    reading = read("ipmi", Bmc("", limit=limit), Ipmi(), runner, str(observed["host"]["virtualization"]))
    load = supplies.load_of(observed, base or None)
    remember(runner, reading, load)
    load = load._replace(measured_w=measured(runner))
    found = [*supplies.check(reading, load, policy), *cooling.check(reading, inlet)]
    data = {
        "schema": 1,
        "findings": [one.to_dict() for one in _finding.stamp(found, reading["observed_at"])],
        "judged_at": reading["observed_at"],
        "valid_for": valid_for,
    }
    write_atomic(os.path.join(folder, OUTSIDE), _finding.dumps(data))
    return 0


def _finite(text: str) -> float:
    """Compared with NaN or infinity, nothing would ever be too much."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def measured(runner: Runner) -> t.Optional[float]:
    """Watts: the most that this host drew beside its GPUs while they worked; None where that was never seen."""
    try:
        found = number(json.loads(runner.read(REMEMBERED) or "{}").get("base_load_w"))
    except (ValueError, AttributeError):
        return None
    return found if found and found > 0 else None


def remember(runner: Runner, reading: Reading, load: supplies.Load) -> None:
    """Keep what is drawn beside the GPUs, where they work now and it is more than before."""
    drawn = supplies.beside_gpus(reading, load)
    if drawn is None or not supplies.at_work(load) or drawn <= (measured(runner) or 0.0):
        return
    data = {"schema": 1, "base_load_w": drawn, "measured_at": reading["observed_at"]}
    write_atomic(runner.path(REMEMBERED), _finding.dumps(data))
