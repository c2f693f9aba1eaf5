# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout knows of its hosts, in a file on the controller that survives it: ``reports/rollout/journal.json``.

``{"schema": 1, "id": ..., "finished_at": null, "run": {"id", "settings", "hosts": [...], "sizes": [...]},
"hosts": {NAME: {"state", "step", "note", "wish", "at", "findings"}}}``. It is written before what it says is done, so
that a killed rollout has always said who may be out. Workers of one run write it at the same time, under a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
import typing as t
import uuid

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import dumps, from_dict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import rollout

SCHEMA = 1
NAME = "rollout"
#: Seconds that a start waits for workers that outlived the rollout which was killed.
ORPHANS = 600.0

Content = dict[str, t.Any]


class JournalError(Exception):
    """A journal that cannot be used, or a rollout that runs already; the text says where and what to do."""


class Journal:
    """The journal of the reports folder ``directory``."""

    def __init__(self, directory: str) -> None:
        self.folder = os.path.join(os.path.abspath(directory), NAME)
        self.path = os.path.join(self.folder, "journal.json")

    def read(self) -> Content:
        """The content, of a rollout that is to begin where there is none. Raises JournalError for anything else."""
        try:
            with open(self.path, encoding="utf-8") as stream:
                content = json.load(stream)
            if content["schema"] != SCHEMA:
                raise JournalError(
                    f"{self.path} has schema {content['schema']!r} where this version reads {SCHEMA}; end the rollout"
                    " with the version that began it"
                )
            _check(content)
        except FileNotFoundError:
            return {"schema": SCHEMA, "id": uuid.uuid4().hex[:12], "finished_at": None, "run": {}, "hosts": {}}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise JournalError(
                f"{self.path} cannot be used ({error}). It says which hosts are out: look for drain reasons that begin"
                " with 'gpufleet: rollout' before you remove it"
            ) from None
        return t.cast(Content, content)

    @contextlib.contextmanager
    def changed(self) -> t.Iterator[Content]:
        """The content, to be changed in place; written when the block ends without an error."""
        os.makedirs(self.folder, exist_ok=True)
        with open(os.path.join(self.folder, ".journal.lock"), "a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = self.read()
            yield content
            write_atomic(self.path, dumps(content))

    def hold(self, say: t.Callable[[str], None], limit: float = ORPHANS) -> None:
        """Keep every other rollout of this folder away as long as this process lives, or its workers.

        Workers inherit the lock, and outlive a main process that was killed: then their end is waited for. Raises
        JournalError where another rollout runs, or its workers do not end.
        """
        if self.path in _HELD:
            return
        os.makedirs(self.folder, exist_ok=True)
        lock = open(os.path.join(self.folder, ".lock"), "a+", encoding="utf-8")  # noqa: SIM115 - until this process ends
        end = time.monotonic() + limit
        said = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read().strip()
                if not holder or _alive(holder):
                    lock.close()
                    raise JournalError(
                        f"another rollout runs on this controller (process {holder.split(' ', 1)[0] or 'unknown'},"
                        f" {self.folder}): nothing was done. Let it end; a second start goes on where it ended"
                    ) from None
                if time.monotonic() > end:
                    lock.close()
                    raise JournalError(
                        f"the rollout of process {holder.split(' ', 1)[0]} was killed, and its workers still run after"
                        f" {limit:.0f} s ({self.folder}): end them (ps -ef | grep ansible-playbook) and start again"
                    ) from None
                if not said:
                    say("waiting for the workers of a rollout that was killed")
                    said = True
                time.sleep(0.2)
        lock.truncate(0)
        lock.write(f"{os.getpid()} {_started(os.getpid())}\n")
        lock.flush()
        _HELD[self.path] = lock


def _check(content: t.Mapping[str, t.Any]) -> None:
    """Raises ValueError, KeyError, TypeError or AttributeError where a field is not what we wrote."""
    known = {rollout.WAITING, rollout.HELD, *rollout.OUT, rollout.DONE}
    hosts, run = content["hosts"], content["run"]
    if not {record["state"] for record in hosts.values()} <= known or not content["id"]:
        raise ValueError("its hosts are in no state that a rollout has")
    if not isinstance(content["id"], str) or not isinstance(content["finished_at"], (str, type(None))):
        raise ValueError("it is of no rollout")
    for record in hosts.values():
        if not all(isinstance(record.get(name, ""), str) for name in ("step", "note", "wish", "at")):
            raise ValueError("a host's words are no text")
        for item in record.get("findings", []):
            from_dict(item)
    if not run and isinstance(run, dict):
        return
    names, sizes = run["hosts"], run["sizes"]
    if not isinstance(names, list) or not set(names) <= set(hosts) or not _whole(run["max_failures"]):
        raise ValueError("its run is of other hosts")
    if not all(_whole(size) and size > 0 for size in sizes) or sum(sizes) != len(names):
        raise ValueError("its batches are not of its hosts")


def _whole(value: t.Any) -> bool:
    """Whether this is a whole number, which JSON's true is not."""
    return isinstance(value, int) and not isinstance(value, bool)


#: The locks of this process: open as long as it lives.
_HELD: dict[str, t.TextIO] = {}


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot: with its number it names one process. "" where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _alive(holder: str) -> bool:
    pid, _space, started = holder.partition(" ")
    return bool(started) and _started(int(pid)) == started if pid.isdigit() else True
