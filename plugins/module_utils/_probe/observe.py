# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a host: the Observation (docs/architecture.md). A part that fails says so under ``errors``."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host, nvml, owner, pci, visibility
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

SCHEMA = 1

_T = t.TypeVar("_T")


def observe(runner: Runner) -> t.Dict[str, t.Any]:
    """The Observation of this host. Does not raise for what the host lacks or refuses."""
    errors: t.Dict[str, str] = {}
    machine = part(errors, "host", lambda: host.probe(runner), host.UNKNOWN)
    devices: t.List[t.Dict[str, t.Any]] = part(errors, "pci", lambda: pci.probe(runner), [])
    driver = part(errors, "driver", lambda: owner.probe(runner, machine), owner.UNKNOWN)
    answer = part(errors, "nvml", lambda: nvml.probe(runner, machine, driver), nvml.UNKNOWN)
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


def part(errors: t.Dict[str, str], name: str, look: t.Callable[[], _T], unknown: _T) -> _T:
    """What a look gives; where it fails, ``unknown``, and why in ``errors`` under its name."""
    try:
        return look()
    except Exception as error:  # pylint: disable=broad-except
        # Whatever breaks in one part must not hide the others, and is never taken for "nothing there".
        errors[name] = f"{type(error).__name__}: {error}"
        return unknown
