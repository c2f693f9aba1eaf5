# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's repository, or a mirror of it: its own key by fingerprint, and one entry."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import openpgp
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.manager import Manager

#: Gives the file at an address; raises OSError or ValueError where there is none.
Fetch = t.Callable[[str], bytes]


@dataclass(frozen=True)
class Repository:
    """Where the packages are, and who signs them. ``fingerprint`` may hold blanks."""

    name: str
    url: str
    key_url: str
    fingerprint: str


def of_plan(part: t.Mapping[str, t.Any], given: t.Mapping[str, t.Optional[str]]) -> Repository:
    """The plan's repository, with what the user gives of a mirror in its place.

    Raises PackageFailure where the plan has none, or where nobody has said which key to trust.
    """
    key = part.get("key") or {}
    url = given.get("url") or part.get("url")
    if not url:
        raise PackageFailure(
            "the plan names no repository of NVIDIA's for this system: give one in nvidia_repository_url"
        )
    url = url.rstrip("/") + "/"
    usual = str(key.get("url") or "")
    key_url = given.get("key_url") or (url + usual.rpartition("/")[2] if given.get("url") else usual)
    fingerprint = (given.get("fingerprint") or key.get("fingerprint") or "").replace(" ", "").upper()
    if not fingerprint:
        raise PackageFailure(
            f"the fingerprint of key {key.get('id', '')} of {url} is not known here: compare the key at {key_url} with"
            " what its owner publishes, and give its fingerprint in nvidia_repository_fingerprint"
        )
    return Repository(str(part.get("name") or "mirror"), url, str(key_url), fingerprint)


def place(repository: Repository, apt: Manager, files: Files, get: Fetch) -> None:
    """Trust the key, where the package manager can for this repository alone, and name the repository once.

    Raises PackageFailure where the key cannot be had or is another one. A key that is there already is not fetched.
    """
    path = apt.key_path(repository.name)
    if openpgp.known(apt.runner.read_bytes(path)) != [repository.fingerprint]:
        try:
            key = get(repository.key_url)
        except (OSError, ValueError) as error:
            raise PackageFailure(
                f"the key of {repository.url} cannot be read from {repository.key_url}: {error}"
            ) from None
        found = openpgp.known(key)
        if found != [repository.fingerprint]:
            raise PackageFailure(
                f"{repository.key_url} holds {', '.join(found) or 'no key'}; {repository.url} is to be signed by"
                f" {repository.fingerprint}. Nothing was trusted"
            )
        files.write(path, key.decode("utf-8", "replace"))

    def signed(url: str) -> bool:
        try:
            return bool(get(url))
        except (OSError, ValueError):
            return False

    apt.enter(repository.name, repository.url, path, files, signed)
