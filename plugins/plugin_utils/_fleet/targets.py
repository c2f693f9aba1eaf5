# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What wheels a host's plan needs, and for which machine: of its variables, its observation and its plan."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import requirement_name, wanted
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import wheels
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import planning

Vars = t.Mapping[str, t.Any]


def target(variables: Vars, seen: Vars, plan: Vars) -> wheels.Target:
    """The machine that wheels are for, and where they come from."""
    host = seen["host"]
    _torch, options = planning.wishes(variables, seen, plan["accelerator"])
    isolated = variables.get("pytorch_pip_isolated", True)
    index = str(variables.get("pytorch_index_url") or plan["torch"].get("index_url") or "")
    return wheels.Target(
        python=str(options["python"]),
        arch=str(host["arch"]),
        glibc=str(host["glibc"]),
        # Beside the settings of this machine, the plan's index is one more and does not replace theirs.
        index_url=index if isolated else "",
        extra_index_urls=() if isolated or not index else (index,),
        settings=not isolated,
    )


def cells(of: wheels.Target) -> dict[str, str]:
    """The target as a lock writes it."""
    return {"python": ".".join(of.python.split(".")[:2]), "arch": of.arch, "glibc": of.glibc}


def requirements(variables: Vars, plan: Vars) -> list[str]:
    """What the role pytorch would ask for, with the plan's bounds on what is among it."""
    want = wanted(plan, packages=variables.get("pytorch_packages") or ["numpy"])
    names = {requirement_name(line) for line in want.requirements}
    return [*want.requirements, *(line for line in want.constraints if requirement_name(line) in names)]
