# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Toolkit, cuDNN and NCCL as packages, for those who compile against them: in the plan's version, held."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import packages as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import repository
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import (
    Package,
    PackageFailure,
    choose,
    fits,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.driver import Outcome, Stop
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.manager import Manager

#: The four have to be of one version (NVIDIA's own order of installation).
CONTAINER_TOOLKIT = (
    "libnvidia-container1",
    "libnvidia-container-tools",
    "nvidia-container-toolkit-base",
    "nvidia-container-toolkit",
)
#: What torch.compile and extensions call, of the distribution's own compiler and Python, by package manager.
COMPILER = {"apt-get": ("gcc", "g++", "python3-dev"), "dnf": ("gcc", "gcc-c++", "python3-devel")}


#: The parts that are the distribution's own, which it goes on upgrading.
COMPILER_PART = "compiler"


def wanted(
    part: str, plan: t.Mapping[str, t.Any], names: t.Sequence[str], version: str, by: Manager
) -> t.Tuple[t.List[str], bool]:
    """The packages of a part, ``name`` or ``name=PATTERN``, and whether they have to be so, and held.

    ``names``: of the compiler, instead of the usual ones; ``version``: of the container toolkit. Raises PackageFailure
    where the plan names none.
    """
    found = [str(name) for name in (plan.get(part) or {}).get("packages") or []]
    if part == COMPILER_PART:
        return [by.spec(name) for name in names or COMPILER[by.name]], False
    if part == "container_toolkit":
        return [by.spec(f"{name}={version}-*" if version else name) for name in CONTAINER_TOOLKIT], bool(version)
    if not found:
        raise PackageFailure(f"the plan names no packages of {part} for this system")
    return [by.spec(name) for name in found], True


def chosen(
    part: str,
    names: t.Sequence[str],
    place: t.Optional[repository.Repository],
    apt: Manager,
    files: Files,
    get: repository.Fetch,
) -> t.List[str]:
    """``name=version`` of each, by the sources. Raises Stop or PackageFailure where one is not to be had."""
    if place is not None:
        repository.place(place, apt, files, get)
    apt.update()
    available = apt.versions(name.split("=")[0] for name in names)
    exact = [choose(name, available) for name in names]
    if not all(exact):
        raise Stop(checks.library_not_available(part, names, available))
    return exact


def present(
    part: str,
    names: t.Sequence[str],
    place: t.Optional[repository.Repository],
    apt: Manager,
    get: repository.Fetch,
    held: bool = True,
) -> Outcome:
    """Install the packages, ``name`` or ``name=PATTERN``, and hold them.

    Those of the compiler are the distribution's own, which it goes on upgrading: they are not held. With ``held``
    off, those that are there are enough as they are, whoever brought them.
    Raises Stop or PackageFailure, with the host as it was. Where all are there and held, no source is asked.
    """
    before = apt.installed()
    if not missing(names, before, held):
        return Outcome(False, "", _found(names, before), [], [checks.library(part, _found(names, before), held)])
    left = apt.interrupted(before)
    if left and apt.scratch:
        raise Stop(checks.interrupted(left, apt.by_hand))
    if left:
        apt.repair()
    files = Files(apt.runner, remember=not apt.scratch)
    try:
        exact = chosen(part, names, place, apt, files, get)
        planned = apt.simulate(exact)
        foreign = sorted(name for name in planned.remove if name not in {item.split("=")[0] for item in names})
        if foreign:
            raise Stop(checks.removes(foreign))
    except BaseException:
        files.take_back()
        raise
    if apt.scratch:
        return Outcome(True, "", dict(item.split("=") for item in exact), planned.lines())
    problem = apt.problem(apt.change(exact))
    if problem:
        raise PackageFailure(f"{apt.name} install {' '.join(exact)}: {problem}")
    ours = part != COMPILER_PART
    if ours:
        apt.hold([name.split("=")[0] for name in names])
    after = _found(names, apt.installed())
    beside = [checks.doubled(apt.doubled)] if apt.doubled else []
    return Outcome(True, "", after, planned.lines(), [checks.library(part, after, ours), *beside])


def missing(names: t.Sequence[str], packages: t.Mapping[str, Package], held: bool) -> t.List[str]:
    """The names that are not there in their version, whole, and held where they should be."""
    found = []
    for wanted in names:
        name, _equals, pattern = wanted.partition("=")
        package = _of(name, packages)
        if (
            package is None
            or not fits(package.version, pattern)
            or (held and not package.held)
            or package.state != "installed"
        ):
            found.append(wanted)
    return found


def _of(name: str, packages: t.Mapping[str, Package]) -> t.Optional[Package]:
    """The package of that name; libraries of a multi-arch system carry their architecture in it."""
    return packages.get(name) or next((item for key, item in packages.items() if key.split(":")[0] == name), None)


def _found(names: t.Sequence[str], packages: t.Mapping[str, Package]) -> t.Dict[str, str]:
    there = {wanted.split("=")[0]: _of(wanted.split("=")[0], packages) for wanted in names}
    return {name: package.version for name, package in there.items() if package is not None}
