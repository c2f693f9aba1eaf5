# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What site.yml would do on a host that has this plan: a line a step."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import mismatch

Part = t.Mapping[str, t.Any]
#: What is done to a driver; one that stays is no step.
CHANGES = ("install", "upgrade", "downgrade")


def steps(plan: Part, observed: Part, variables: Part) -> list[str]:
    """The steps in their order, nothing for a conflict."""
    if plan.get("status") != "ok":
        return []
    found = [
        _driver(plan.get("driver") or {}, observed.get("driver") or {}),
        _torch(plan["torch"], observed, variables),
    ]
    image = variables.get("gpufleet_mode") == "image"
    last = "leave the proof to the first start" if image else "prove it, and record what was proved"
    return [*(step for step in found if step), last]


def _driver(driver: Part, seen: Part) -> str:
    if driver.get("action") not in CHANGES:
        return ""
    there = seen.get("version") or seen.get("library_version") or "none"
    return f"{driver['action']} driver {driver.get('version') or driver.get('branch')} (there is {there})"


def _torch(torch: Part, observed: Part, variables: Part) -> str:
    if variables.get("pytorch_python"):
        return f"leave {variables['pytorch_python']} as it is"
    held = observed.get("venv") or {}
    venv = str(held.get("python", "")).removesuffix("/bin/python")
    version = held.get("torch_version")
    build = f"{torch['version']}+{torch['variant']}"
    if version and not held.get("missing"):
        if not mismatch(version, held.get("torch_cuda") or "", torch["version"], torch["variant"]):
            return f"keep torch {version} in {venv}"
        return f"replace torch {version} by {build} in {venv}"
    return f"{'repair' if version else 'install'} torch {build} in {venv}"
