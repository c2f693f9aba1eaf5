# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories of Debian packages that stand in for others: real names, versions and dependencies, nothing in them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import closure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result, Runner

#: Name, version, what it depends on, and where it holds files, their texts by path.
Package = tuple[str, str, str, t.Mapping[str, str]]


def control(path: str) -> Result:
    """The fields of a package file."""
    return Runner().run(["dpkg-deb", "--field", path])


def build(folder: Path, packages: t.Iterable[Package]) -> None:
    """Make a repository in the folder, as ``deb [trusted=yes] file:FOLDER ./`` names it."""
    folder.mkdir(parents=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda package: _package(folder, *package), packages))
    (folder / "Packages").write_text(closure.index(sorted(map(str, folder.glob("*.deb"))), control))


def _package(folder: Path, name: str, version: str, depends: str, files: t.Mapping[str, str]) -> None:
    tree = folder.parent / f"{folder.name}-trees" / f"{name}-{version}"
    text = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: t <t@x.invalid>\n"
    text += (f"Depends: {depends}\n" if depends else "") + f"Description: {name}\n"
    for path, content in {"DEBIAN/control": text, **files}.items():
        place = tree / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        place.chmod(0o755 if "/bin/" in path else 0o644)
    command = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def sign(folder: Path, key: str, origin: str) -> str:
    """Sign the repository with a key of its own, which lies in it under the name ``key``; the key's fingerprint."""
    index = (folder / "Packages").read_bytes()
    release = f"Origin: {origin}\nDate: Tue, 01 Dec 2026 00:00:00 UTC\n"
    release += f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n"
    home = folder.parent / "gnupg"
    home.mkdir(mode=0o700)
    environ = {**os.environ, "GNUPGHOME": str(home)}

    def gpg(*words: str, given: str = "") -> str:
        command = ["gpg", "--batch", "--quiet", "--yes", *words]
        return subprocess.run(command, env=environ, input=given, capture_output=True, text=True, check=True).stdout

    try:
        gpg("--passphrase", "", "--quick-gen-key", f"{origin} <t@x.invalid>", "rsa2048", "sign", "1y")
        (folder / key).write_text(gpg("--armor", "--export"))
        (folder / "InRelease").write_text(gpg("--clearsign", given=release))
        found = gpg("--show-keys", "--with-colons", str(folder / key))
    finally:
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], env=environ, check=False)
    return next(line.split(":")[9] for line in found.splitlines() if line.startswith("fpr:"))
