# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest of a bundle: every file of it by SHA-256, so that a damaged or foreign one is refused by name.

    bundle.json   {"schema": 1, "kind": "gpufleet-bundle", "made_at": "...Z",
                   "files": {PATH: {"sha256": ..., "size": BYTES}}}
    fleet.lock    the lock of the plans that the wheels are for
    wheels/       the wheels of the lock
    run/          the wheels that ./run makes its environment from
    packages/     an archive of packages for hosts of each system

It is written last: a folder without it is no bundle, or half of one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import typing as t
from pathlib import Path

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import now
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

NAME = "bundle.json"
KIND = "gpufleet-bundle"
SCHEMA = 1
LOCK = "fleet.lock"
WHEELS = "wheels"
RUN = "run"
PACKAGES = "packages"
#: How many bad files an error names.
NAMED = 5


class Entry(t.TypedDict):
    """One file: the SHA-256 of its bytes in hex, and how many they are."""

    sha256: str
    size: int


Files = t.Mapping[str, Entry]


class BundleProblem(ValueError):
    """A bundle that cannot be made or trusted; the text says which file, what is wrong, and what to do."""


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def begin(folder: Path) -> None:
    """Make the folder, or take one of ours again, which is no bundle until it is whole once more.

    Raises BundleProblem where it holds what we did not make.
    """
    if folder.is_dir() and not (folder / NAME).exists() and not (folder / f"{NAME}.begun").exists():
        if any(folder.iterdir()):
            raise BundleProblem(f"{folder} is not empty and no bundle: name a folder of its own in bundle_directory")
    elif folder.exists() and not folder.is_dir():
        raise BundleProblem(f"{folder} is no folder: name one of its own in bundle_directory")
    for part in (WHEELS, RUN):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.begun").touch()
    (folder / NAME).unlink(missing_ok=True)
    # Wheels are found again by their digest; of two archives for one system, one is of the last time.
    shutil.rmtree(folder / PACKAGES, ignore_errors=True)


def finish(folder: Path) -> dict[str, t.Any]:
    """Write the manifest of all that lies in the folder; the manifest."""
    files = {
        name: Entry(sha256=sha256(folder / name), size=(folder / name).stat().st_size) for name in _present(folder)
    }
    made = {"schema": SCHEMA, "kind": KIND, "made_at": now(), "files": files}
    write_atomic(str(folder / NAME), json.dumps(made, indent=2, sort_keys=True) + "\n")
    (folder / f"{NAME}.begun").unlink(missing_ok=True)
    return made


def read(folder: Path) -> dict[str, t.Any]:
    """The manifest, without a look at the files. Raises BundleProblem where there is none of ours."""
    path = folder / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        begun = (folder / f"{NAME}.begun").exists()
        why = "bundle.yml was not finished there: run it again" if begun else "gpufleet_bundle names no bundle"
        raise BundleProblem(f"{path} is not there: {why}") from None
    except (OSError, ValueError) as problem:
        raise BundleProblem(f"{path} cannot be read: {problem}; copy the bundle again") from None
    if not isinstance(content, dict) or content.get("kind") != KIND:
        raise BundleProblem(f"{path} is no manifest of ours; gpufleet_bundle takes a folder that bundle.yml made")
    if content.get("schema") != SCHEMA:
        raise BundleProblem(
            f"{path} is of schema {content.get('schema')!r}, this release reads {SCHEMA}: make it again"
        )
    files = content.get("files")
    if not isinstance(files, dict) or not all(_is_entry(name, entry) for name, entry in files.items()):
        raise BundleProblem(f"{path} does not list files inside the bundle with sha256 and size: copy the bundle again")
    return content


def verify(folder: Path) -> dict[str, t.Any]:
    """The manifest of a bundle whose every file is what it was made of.

    Raises BundleProblem that names the files that are missing, changed, or not of the bundle.
    """
    content = read(folder)
    files: Files = content["files"]
    present = _present(folder)
    bad = [f"{name} is not in its manifest" for name in present if name not in files]
    for name, entry in sorted(files.items()):
        path = folder / name
        if name not in present:
            bad.append(f"{name} is missing")
        elif path.stat().st_size != entry["size"]:
            bad.append(f"{name} has {path.stat().st_size} bytes instead of {entry['size']}")
        elif sha256(path) != entry["sha256"]:
            bad.append(f"{name} has another SHA-256 than {entry['sha256']}")
    if bad:
        more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
        raise BundleProblem(
            f"the bundle {folder} is not what was gathered: {'; '.join(bad[:NAMED])}{more}. Nothing was installed; copy"
            " the bundle again"
        )
    return content


def wheel(folder: Path, digests: t.Collection[str]) -> Path | None:
    """The wheel of the bundle with one of these SHA-256 sums, by its manifest alone."""
    files: dict[str, Entry] = read(folder)["files"]
    for name, entry in files.items():
        if name.startswith(f"{WHEELS}/") and entry["sha256"] in digests:
            return folder / name
    return None


def _present(folder: Path) -> list[str]:
    """Paths of all files, relative and sorted. Raises BundleProblem for what is no plain file or folder."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BundleProblem(f"{path} is no plain file, and a bundle holds no other: remove it")
        if path.is_file() and name not in (NAME, f"{NAME}.begun"):
            found.append(name)
    return found


def _is_entry(name: t.Any, entry: t.Any) -> bool:
    inside = isinstance(name, str) and not name.startswith("/") and ".." not in name.split("/")
    return inside and isinstance(entry, dict) and set(entry) == {"sha256", "size"}
