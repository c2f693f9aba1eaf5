# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases and builds of torch a wish allows: a version, a series, a specifier or ``latest``."""

from __future__ import annotations

import dataclasses
import functools
import re

from . import model, version

LATEST = "latest"
_VERSION = re.compile(r"(?P<numbers>\d+(?:\.\d+){0,2})(?:\+(?P<label>cu\d{3}|cpu))?")
#: A specifier with a build, which specifiers of packages do not have for a local version that is not there yet.
_EXACT_BUILD = re.compile(r"==\s*(?P<numbers>\d+\.\d+\.\d+)\+(?P<label>cu\d{3}|cpu)")
_PRE_RELEASE = re.compile(r"[=v]*\d+(?:\.\d+)*\.?(?:a|b|rc|dev)\d*.*", re.IGNORECASE)


def _misspelt(text: str) -> str:
    """What to write instead, for wishes whose meaning is plain but which are not taken."""
    if match := re.fullmatch(r"[vV](\d.*)", text):
        return f"write it as {match[1]}"
    if match := re.fullmatch(r"(\d+(?:\.\d+)*)\.[*x]", text):
        return f"write the series as {match[1]}"
    if _PRE_RELEASE.fullmatch(text):
        return "it is a pre-release, and only releases are planned"
    return ""


@dataclasses.dataclass(frozen=True, slots=True)
class Wheel:
    """A build of a release. ``variant`` is None for the build without CUDA."""

    release: model.Release
    variant: model.Variant | None

    @property
    def label(self) -> str:
        """The local version label: ``cu128`` or ``cpu``."""
        return self.variant.name if self.variant else "cpu"

    @property
    def build(self) -> model.Variant:
        """The CUDA build. LookupError for the build without CUDA."""
        if self.variant is None:
            raise LookupError(f"{self} has no CUDA")
        return self.variant

    def __str__(self) -> str:
        return f"torch {self.release.version}+{self.label}"


@dataclasses.dataclass(frozen=True, slots=True)
class TorchWish:
    """``releases``: what the wish allows, newest first; ``label``: of a wish such as ``2.8.0+cu126``.

    ``newest_first``: the newest release comes before anything else (``latest`` and a series such as ``2.8``).
    ``error``: why the wish allows nothing.
    """

    text: str
    releases: tuple[model.Release, ...]
    label: str = ""
    newest_first: bool = False
    error: str = ""


@functools.lru_cache(maxsize=256)
def read(text: str, data: model.Data) -> TorchWish:
    """What the wish allows."""
    newest = tuple(data.releases.values())[::-1]
    if text.lower() == LATEST:
        return TorchWish(text, newest, newest_first=True)
    if reason := _misspelt(text):
        return TorchWish(text, (), error=reason)
    if match := _VERSION.fullmatch(text) or _EXACT_BUILD.fullmatch(text):
        numbers = version.parse(match["numbers"])
        found = tuple(release for release in newest if version.parse(release.version)[: len(numbers)] == numbers)
        error = "" if found else f"it is none of the releases {newest[-1].version} to {newest[0].version}"
        return TorchWish(text, found, match["label"] or "", len(numbers) < 3, error)
    return _specifier(text, newest)


def _specifier(text: str, newest: tuple[model.Release, ...]) -> TorchWish:
    # Only here: ansible-core brings packaging, the sanity test that imports every plugin does not.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        specifier = SpecifierSet(text)
    except InvalidSpecifier:
        return TorchWish(text, (), error="it is no version, no specifier and not latest")
    found = tuple(release for release in newest if specifier.contains(release.version))
    error = "" if found else f"no release from {newest[-1].version} to {newest[0].version} satisfies it"
    return TorchWish(text, found, error=error)
