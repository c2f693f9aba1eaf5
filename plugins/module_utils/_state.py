# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a host keeps what was proved of it, and how such a file is written."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import typing as t

#: Of this collection, as galaxy.yml has it.
COLLECTION = "0.1.0"
SYSTEM_DIR = "/etc/gpufleet"
#: What holds for this boot: locks and the gate's verdict.
RUN_DIR = "/run/gpufleet"
EXPECTED = "expected.json"
EXPECTED_SCHEMA = 1
#: What a proof on the host itself found wrong; it stands until a proof succeeds.
FAILED = "failed-proof.json"
#: Bytes, far above what is recorded of the largest host.
READ_LIMIT = 16 << 20


def state_dir(euid: int, env: t.Mapping[str, str]) -> str:
    """The folder of ``expected.json``: root's own, or the user's state folder, which root's gate ignores."""
    if euid == 0:
        return SYSTEM_DIR
    home = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(home, "gpufleet")


def directory_of(named: str, euid: int, env: t.Mapping[str, str]) -> str:
    """The folder that the user names, or the usual one. Raises StateError for a relative path.

    A relative one would be taken from wherever a module happens to run.
    """
    if not named:
        return state_dir(euid, env)
    if not os.path.isabs(named) or "$" in named:
        raise StateError(f"gate_directory is {named!r}; an absolute path is needed. Nothing was read or written")
    return named


class StateError(Exception):
    """A state file that is there and cannot be used; the text says where, why and what to do."""


def digest(content: t.Mapping[str, t.Any]) -> str:
    """What tells whether a file of ours is as it was written: a digest of all its parts but the digest itself.

    It finds a change by hand, which is a change that nobody reviewed. Root can write what root likes.
    """
    rest = {key: value for key, value in content.items() if key not in ("digest", "edited")}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def untrusted(path: str) -> str:
    """Why root must not believe this file, "" where root alone can change it: the file and every folder above it."""
    place = os.path.realpath(path)
    while True:
        found = os.stat(place)
        # A sticky folder lets nobody replace what is another's.
        shared = found.st_mode & 0o022 and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX)
        if found.st_uid != 0 or shared:
            return f"{place} can be changed by others than root (owner {found.st_uid}, mode {found.st_mode & 0o7777:o})"
        above = os.path.dirname(place)
        if above == place:
            return ""
        place = above


def read_expected(directory: str) -> t.Optional[t.Dict[str, t.Any]]:
    """The content of ``expected.json``, None where there is none; with ``edited`` where it is not as it was written.

    Raises StateError where it cannot be read, is not of our form, was written
    by a newer version, or, read by root, can be changed by another user: such
    a file is never taken for "no baseline".
    """
    path = os.path.join(directory, EXPECTED)
    try:
        found = os.stat(path)
        others = untrusted(path) if os.geteuid() == 0 else ""
        if others:
            raise StateError(_unusable(path, others))
        if not stat.S_ISREG(found.st_mode) or found.st_size > READ_LIMIT:
            raise StateError(_unusable(path, "it is no file of ours"))
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise StateError(_unusable(path, str(error))) from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != EXPECTED_SCHEMA:
        raise StateError(
            f"{path} has schema {schema!r} where this version reads {EXPECTED_SCHEMA}; use the version that wrote it,"
            " or remove it and run site.yml to prove the host again"
        )
    if not _of_our_form(data):
        raise StateError(_unusable(path, "its baseline is not of the form that is recorded"))
    return {**data, "edited": True} if data.get("digest") != digest(data) else t.cast("t.Dict[str, t.Any]", data)


def write_expected(directory: str, content: t.Mapping[str, t.Any]) -> None:
    """Write ``expected.json``, and keep the one before. Raises OSError; then the old one stays."""
    path = os.path.join(directory, EXPECTED)
    signed = {key: value for key, value in content.items() if key != "edited"}
    text = json.dumps({**signed, "digest": digest(signed)}, indent=2, sort_keys=True) + "\n"
    try:
        with open(path, "rb") as stream:
            before = stream.read(READ_LIMIT)
    except FileNotFoundError:
        before = b""
    if before:
        write_atomic(path + ".previous", before)
    write_atomic(path, text)


def forget_failed(directory: str) -> None:
    """A proof succeeded: what one of before found wrong stands no more. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(directory, FAILED))


def _of_our_form(data: t.Mapping[str, t.Any]) -> bool:
    """Whether what a comparison reads is there, each of its kind."""
    then = data.get("baseline")
    if not isinstance(then, dict) or not isinstance(data.get("written_at"), str):
        return False
    gpus = then.get("gpus")
    return (
        isinstance(then.get("accelerator"), str)
        and all(isinstance(then.get(part), dict) for part in ("host", "driver", "environment"))
        and isinstance(gpus, list)
        and all(isinstance(gpu, dict) for gpu in gpus)
    )


def _unusable(path: str, why: str) -> str:
    before = path + ".previous"
    rest = f"put back {before}, or remove it" if os.path.exists(before) else "remove it"
    return f"{path} cannot be used ({why}); {rest} and run site.yml to prove the host again"


def write_atomic(path: str, content: t.Union[str, bytes], mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old or the new content whole, also after a loss of power."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix="." + os.path.basename(path), dir=directory)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode("utf-8") if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
