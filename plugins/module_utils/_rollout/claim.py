# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose rollout changes this host: the owner's mark, and the commands of an earlier run that outlived it."""

from __future__ import annotations

import os
import tempfile
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import dumps
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import read_json

NAME = "rollout.json"
SCHEMA = 1
#: In the environment of every command of a rollout, and so of what it started: RUN/HOST.
VARIABLE = "GPUFLEET_ROLLOUT"


class Claimed(Exception):
    """Another rollout has this host; the text says which, and what to do."""


def read(directory: str) -> t.Optional[t.Dict[str, t.Any]]:
    """The mark on this host, None where there is none. Raises Claimed where it is not one of ours to read."""
    path = os.path.join(directory, NAME)
    try:
        mark = read_json(path)
        if mark["schema"] != SCHEMA or not isinstance(mark["owner"], str) or not mark["owner"]:
            raise ValueError("not of the form of this version")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Claimed(
            f"{path} cannot be used ({error}); a rollout may be changing this host: remove it if none is"
        ) from None
    return t.cast("t.Dict[str, t.Any]", mark)


def claim(directory: str, owner: str, since: str, check_mode: bool = False) -> bool:
    """Make the owner's mark; whether it is new. Raises Claimed where another owner's is there, OSError for no space.

    It survives a restart of the host. Of two that come at once one makes the mark: a link is never made twice.
    """
    for _attempt in (1, 2):
        there = read(directory)
        if there is not None:
            if there["owner"] != owner:
                raise Claimed(
                    f"the rollout of {there['owner']} has this host since {there.get('since')}; end it there, or, if it"
                    f" is no more, remove {os.path.join(directory, NAME)}"
                )
            return False
        if check_mode or _make(directory, {"schema": SCHEMA, "owner": owner, "since": since}):
            return True
    raise Claimed("another rollout took this host at this moment")


def _make(directory: str, mark: t.Mapping[str, t.Any]) -> bool:
    os.makedirs(directory, mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix="." + NAME, dir=directory)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(dumps(mark))
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.link(temporary, os.path.join(directory, NAME))
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    return True


def release(directory: str, owner: str) -> bool:
    """Take the mark away; False where there is none. Raises Claimed where it is another's, which stays."""
    there = read(directory)
    if there is None:
        return False
    if there["owner"] != owner:
        raise Claimed(f"the mark on this host is of {there['owner']} now, and stays")
    os.unlink(os.path.join(directory, NAME))
    return True


def outlived(run: str, host: str, proc: str = "/proc") -> t.List[t.Tuple[int, str]]:
    """Process and command of what an earlier run started for ``host`` and what still runs here.

    As root all are seen, else one's own.
    """
    found = []
    wanted = VARIABLE.encode() + b"="
    for pid in sorted(int(name) for name in os.listdir(proc) if name.isdigit()):
        folder = os.path.join(proc, str(pid))
        try:
            with open(os.path.join(folder, "environ"), "rb") as stream:
                values = [item[len(wanted) :] for item in stream.read().split(b"\0") if item.startswith(wanted)]
            if not values:
                continue
            of_run, _slash, of_host = values[0].decode("utf-8", "replace").partition("/")
            if of_host == host and of_run != run:
                with open(os.path.join(folder, "cmdline"), "rb") as stream:
                    words = stream.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()
                found.append((pid, words[:200]))
        except OSError:
            continue  # it ended meanwhile, or is another user's
    return found
