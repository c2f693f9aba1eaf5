# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Puts the gate onto this host: the archive, the link to it, pynvml beside it. What is right already stays."""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import archive
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

FOLDER = "/usr/local/lib/gpufleet"
FILE = FOLDER + "/gpufleet-gate"
LINK = "/usr/local/bin/gpufleet-gate"
PYNVML = FOLDER + "/pynvml.py"
#: The system's own Python, which root alone changes, before the one that runs this module.
PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python")
_LIMIT = 60


class NotInstalled(Exception):
    """The gate cannot be installed; the text says why and what to do."""


def interpreter(candidates: t.Sequence[str] = (*PYTHONS, sys.executable)) -> t.Tuple[str, str]:
    """The first Python that is new enough and that root alone can change, and what its bytecode depends on."""
    for path in candidates:
        if not _roots_own(path):
            continue
        told = _run([path, "-ISB", "-c", archive.TAG], b"")
        if told is not None:
            return path, told.decode("ascii", "replace").strip()
    raise NotInstalled(
        f"gpufleet-gate needs a Python 3.8 or newer that belongs to root; none of {', '.join(candidates)} is one."
        " Install the distribution's python3, or set gate_install: false"
    )


def _roots_own(path: str) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_uid == 0 and not found.st_mode & 0o022


def _run(argv: t.Sequence[str], given: bytes) -> t.Optional[bytes]:
    try:
        done = subprocess.run(
            list(argv), input=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_LIMIT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def install(start: str, installed: t.Mapping[str, t.Any], pynvml: bytes, check_mode: bool) -> t.List[str]:
    """What was (or in check mode would be) written. ``start``: the module with the gate's main;
    ``pynvml``: its source, empty where there is none to bring."""
    python, tag = interpreter()
    first = archive.SHEBANG.format(python)
    entries = archive.sources(start, {**installed, "python": f"{python} {tag}"})
    written = []
    if not _is_current(first, entries):
        written.append(FILE)
        if not check_mode:
            made = _run([python, "-ISB", "-c", archive.COMPILE], archive.pack(entries))
            if not made:
                raise NotInstalled(f"{python} cannot compile the gate's modules; is its standard library whole?")
            _write(FILE, first.encode() + made, 0o755)
    cached = f"{FOLDER}/__pycache__/pynvml.{tag.split(' ', 1)[0]}.pyc"
    if pynvml and (_read(PYNVML) != pynvml or not os.path.exists(cached)):
        written.append(PYNVML)
        if not check_mode:
            _write(PYNVML, pynvml, 0o644)
            compiled = _run([python, "-ISB", "-c", archive.COMPILE_ONE], pynvml)
            if compiled:
                _write(cached, compiled, 0o644)
    if not os.path.islink(LINK) and os.path.lexists(LINK):
        raise NotInstalled(f"{LINK} is there and is not our link to {FILE}; move it away")
    if not os.path.islink(LINK) or os.readlink(LINK) != FILE:
        written.append(LINK)
        if not check_mode:
            os.makedirs(os.path.dirname(LINK), exist_ok=True)
            if os.path.islink(LINK):
                os.unlink(LINK)
            os.symlink(FILE, LINK)
    return written


def _is_current(first: str, entries: t.Mapping[str, str]) -> bool:
    """Whether the file is there, whole, with these sources and the bytecode of each."""
    data = _read(FILE)
    if data is None or not os.access(FILE, os.X_OK):
        return False
    try:
        line, sources, compiled = archive.unpack(data)
    except ValueError:
        return False
    return line + "\n" == first and sources == entries and compiled == {f"{n}c" for n in entries} - {"__main__.pyc"}


def _read(path: str) -> t.Optional[bytes]:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return None


def _write(path: str, content: bytes, mode: int) -> None:
    try:
        write_atomic(path, content, mode)
    except OSError as error:
        raise NotInstalled(
            f"{path} cannot be written ({error}); make room or make it writable, or set gate_install: false"
        ) from None
