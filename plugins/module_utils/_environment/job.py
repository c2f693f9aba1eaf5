# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work that outlives the module's run, so that a person sees it go on.

A module cannot print while it runs. So it starts the work as a process of its
own, waits a moment, returns how far it is, and is called again. One lock a
work folder keeps a second worker out; the commands of the worker inherit it,
so that it is held until the last of them has ended, also where the worker
itself was killed. Work that nobody asks for any more ends itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
import traceback
import typing as t

#: Seconds without a question after which the work is abandoned: a controller that is gone asks no more.
ABANDONED_AFTER = 300.0
#: Seconds between two looks at the work.
TICK = 0.2
Progress = t.Dict[str, t.Any]
Result = t.Dict[str, t.Any]
#: Does the work: gets the function that hears the progress, the one that tells whether somebody still asks, and
#: the descriptor of the lock; returns the result.
Work = t.Callable[[t.Callable[[str, int, int], None], t.Callable[[], bool], int], Result]


class Job:
    """The work of one work folder, as ``name`` asks for it."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder, self.name = folder, name
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # Beside the folder of the same name that is being made by whoever holds it.
        self._lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self) -> bool:
        """Whether nobody is at work here; then this process holds the lock until it ends."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def ask(self) -> None:
        """Say that somebody still waits for the work."""
        path = os.path.join(self.folder, "asked")
        with open(path, "a", encoding="utf-8"):
            os.utime(path)

    def progress(self) -> Progress:
        """The last that the worker told: job, pid, stage, done, total; empty where there is none."""
        return self._read("progress.json")

    def died(self) -> bool:
        """Whether our own work began and left no result. Ask only where the lock was acquired."""
        return self.progress().get("job") == self.name

    def take_result(self) -> t.Optional[Result]:
        """The result of our own work, once."""
        result = self._read("result.json")
        if result.get("job") != self.name:
            return None
        for file in ("result.json", "progress.json"):
            if os.path.exists(os.path.join(self.folder, file)):
                os.unlink(os.path.join(self.folder, file))
        return result

    def clear(self) -> None:
        """Forget work that died."""
        self._write("progress.json", {})

    def wait(self, seconds: float) -> t.Optional[Result]:
        """Wait for the result of our own work, at most so long, and not beyond the end of somebody else's."""
        end = time.monotonic() + seconds
        while True:
            result = self.take_result()
            if result is not None or time.monotonic() >= end:
                return result
            if self.acquire():
                fcntl.flock(self._lock, fcntl.LOCK_UN)
                return self.take_result()
            time.sleep(TICK)

    def run(self, work: Work) -> Result:
        """Do the work in this process. The lock must be held."""
        return work(lambda stage, done, total: None, lambda: True, self._lock)

    def start(self, work: Work) -> None:
        """Do the work in a process of its own. The lock must be held and goes over to it."""
        self.ask()
        self._tell("starting", 0, 0)
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            os.close(self._lock)
            self._lock = os.open(os.path.join(self.folder, "lock"), os.O_RDWR | os.O_CLOEXEC)
            return
        try:
            os.setsid()
            if os.fork():
                os._exit(0)
            self._detach()
            self._write("result.json", {**self._guarded(work), "job": self.name})
        finally:
            os._exit(0)

    def _detach(self) -> None:
        # A child that keeps the streams of the module keeps the connection of the task open.
        log = os.open(os.path.join(self.folder, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        self._tell("starting", 0, 0)

    def _guarded(self, work: Work) -> Result:
        try:
            return work(self._tell, self._asked, self._lock)
        except Exception:  # pylint: disable=broad-exception-caught
            return {"failed": True, "msg": "the work on the host failed unexpectedly: " + traceback.format_exc()}

    def _tell(self, stage: str, done: int, total: int) -> None:
        self._write(
            "progress.json", {"job": self.name, "pid": os.getpid(), "stage": stage, "done": done, "total": total}
        )

    def _asked(self) -> bool:
        return time.time() - os.stat(os.path.join(self.folder, "asked")).st_mtime < ABANDONED_AFTER

    def _read(self, file: str) -> t.Dict[str, t.Any]:
        try:
            with open(os.path.join(self.folder, file), encoding="utf-8") as stream:
                data = json.load(stream)
        except (FileNotFoundError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def _write(self, file: str, data: t.Mapping[str, t.Any]) -> None:
        path = os.path.join(self.folder, file)
        with open(path + ".new", "w", encoding="utf-8") as stream:
            json.dump(data, stream)
        os.replace(path + ".new", path)
