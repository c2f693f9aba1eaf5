# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which drivers a host could have: the installed one, and those that a source it may use carries."""

from __future__ import annotations

import dataclasses
import functools

from . import model, version
from .host import FLAVOURS, NEWEST, Host
from .version import Version


@dataclasses.dataclass(frozen=True, slots=True)
class Driver:
    """``origin``: installed, nvidia, or the name of a distribution's archive.

    ``version`` is "" where only the branch is decided; ``effective`` is what it is
    compared with: the exact version, or the newest known of the branch.
    ``flavour`` is "" where nobody said which module is installed.
    """

    branch: int
    row: model.Branch | None
    version: str
    effective: Version
    flavour: str
    origin: str
    action: str
    build: str = "none"
    signed: bool = False

    @property
    def stays(self) -> bool:
        """Whether the installed driver is kept as it is."""
        return self.origin == "installed"

    def __str__(self) -> str:
        name = self.version or f"branch {self.branch}"
        kind = f" with the {self.flavour} kernel module" if self.flavour else ""
        return f"driver {name}{kind}"


def installed(host: Host) -> Driver | None:
    """The installed driver as a candidate, None where there is none or the wish names another."""
    if not host.installed:
        return None
    wish = host.request.driver_policy
    if wish.isdigit() and int(wish) != host.installed[0]:
        return None
    flavour = "" if host.windows else host.request.driver_flavour
    if not flavour and not host.windows:
        # A branch that comes with one flavour only leaves no doubt.
        known = host.installed_branch.flavours if host.installed_branch else ()
        flavour = known[0] if len(known) == 1 else ""
    return Driver(
        branch=host.installed[0],
        row=host.installed_branch,
        # Of a branch alone no version is known: what is assumed of it is compared, and never pinned or shown as found.
        version=host.request.driver if not host.request.driver.isdigit() else "",
        effective=host.installed,
        flavour=flavour,
        origin="installed",
        action="external" if host.external else "keep",
    )


def changes(host: Host) -> tuple[Driver, ...]:
    """Drivers that could be installed, none where the driver may not be touched."""
    if host.fixed_driver:
        return ()
    request = host.request
    known = host.system is not None
    repository = host.system.repository if host.system else ""
    archive = host.system.archive if host.system else ""
    if (known and not repository) or request.driver_source == "os":
        repository = _NO_SOURCE
    if request.driver_source == "nvidia":
        archive = ""
    # Modules that NVIDIA built for the distribution's kernels are few: only where one that is built here is refused.
    refused = bool(request.secure_boot and not request.mok_enrolled)
    wish = (request.driver_policy, request.kernel_module)
    return _changes(repository, archive, *wish, refused, host.installed, host.data)


_NO_SOURCE = "-"


@functools.lru_cache(maxsize=1024)
def _changes(
    repository: str, archive: str, policy: str, module: str, refused: bool, installed: Version, data: model.Data
) -> tuple[Driver, ...]:
    offered = () if repository == _NO_SOURCE else from_nvidia(repository, data)
    offered += precompiled(repository, data) if refused else ()
    offered += from_archive(archive, data) if archive else ()
    found = []
    for driver in offered:
        if policy.isdigit():
            if driver.branch != int(policy):
                continue
        elif installed and driver.branch < installed[0]:
            continue  # nothing is downgraded without the user's word
        if module in FLAVOURS and driver.flavour != module:
            continue
        found.append(_with_action(driver, installed))
    return tuple(driver for driver in found if driver.action)


def _with_action(driver: Driver, installed: Version) -> Driver:
    if not installed:
        action = "install"
    elif driver.branch < installed[0]:
        action = "downgrade"
    elif driver.branch == installed[0] and driver.row and driver.row.last and driver.effective < installed:
        action = ""
    else:
        action = "upgrade"
    return dataclasses.replace(driver, action=action)


@functools.lru_cache(maxsize=64)
def from_nvidia(repository: str, data: model.Data) -> tuple[Driver, ...]:
    """What NVIDIA's repository carries; of an unknown system all branches are taken to be there."""
    oldest = data.repositories[repository].branch_min if repository else 0
    return tuple(
        Driver(
            branch=row.branch,
            row=row,
            version="",
            effective=version.parse(row.last) if row.last else (row.branch, NEWEST),
            flavour=flavour,
            origin="nvidia",
            action="install",
            build="dkms",
        )
        for row in data.branches.values()
        if row.branch >= oldest
        for flavour in row.flavours
    )


@functools.lru_cache(maxsize=64)
def precompiled(repository: str, data: model.Data) -> tuple[Driver, ...]:
    """Drivers of NVIDIA's repository whose modules come built and signed for the distribution's own kernels."""
    rows = [row for row in data.driver_packages if row.build == "prebuilt" and repository in row.repositories]
    return tuple(
        dataclasses.replace(driver, build="prebuilt", signed=True)
        for driver in (from_nvidia(repository, data) if rows else ())
        if any(row.flavour == driver.flavour and row.low <= driver.branch <= row.high for row in rows)
    )


@functools.lru_cache(maxsize=64)
def from_archive(archive: str, data: model.Data) -> tuple[Driver, ...]:
    """What the distribution's own archive carries."""
    found = []
    for row in data.archives:
        if row.name != archive:
            continue
        branch = data.branches[row.branch]
        exact = row.version or branch.last
        for flavour in row.flavours:
            found.append(
                Driver(
                    branch=row.branch,
                    row=branch,
                    version=row.version,
                    effective=version.parse(exact) if exact else (row.branch, NEWEST),
                    flavour=flavour,
                    origin=archive,
                    action="install",
                    build="prebuilt" if row.signed else "dkms",
                    signed=row.signed,
                )
            )
    return tuple(found)
