# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which package manager this host has, and whether packages are changed through it here."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import dnf
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import Apt, PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.manager import Manager
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

APT = "/usr/bin/apt-get"
#: What a plan calls its packages in, for apt and dnf alike.
Part = t.Mapping[str, t.Any]


def refusal(runner: Runner, system: t.Mapping[str, str]) -> str:
    """Why packages are not changed on this operating system (``host.os`` of the observation), "" where they are."""
    name = system["name"] or system["id"]
    if runner.exists(APT):
        return ""
    if not runner.exists(dnf.PROGRAM):
        return f"packages are changed through apt and dnf only, and {name} has neither"
    family = {system["id"], *system["like"]} & {"rhel", "fedora"}
    if family and system["version"].split(".", 1)[0] == "8":
        return (
            f"on {name} the plan and the proof are all there is: its dnf is of a Python that Ansible drives no more."
            " Install the planned packages there by other means, and set driver_policy: external"
        )
    return ""


def manager(
    runner: Runner, system: t.Mapping[str, str], limits: t.Tuple[int, int], scratch: str, stream: str = ""
) -> Manager:
    """The package manager, for a prediction with a ``scratch`` folder. ``limits``: for the lock and for one change.

    Raises PackageFailure where there is none, with the reason.
    """
    why = refusal(runner, system)
    if why:
        raise PackageFailure(why)
    if runner.exists(APT):
        apt = Apt(runner, *limits, scratch)
        if scratch:
            apt.prepare_scratch()
        return apt
    found = dnf.Dnf(runner, *limits, scratch, stream)
    if scratch:
        found.prepare_scratch()
    return found


def spoken(part: Part, by: Manager) -> Part:
    """A part of a plan with its packages as this manager is asked for them."""
    if not part.get("packages"):
        return part
    return {**part, "packages": [by.spec(str(name)) for name in part["packages"]]}
