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


class NotBelieved(ValueError):
    """A state file that others than root can change, for whom no record speaks."""


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


def read_json(path: str) -> t.Any:
    """What a state file holds. A pipe or a device is not waited for. Raises FileNotFoundError where there is none,
    ValueError, OSError or RecursionError where it cannot be read or, by root, not be believed."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > READ_LIMIT:
            raise ValueError("it is no file of ours")
        others = untrusted(path) if os.geteuid() == 0 else ""
        if others:
            raise NotBelieved(others)
        with open(descriptor, "rb", closefd=False) as stream:
            return json.loads(stream.read(READ_LIMIT).decode("utf-8"))
    finally:
        os.close(descriptor)


def read_expected(directory: str) -> t.Optional[t.Dict[str, t.Any]]:
    """The content of ``expected.json``, None where there is none; with ``edited`` where it is not as it was written.

    Raises StateError where it cannot be read, is not of our form, was written
    by a newer version, or, read by root, can be changed by another user: such
    a file is never taken for "no baseline".
    """
    path = os.path.join(directory, EXPECTED)
    try:
        data = read_json(path)
    except FileNotFoundError:
        return None
    except NotBelieved as error:
        raise StateError(f"{path} is not believed: {error}; {_OURS_ALONE}, and the proof still holds") from None
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
    """Write ``expected.json``, and keep the one before. Raises OSError; then the old one stays.

    Raises StateError where root would write it to a folder in which it would not be believed.
    """
    path = os.path.join(directory, EXPECTED)
    place = os.path.realpath(directory)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    others = untrusted(place) if os.geteuid() == 0 else ""
    if others:
        raise StateError(f"nothing was recorded: {path} would not be believed, as {others}; {_OURS_ALONE}")
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
    """Whether what a comparison reads is there, each of its kind; what an older version did not write may lack."""
    then, policy = data.get("baseline"), data.get("policy", {})
    if not isinstance(then, dict) or not isinstance(policy, dict):
        return False
    host, driver, held = (then.get(part) for part in ("host", "driver", "environment"))
    checks, packages = policy.get("checks", {}), held.get("packages", {}) if isinstance(held, dict) else {}
    return (
        all(isinstance(part, dict) for part in (host, driver, held, data.get("plan"), checks, packages))
        and isinstance(data.get("written_at"), str)
        and all(isinstance(text, str) for text in packages.values())
        and all(value in ("block", "report") for value in checks.values())
        and policy.get("accelerator") in (None, "", "auto", "cuda")
        and then.get("accelerator") in ("cuda", "cpu")
        and _is_number(policy.get("gpus_expected"))
        and _all_dicts(then.get("gpus"))
        and _all_dicts(then.get("rates", []))
        and _all_dicts(data.get("accepted", []))
        and all(isinstance(item.get("id"), str) for item in data.get("accepted", []))
        and all(
            isinstance(gpu.get("uuid"), str) and isinstance(gpu.get("pci_address") or "", str) for gpu in then["gpus"]
        )
        # Only less than was proved is a difference.
        and all(_is_number(gpu.get(name)) for gpu in then["gpus"] for name in ("pcie_width", "nvlink_active"))
    )


def _all_dicts(value: t.Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_number(value: t.Any) -> bool:
    """Whether it is one, or was not told."""
    return value is None or type(value) in (int, float)


#: What to do where others can change what root is to believe.
_OURS_ALONE = "make it root's alone (chown root, chmod go-w), or set gate_directory"


def _unusable(path: str, why: str) -> str:
    before = path + ".previous"
    rest = f"put back {before}, or remove it" if os.path.exists(before) else "remove it"
    return f"{path} cannot be used ({why}); {rest} and run site.yml to prove the host again"


def write_atomic(path: str, content: t.Union[str, bytes], mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old or the new content whole, also after a loss of power."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    # As tempfile makes them, whose import takes longer than a look may.
    temporary = os.path.join(directory, f".{os.path.basename(path)}{os.urandom(6).hex()}")
    handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
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
