# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's repository for apt, or a mirror of it: its own key by fingerprint, one entry, and what stood in its way."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import openpgp, sources
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import Apt, PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files

KEYRINGS = "/etc/apt/keyrings"
#: Revoked in April 2022 (NVIDIA/deepops#1167); apt that still trusts it alone knows no repository of today.
OLD_KEYS = ("AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80",)
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


def place(repository: Repository, apt: Apt, files: Files, get: Fetch) -> None:
    """Trust the key for this repository alone, and name the repository once.

    Raises PackageFailure where the key cannot be had or is another one. A key that is there already is not fetched.
    """
    path = f"{KEYRINGS}/gpufleet-{repository.name}.asc"
    if apt.scratch:
        path = f"{apt.etc}/gpufleet-{repository.name}.asc"
    if _known(apt.runner.read_bytes(path)) != [repository.fingerprint]:
        try:
            key = get(repository.key_url)
        except (OSError, ValueError) as error:
            raise PackageFailure(
                f"the key of {repository.url} cannot be read from {repository.key_url}: {error}"
            ) from None
        found = _known(key)
        if found != [repository.fingerprint]:
            raise PackageFailure(
                f"{repository.key_url} holds {', '.join(found) or 'no key'}; {repository.url} is to be signed by"
                f" {repository.fingerprint}. Nothing was trusted"
            )
        files.write(path, key.decode("utf-8", "replace"))
    source = f"gpufleet-{repository.name}.sources"
    _only_once(repository.url, source, apt, files)
    entry = sources.Entry(repository.url, "/", (), path)
    files.write(f"{apt.etc}/sources.list.d/{source}", sources.deb822([entry], "Written by gpufleet.pytorch"))


def _known(key: t.Optional[bytes]) -> t.List[str]:
    try:
        return openpgp.fingerprints(key) if key else []
    except (ValueError, IndexError):
        return []


def _only_once(url: str, ours: str, apt: Apt, files: Files) -> None:
    """Put aside other entries of the same repository, which apt refuses beside ours, and keys that were revoked."""
    for name in apt.runner.listdir(f"{apt.etc}/sources.list.d"):
        if name == ours or not name.endswith((".list", ".sources")):
            continue
        path = f"{apt.etc}/sources.list.d/{name}"
        text = apt.runner.read(path) or ""
        entries = sources.parse_deb822(text) if name.endswith(".sources") else sources.parse_list(text)
        same = [entry for entry in entries if entry.uri.rstrip("/") == url.rstrip("/")]
        if same and len(same) < len(entries):
            raise PackageFailure(f"{path} names {url} among others, and apt takes it once: remove it there")
        if same:
            files.aside(path)
    trusted = "/etc/apt/trusted.gpg.d"
    for name in [] if apt.scratch else apt.runner.listdir(trusted):
        found = _known(apt.runner.read_bytes(os.path.join(trusted, name)))
        if found and set(found) <= set(OLD_KEYS):
            files.aside(os.path.join(trusted, name))
