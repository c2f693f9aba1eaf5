# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a host keeps what was proved of it, and how such a file is written."""

from __future__ import annotations

import json
import os
import tempfile
import typing as t

SYSTEM_DIR = "/etc/gpufleet"
EXPECTED = "expected.json"
EXPECTED_SCHEMA = 1


def state_dir(euid: int, env: t.Mapping[str, str]) -> str:
    """The folder of ``expected.json``: root's own, or the user's state folder, which root's gate ignores."""
    if euid == 0:
        return SYSTEM_DIR
    home = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return os.path.join(home, "gpufleet")


class StateError(Exception):
    """A state file that is there and cannot be used; the text says where, why and what to do."""


def read_expected(directory: str) -> t.Optional[t.Dict[str, t.Any]]:
    """The content of ``expected.json``, None where there is none.

    Raises StateError where it cannot be read, is not JSON of our form, or
    was written by a newer version: such a file is never taken for "no baseline".
    """
    path = os.path.join(directory, EXPECTED)
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StateError(
            f"{path} cannot be read ({error}); put back {EXPECTED}.previous beside it, or remove it and prove again"
        ) from None
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != EXPECTED_SCHEMA or not isinstance(data.get("baseline"), dict):
        raise StateError(
            f"{path} has schema {schema!r} where this version reads {EXPECTED_SCHEMA}; "
            "use the version that wrote it, or prove the host again"
        )
    return t.cast("t.Dict[str, t.Any]", data)


def write_atomic(path: str, text: str, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old or the new content whole, also after a loss of power."""
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix="." + os.path.basename(path), dir=directory)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
