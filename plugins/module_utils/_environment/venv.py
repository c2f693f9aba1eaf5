# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies at the environment's path, told without starting anything in it.

An environment of ours carries a marker that is written first, when it is
still empty, and last, when it is complete: so half a one is never believed,
and one that somebody else made is never touched.

Sources: recording installed projects (dist-info, RECORD) at
https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
import typing as t
from dataclasses import dataclass, field

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    EnvironmentFailure,
    canonical,
    redact,
    same_version,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

MARKER = "gpufleet-environment.json"
SCHEMA = 1
COMPLETE = "complete"
CHANGING = "changing"


@dataclass(frozen=True)
class Locked:
    """One package of a resolution: its version with the local label, the SHA-256 of its wheel, where that lies."""

    name: str
    version: str
    sha256: t.Tuple[str, ...]
    url: str = ""

    @property
    def line(self) -> str:
        """The requirement that pip takes under ``--require-hashes``."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{digest}" for digest in self.sha256)])


@dataclass(frozen=True)
class Found:
    """What lies at the path.

    ``kind`` is absent, empty, ours, foreign or file; ``what`` says it for a
    person; ``marker`` is our own record; ``installed`` has the version of
    each project; ``damaged`` the files of each project that are missing or
    of another size than installed.
    """

    kind: str
    what: str = ""
    marker: t.Mapping[str, t.Any] = field(default_factory=dict)
    installed: t.Mapping[str, str] = field(default_factory=dict)
    damaged: t.Mapping[str, t.Sequence[str]] = field(default_factory=dict)

    def lacking(self, packages: t.Iterable[Locked]) -> t.List[Locked]:
        """Of these packages the ones that are missing, of another version, or damaged."""
        return [
            package
            for package in packages
            if not same_version(self.installed.get(package.name, ""), package.version) or package.name in self.damaged
        ]


def look(venv: str) -> Found:
    """Look at the path. Raises EnvironmentFailure where it cannot be read."""
    try:
        names = os.listdir(venv)
    except FileNotFoundError:
        return Found("absent")
    except NotADirectoryError:
        return Found("file" if os.path.lexists(venv) else "absent")
    except OSError as error:
        raise EnvironmentFailure(f"{venv} cannot be read: {error.strerror}") from None
    if not names:
        return Found("empty")
    if MARKER not in names:
        return Found("foreign", what=_what(names))
    try:
        with open(os.path.join(venv, MARKER), encoding="utf-8") as stream:
            marker = json.load(stream)
    except (OSError, ValueError) as error:
        raise EnvironmentFailure(
            f"{os.path.join(venv, MARKER)} cannot be read ({error}); if nothing in {venv} is needed, remove it and"
            " run again"
        ) from None
    schema = marker.get("schema") if isinstance(marker, dict) else None
    if schema != SCHEMA:
        raise EnvironmentFailure(
            f"{venv} was made by another version of this collection (schema {schema!r}, needed {SCHEMA});"
            " use that version, or choose another pytorch_venv"
        )
    try:
        recorded(marker)
    except (KeyError, TypeError, AttributeError) as error:
        raise EnvironmentFailure(
            f"{os.path.join(venv, MARKER)} is damaged ({type(error).__name__} {error}); if nothing in {venv} is needed,"
            " remove it and run again"
        ) from None
    installed, damaged = _installed(venv, {item["name"] for item in marker.get("packages", [])})
    return Found("ours", marker=marker, installed=installed, damaged=damaged)


def _what(names: t.Collection[str]) -> str:
    if "conda-meta" in names:
        return "a conda environment"
    if "pyvenv.cfg" in names:
        return "a virtual environment that gpufleet did not make"
    return "a folder with other files (" + ", ".join(sorted(names)[:3]) + ")"


def recorded(marker: t.Mapping[str, t.Any]) -> t.Tuple[Locked, ...]:
    """The packages that a marker says the environment holds."""
    return from_json(marker.get("packages", []))


def to_json(packages: t.Iterable[Locked]) -> t.List[t.Dict[str, t.Any]]:
    """The packages as JSON; an address without its password."""
    return [
        {"name": item.name, "version": item.version, "sha256": list(item.sha256), "url": redact(item.url)}
        for item in packages
    ]


def from_json(items: t.Iterable[t.Mapping[str, t.Any]]) -> t.Tuple[Locked, ...]:
    """The packages of to_json()."""
    return tuple(Locked(item["name"], item["version"], tuple(item["sha256"]), item["url"]) for item in items)


def refuse_unless_ours(found: Found, venv: str) -> None:
    """Raise EnvironmentFailure for everything that somebody else put at the path."""
    if found.kind == "file":
        raise EnvironmentFailure(
            f"pytorch_venv {venv} is a file, needed is a folder that does not exist yet, is empty, or was made by this"
            " role; choose another path, or move the file away"
        )
    if found.kind == "foreign":
        python = os.path.join(venv, "bin", "python")
        use = f", or, to use that environment as it is, set pytorch_python: {python}" if os.path.isfile(python) else ""
        raise EnvironmentFailure(
            f"pytorch_venv {venv} is {found.what}, and nothing in it was touched; choose another path{use}"
        )


def refuse_unless_writable(found: Found, venv: str) -> None:
    """Raise EnvironmentFailure where this user cannot make or change the environment."""
    place = venv if found.kind == "ours" else os.path.dirname(os.path.abspath(venv))
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    problem = "" if os.access(place, os.W_OK | os.X_OK) else f"user {os.geteuid()} may not write in {place}"
    if not os.path.isdir(place):
        problem = f"{place} is no folder"
    if problem:
        raise EnvironmentFailure(
            f"pytorch_venv {venv} cannot be made: {problem}; nothing was changed. Choose a path where this user may"
            " write, or become root"
        )


def site_packages(venv: str) -> str:
    """The folder of the environment's packages; empty where there is none or pyvenv.cfg does not say which."""
    version = base_version(venv)
    path = os.path.join(venv, "lib", "python" + ".".join(version.split(".")[:2]), "site-packages")
    return path if version and os.path.isdir(path) else ""


def base_version(venv: str) -> str:
    """The version of the Python that the environment was made with, from pyvenv.cfg."""
    try:
        with open(os.path.join(venv, "pyvenv.cfg"), encoding="utf-8") as stream:
            for line in stream:
                key, _equals, value = line.partition("=")
                if key.strip() == "version":
                    return value.strip()
    except OSError:
        pass
    return ""


def interpreter_works(venv: str) -> bool:
    """Whether the environment has its interpreter still, and the Python under it too. Starts nothing."""
    python = os.path.join(venv, "bin", "python")
    return bool(site_packages(venv)) and os.path.isfile(python) and os.access(python, os.X_OK)


def drop_interpreter(venv: str) -> None:
    """Take away links to an interpreter that is gone or another: the module venv leaves existing links alone."""
    folder = os.path.join(venv, "bin")
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        if name.startswith("python") and os.path.islink(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))


def _installed(venv: str, recorded: t.Collection[str]) -> t.Tuple[t.Dict[str, str], t.Dict[str, t.List[str]]]:
    site = site_packages(venv)
    installed: t.Dict[str, str] = {}
    damaged: t.Dict[str, t.List[str]] = {}
    for entry in os.listdir(site) if site else []:
        if not entry.endswith(".dist-info"):
            continue
        name, _dash, version = entry[: -len(".dist-info")].partition("-")
        name = canonical(name)
        if name in installed and name in recorded:
            damaged.setdefault(name, []).append(entry)
        installed[name] = version
        if name in recorded:
            damaged.setdefault(name, []).extend(damaged_files(site, entry))
    return installed, {name: files for name, files in damaged.items() if files}


def damaged_files(site: str, info: str) -> t.List[str]:
    """Files of an installed project that are missing or of another size than its RECORD says.

    Sizes and no sums: a look at 12,000 files takes a tenth of a second, reading 700 MB does not. Bytecode has no
    size in a RECORD, is made again when it is missing, and is left out.
    """
    record = os.path.join(site, info, "RECORD")
    try:
        with open(record, encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream))
    except OSError:
        return [os.path.join(info, "RECORD")]
    found = []
    for row in rows:
        if len(row) < 3 or not row[2]:
            continue
        try:
            if os.stat(os.path.join(site, row[0])).st_size == int(row[2]):
                continue
        except OSError:
            pass
        found.append(row[0])
    return found


def begin(venv: str, found: Found, content: t.Mapping[str, t.Any]) -> None:
    """Mark the environment as being changed, made as an empty folder of ours where there is none yet."""
    text = json.dumps({"schema": SCHEMA, **content, "state": CHANGING}, indent=2, sort_keys=True) + "\n"
    if found.kind == "ours":
        write_atomic(os.path.join(venv, MARKER), text)
        return
    parent = os.path.dirname(os.path.abspath(venv))
    os.makedirs(parent, mode=0o755, exist_ok=True)
    # The marker is inside before the path exists: a kill at any moment leaves nothing, or a folder of ours.
    fresh = tempfile.mkdtemp(prefix=".gpufleet-venv-", dir=parent)
    try:
        os.chmod(fresh, 0o755)
        write_atomic(os.path.join(fresh, MARKER), text)
        os.rename(fresh, venv)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def complete(venv: str, content: t.Mapping[str, t.Any]) -> None:
    """Mark the environment as complete: the last step."""
    text = json.dumps({"schema": SCHEMA, **content, "state": COMPLETE}, indent=2, sort_keys=True) + "\n"
    write_atomic(os.path.join(venv, MARKER), text)


def forget(venv: str, found: Found, packages: t.Iterable[Locked]) -> None:
    """Take away what says that damaged packages are installed, so that pip installs them again over what is left.

    Leftovers of an upgrade that was killed (folders that pip renamed to ``~...``) go too.
    """
    site = site_packages(venv)
    if not site:
        return
    names = {package.name for package in packages if package.name in found.damaged}
    for entry in os.listdir(site):
        info = entry.endswith(".dist-info") and canonical(entry.split("-", 1)[0]) in names
        if info or entry.startswith("~"):
            path = os.path.join(site, entry)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)


def users_of(venv: str, proc: str = "/proc") -> t.List[int]:
    """Processes that have files of the environment in memory, as far as this user may see."""
    prefix = os.path.realpath(venv) + "/"
    found = []
    for name in os.listdir(proc):
        if name.isdigit():
            try:
                with open(os.path.join(proc, name, "maps"), encoding="utf-8", errors="replace") as stream:
                    if any(prefix in line for line in stream):
                        found.append(int(name))
            except OSError:
                continue
    return sorted(found)
