# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Observation with what only a judgement of health needs: the kernel log, and settings of the host.

Apart from observe.py because the module that only compares (gpu_drift) travels to every host and needs none of it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import (
    kernel_log,
    limits,
    settings,
    shadows,
    smi_links,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.observe import observe as observe_parts
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.pci import DEVICES
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner


def observe(runner: Runner, *, remember: bool = False, acknowledge: bool = False) -> t.Dict[str, t.Any]:
    """The Observation of this host. ``remember`` and ``acknowledge``: see kernel_log.probe."""
    observed = observe_parts(runner)
    add(observed, runner, remember=remember, acknowledge=acknowledge)
    return observed


def add(observed: t.Dict[str, t.Any], runner: Runner, *, remember: bool = False, acknowledge: bool = False) -> None:
    """Puts the further parts into an Observation. A part that fails says so under ``errors``, and is not judged ok."""
    for name, look, unknown in (
        (
            "kernel_log",
            lambda: kernel_log.probe(runner, observed["host"]["boot_id"], remember=remember, acknowledge=acknowledge),
            kernel_log.UNKNOWN,
        ),
        ("pci_paths", lambda: pci_paths(runner, observed["pci"]), {}),
        ("settings", lambda: settings.probe(runner, observed["pci_paths"]), {}),
        ("limits", lambda: limits.probe(runner), {}),
        ("shadows", lambda: shadows.probe(runner), []),
    ):
        try:
            observed[name] = look()
        except Exception as error:  # pylint: disable=broad-except
            # As in observe.py: one part must not hide the others.
            observed["errors"][name] = f"{type(error).__name__}: {error}"
            observed[name] = unknown
    try:
        smi_links.add(observed, runner)
    except Exception as error:  # pylint: disable=broad-except
        observed["errors"]["links"] = f"{type(error).__name__}: {error}"


def pci_paths(runner: Runner, pci: t.Sequence[t.Mapping[str, t.Any]]) -> t.Dict[str, t.List[str]]:
    """The bridges above each GPU by its address, the one at the root first."""
    paths = {}
    for device in pci:
        if device["role"] == "gpu":
            place = runner.realpath(f"{DEVICES}/{device['address']}").split("/")
            paths[device["address"]] = [part for part in place[:-1] if part.count(":") == 2]
    return paths
