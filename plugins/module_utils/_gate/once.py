# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""However many start at once, the work is done once, and everybody has an answer in time.

The work runs in a child that may be left behind. The lock belongs to the open
file that the child inherits: a child that hangs in the driver holds it as long
as it lives, so no second one is made, after days too.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import child
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import COLLECTION, write_atomic

_POLL_S = 0.02
#: Seconds after its time in which a holder ends its child and writes its verdict.
_GRACE_S = 2.0

Work = t.Callable[[], verdict.Verdict]


def answer(folder: str, name: str, work: Work, limit: float) -> verdict.Verdict:
    """The verdict of ``work``, or of another's that ended after this call began. Written to ``folder``.

    ``name``: of the work and of its lock. ``limit``: seconds until everybody is answered.
    """
    began = verdict.now()
    deadline = time.monotonic() + limit
    path = os.path.join(folder, verdict.FILE)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    lock = os.open(os.path.join(folder, name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while not _locked(lock):
            holder = _holder(lock)
            if time.monotonic() >= deadline or (holder and began.uptime > holder["until"] + _GRACE_S):
                return _waited(name, holder, verdict.now().uptime - began.uptime)
            time.sleep(_POLL_S)
        current = verdict.read(path, verdict.now(), os.geteuid())
        if current.get("uptime", -1) >= began.uptime and current.get("made_by") == name:
            return current
        made = run(work, lock, name, deadline)
        try:
            write_atomic(path, json.dumps(made, sort_keys=True) + "\n")
        except OSError as error:  # the answer is known; those who read the file are told by its age
            sys.stderr.write(f"gpufleet-gate: {path} cannot be written: {error}\n")
        return made
    finally:
        os.close(lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def run(work: Work, lock: t.Optional[int], name: str, deadline: float) -> verdict.Verdict:
    """The verdict of work that is done in a child, which is ended or left behind at the deadline."""
    limit = max(deadline - time.monotonic(), 0.0)
    one = child.Child(lambda pipe: _send(pipe, work), int(limit) + 2, lock)
    chunks = []
    try:
        if lock is not None:
            _note(lock, one.pid, limit)
        while True:
            data = one.read(deadline - time.monotonic())
            if not data:
                break
            chunks.append(data)
    finally:  # also where we are told to stop
        ended = one.end()
    if data is None:
        stays = "; it cannot be ended and was left behind" if ended is None else ""
        found = f"process {one.pid} gave no answer within {limit:.0f} s{stays}"
        return _dated(name, verdict.unknown("look-ended", found, "an answer of the driver and the disks", "reboot"))
    try:
        return {**t.cast("verdict.Verdict", json.loads(b"".join(chunks).decode("utf-8"))), "made_by": name}
    except ValueError:
        found = f"process {one.pid} {ended or 'ended without an answer'}"
        return _dated(name, verdict.unknown("look-ended", found, "an answer"))


def _send(pipe: int, work: Work) -> None:
    try:
        made = work()
    except Exception as error:  # pylint: disable=broad-except
        # No traceback leaves a child; what cannot be judged is unknown.
        made = _dated("", verdict.unknown("look-ended", f"{type(error).__name__}: {error}", "a look without an error"))
    data = json.dumps(made).encode()
    while data:
        data = data[os.write(pipe, data) :]


def _dated(name: str, made: verdict.Verdict) -> verdict.Verdict:
    """As the file has it: good for no longer than a minute, so that it is looked again."""
    at = verdict.now()
    told = {"schema": verdict.SCHEMA, "judged_at": made["findings"][0]["observed_at"], "uptime": round(at.uptime, 3)}
    return {**made, **told, "boot_id": at.boot_id, "collection": COLLECTION, "valid_for": 60, "made_by": name}


def _note(lock: int, pid: int, limit: float) -> None:
    """Who holds the lock, and until when by the clock that nobody sets."""
    at = verdict.now()
    note = {"pid": pid, "since": _finding.now(), "until": at.uptime + limit, "boot_id": at.boot_id}
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(note).encode(), 0)


def _holder(lock: int) -> t.Dict[str, t.Any]:
    """The note in the lock, empty where there is none of this boot."""
    try:
        note = json.loads(os.pread(lock, 1000, 0).decode("utf-8"))
        ours = note["boot_id"] == verdict.now().boot_id and isinstance(note["until"], float)
        ours = ours and isinstance(note["pid"], int) and isinstance(note["since"], str)
    except (ValueError, KeyError, TypeError):
        return {}
    return t.cast("t.Dict[str, t.Any]", note) if ours else {}


def _waited(name: str, holder: t.Mapping[str, t.Any], seconds: float) -> verdict.Verdict:
    who = f"process {holder['pid']}, since {holder['since']}," if holder else "another process"
    found = f"{who} still holds {name}.lock; waited {seconds:.0f} s"
    return verdict.unknown("look-ended", found, "a look that ends", "drain and inspect")
