# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a package manager must be able to do here: apt and dnf are two of the kind.

A package is asked for as ``name=version`` or, to go, as ``name-``; a version is the whole one, with epoch and release.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import Change, Package
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result, Runner

Versions = t.Dict[str, t.List[str]]


class Manager(t.Protocol):
    """One package manager on this host, or with ``scratch`` on a copy of its settings. See Apt for each."""

    runner: Runner
    limit: int
    scratch: str
    etc: str
    #: The folder of a bundle's packages, which are then all that is to be had, "" where there is none.
    bundle: str
    #: The program, and how a person finishes what it was stopped in.
    name: str
    by_hand: str
    doubled: t.List[str]

    def installed(self) -> t.Dict[str, Package]: ...

    def update(self) -> None: ...

    def versions(self, names: t.Iterable[str], vendor: t.Optional[bool] = None, mirror: str = "") -> Versions: ...

    def others(self, names: t.Iterable[str]) -> Versions: ...

    def simulate(self, names: t.Sequence[str]) -> Change: ...

    def change(self, names: t.Sequence[str], purge: bool = False) -> Result: ...

    def simulate_purge(self, names: t.Sequence[str]) -> Change: ...

    def purge(self, names: t.Sequence[str]) -> None: ...

    def hold(self, names: t.Sequence[str], held: bool = True) -> None: ...

    def interrupted(self, packages: t.Mapping[str, Package]) -> t.List[str]: ...

    def repair(self) -> None: ...

    def problem(self, result: Result) -> str: ...

    def spec(self, name: str) -> str:
        """How a plan's package is asked for here, ``name`` or ``name=PATTERN``."""

    def pin(self, version: str, exact: t.Collection[str], asked: t.Sequence[str], files: Files) -> None:
        """Let no package of the driver come in another version, also one that is not installed yet.

        ``exact``: the whole versions that were taken of it, ``asked``: the names that were asked for.
        """

    def unpin(self) -> None:
        """The driver is gone: nothing holds its packages any more."""

    def take_back(self) -> None:
        """What a change that failed switched on beside its packages is as before with the next change."""

    def headers(self, kernel: str) -> str:
        """The package of a kernel's headers, ``name`` or ``name=version``."""

    def following(
        self, packages: t.Mapping[str, Package], targets: t.Sequence[str], system: str, arch: str
    ) -> t.List[str]:
        """Packages that bring the headers of each next kernel, ``name`` or ``name=version``."""

    def key_path(self, name: str) -> str:
        """Where the key of the repository of that name lies."""

    def enter(self, name: str, url: str, key: str, files: Files, signed: t.Callable[[str], bool]) -> None:
        """Name the repository once, with its key; ``signed`` tells whether there is a signature at an address."""
