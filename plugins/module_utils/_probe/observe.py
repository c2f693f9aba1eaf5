# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a host: the Observation (docs/architecture.md). A part that fails says so under ``errors``."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host, mok, nvml, owner, pci, visibility
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.compared import part
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import ask

SCHEMA = 1


def observe(runner: Runner) -> t.Dict[str, t.Any]:
    """The Observation of this host. Does not raise for what the host lacks or refuses."""
    errors: t.Dict[str, str] = {}
    machine = part(errors, "host", lambda: _machine(runner), {**host.UNKNOWN, "mok": None})
    devices: t.List[t.Dict[str, t.Any]] = part(errors, "pci", lambda: pci.probe(runner), [])
    driver = part(errors, "driver", lambda: owner.probe(runner, machine), owner.UNKNOWN)
    answer = part(errors, "nvml", lambda: nvml.probe(runner, machine, driver, _more), nvml.UNKNOWN)
    # Last: NVML's start makes device nodes that are not there yet.
    seen = part(errors, "visibility", lambda: visibility.probe(runner, machine, devices), visibility.UNKNOWN)
    return {
        "schema": SCHEMA,
        "observed_at": _finding.now(),
        "host": machine,
        "pci": devices,
        "driver": driver,
        "nvml": answer["nvml"],
        "gpus": answer["gpus"],
        "visibility": seen,
        "errors": errors,
    }


def _machine(runner: Runner) -> t.Dict[str, t.Any]:
    return {**host.probe(runner), "mok": mok.probe(runner)}


def _more() -> ask.More:
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import ask as asking
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import facts_health, smi_health

    return asking.More(facts_health.PARTS, facts_health.p2p, smi_health.parse, smi_health.add_compute_capability)
