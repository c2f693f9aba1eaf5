# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers that whoever looks after the driver could install, with the conditions that hold for them, best first."""

from __future__ import annotations

import dataclasses
import typing as t

from . import model, version
from .host import FLAVOURS, Host, architecture, flavours


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """The least ``driver`` of a step, and the step as text."""

    driver: str
    says: str


def driver_steps(host: Host, down: bool) -> t.Iterator[Step]:
    """Upgrades to branches that get fixes, the oldest first; with ``down`` older branches, the newest first.

    Where the GPUs' last branch gets no more fixes, that one counts as well.
    """
    last, name = _last(host)
    rows = [row for row in host.data.branches.values() if not last or row.branch <= last]
    fixed = [row for row in rows if row.supported] or rows[-1:]
    if down:
        for row in reversed(rows):
            if host.installed and row.branch < host.installed[0] and row.first:
                yield Step(row.first, f"go back to driver branch {row.branch}{_module(host)}")
        return
    for row in fixed:
        for driver in _releases(host, row):
            if version.parse(driver) <= host.installed:
                continue
            verb = "upgrade the driver to" if host.installed else "install driver"
            yield Step(driver, f"{verb} {_range(host, row, driver, last, name)}{_module(host)}")


def _releases(host: Host, row: model.Branch) -> list[str]:
    """Releases of the branch to try: the least that the GPUs allow, those that a kernel needs, the newest known."""
    least = [row.first or str(row.branch)] + [match.gpu.driver_min for match in host.gpus if match.gpu.driver_min]
    floor = max((number for number in least if version.major(number) == row.branch), key=version.parse)
    needed = [kernel.fixed for kernel in host.data.kernels if kernel.fixed]
    newer = [number for number in needed if version.major(number) == row.branch] + ([row.last] if row.last else [])
    return [floor, *(number for number in newer if version.parse(number) > version.parse(floor))]


def _last(host: Host) -> tuple[int, str]:
    """The last branch with all GPUs and the architecture that ends with it, or the branch that the user wants."""
    rows = [architecture(match.gpu.compute_capability, host.data) for match in host.gpus]
    ends = [(row.last_driver, f"the last with {row.name}") for row in rows if row and row.last_driver]
    if host.request.driver_policy.isdigit():
        ends.append((int(host.request.driver_policy), "as wished"))
    return min(ends, default=(0, ""))


def _range(host: Host, row: model.Branch, driver: str, last: int, name: str) -> str:
    whole = driver in (row.first, str(row.branch))
    if row.branch != last:
        return f"{row.branch if whole else driver} or newer"
    return f"branch {row.branch}, {name}" if whole else f"{driver} or newer of branch {row.branch}, {name}"


def _module(host: Host) -> str:
    """The kernel module that it must come with, where only one will do."""
    if host.windows:
        return ""
    kinds = {flavours(match, host.data)[0] for match in host.gpus if len(flavours(match, host.data)) == 1}
    if not kinds and host.request.kernel_module in FLAVOURS:
        kinds.add(host.request.kernel_module)
    return f", with the {kinds.pop()} kernel module" if len(kinds) == 1 else ""
