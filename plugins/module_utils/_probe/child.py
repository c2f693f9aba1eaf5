# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls that may never return, in a forked child that can be left behind.

A call into a broken driver can put a process into uninterruptible sleep,
where SIGKILL has no effect. So the child holds no descriptor of ours but its
pipe (a left one would keep the SSH session open), is never waited for without
a limit, and inherits a lock: as long as a stuck child lives, every other probe
sees the lock held and answers "unknown" at once, and no second child is made.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _state
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Seconds that one item (one GPU, or the start of the library) may take.
ITEM_LIMIT = 2.0
#: Seconds for all items of a probe together.
TOTAL_LIMIT = 10.0
#: Seconds in which a killed child has to be gone.
KILL_LIMIT = 0.5

LOCK = "probe.lock"

Emit = t.Callable[[t.Dict[str, t.Any]], None]
#: Work of a child: sends records. ``skip`` holds the items that are done or hopeless. Before each item it sends
#: ``{"at": ITEM}``.
Job = t.Callable[[Emit, t.Set[int]], None]


class Stuck(Exception):
    """A probe of before still hangs in the driver; the text names it."""


class Trouble(t.NamedTuple):
    """What became of a child: ``timeout`` (no answer) or ``error`` (it crashed or raised), and the words for it."""

    state: str
    text: str


class Stream(t.NamedTuple):
    """What a job sent. ``hung`` maps an item (None: before the first) to the trouble there."""

    records: t.List[t.Dict[str, t.Any]]
    hung: t.Dict[t.Optional[int], Trouble]


class Child:
    """One forked process and the pipe from it."""

    def __init__(self, work: t.Callable[[int], None], alarm: int, keep: t.Optional[int]) -> None:
        self._pipe, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _be_child(work, write, alarm, keep)
        os.close(write)

    def read(self, limit: float) -> t.Optional[bytes]:
        """What came, ``b""`` at the end, None where nothing came within ``limit`` seconds."""
        ready, _write, _error = select.select([self._pipe], [], [], max(limit, 0))
        return os.read(self._pipe, 1 << 16) if ready else None

    def end(self) -> t.Optional[str]:
        """How the child ended, killed where it still runs; None where it will not die and was left behind."""
        os.close(self._pipe)
        status = self._reap(0.05)
        # It holds no context on a GPU: a signal cannot tear one down half-way.
        for number, limit in ((signal.SIGTERM, 0.1), (signal.SIGKILL, KILL_LIMIT)):
            if status is not None:
                break
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)
            status = self._reap(limit)
        if status is None:
            return None
        if os.WIFSIGNALED(status):
            return f"ended by signal {os.WTERMSIG(status)}"
        return f"ended with exit status {os.WEXITSTATUS(status)}" if os.WEXITSTATUS(status) else ""

    def _reap(self, limit: float) -> t.Optional[int]:
        deadline = time.monotonic() + limit
        while True:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                return 0
            if pid:
                return status
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.005)


def _be_child(work: t.Callable[[int], None], write: int, alarm: int, keep: t.Optional[int]) -> t.NoReturn:
    status = 1
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # The parent may be killed before it can end us.
        signal.alarm(alarm)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        for name in os.listdir("/proc/self/fd"):
            descriptor = int(name)
            if descriptor > 2 and descriptor not in (write, keep):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        work(write)
        status = 0
    finally:
        os._exit(status)


def _lock(descriptor: int) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


class Lock:
    """At most one probe of the driver at a time on a host, a stuck one included.

    The lock belongs to the open file, which a child inherits: it is free when
    the last of them has gone, and needs no cleaning up.
    """

    def __init__(self, folder: str, limit: float = ITEM_LIMIT + KILL_LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self.descriptor: t.Optional[int] = None

    def __enter__(self) -> Lock:
        try:
            os.makedirs(self._folder, mode=0o755, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self.descriptor = os.open(os.path.join(self._folder, LOCK), flags, 0o600)
        except OSError:
            # Nowhere to remember anything (a read-only system): a probe without a memory is better than none.
            return self
        holder = b""
        deadline = time.monotonic() + self._limit
        while not _lock(self.descriptor):
            now = os.pread(self.descriptor, 200, 0)
            if now != holder:
                # Another one's turn: it gets its time too.
                holder, deadline = now, time.monotonic() + self._limit
            if time.monotonic() >= deadline:
                os.close(self.descriptor)
                raise Stuck(f"a probe still waits for the driver ({holder.decode('utf-8', 'replace').strip()})")
            time.sleep(0.02)
        return self

    def note(self, pid: int) -> None:
        """Who holds it, for the others to name."""
        if self.descriptor is not None:
            started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, f"process {pid}, since {started}\n".encode(), 0)

    def __exit__(self, *_error: t.Any) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


def folder(runner: Runner) -> str:
    """Where the lock lies: a folder that only this user writes."""
    if runner.uid() == 0:
        return runner.path("/run/gpufleet")
    runtime = runner.env.get("XDG_RUNTIME_DIR", "")
    return os.path.join(runtime, "gpufleet") if runtime else _state.state_dir(runner.uid(), runner.env)


def stream(job: Job, lock: Lock, item_limit: float = ITEM_LIMIT, total_limit: float = TOTAL_LIMIT) -> Stream:
    """Run a job; where an item hangs or crashes, end the child there and resume past it with another.

    Where the child will not die, no other is started: what was not sent is unknown.
    """
    answer = Stream([], {})
    skip: t.Set[int] = set()
    deadline = time.monotonic() + total_limit
    while True:
        child = Child(lambda pipe: _send(job, skip, pipe), int(total_limit) + 2, lock.descriptor)
        lock.note(child.pid)
        at, trouble = _receive(child, answer, skip, item_limit, deadline)
        ended = child.end()
        if trouble is None:
            return answer
        if ended is None:
            trouble = Trouble("timeout", f"process {child.pid} hangs in the driver and cannot be ended")
        elif not trouble.text:
            trouble = Trouble("error", f"the probe {ended or 'ended without an answer'}")
        answer.hung[at] = trouble
        if ended is None or at is None or time.monotonic() >= deadline:
            return answer


def _receive(
    child: Child, answer: Stream, skip: t.Set[int], item_limit: float, deadline: float
) -> t.Tuple[t.Optional[int], t.Optional[Trouble]]:
    """The item at which the child was last, and its trouble: None for none, without words where its end has them."""
    at: t.Optional[int] = None
    rest = b""
    while True:
        data = child.read(min(item_limit, deadline - time.monotonic()))
        if not data:
            return at, Trouble("timeout", f"no answer within {item_limit:g} s") if data is None else Trouble(
                "error", ""
            )
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            record = json.loads(line.decode("utf-8"))
            if "at" in record:
                at = int(record["at"])
                skip.add(at)
            elif "fault" in record:
                return at, Trouble("error", str(record["fault"]))
            elif "end" in record:
                return at, None
            else:
                answer.records.append(record)


def _send(job: Job, skip: t.Set[int], pipe: int) -> None:
    def emit(record: t.Dict[str, t.Any]) -> None:
        data = (json.dumps(record) + "\n").encode()
        while data:
            data = data[os.write(pipe, data) :]

    try:
        job(emit, skip)
        emit({"end": True})
    except Exception as error:  # pylint: disable=broad-except
        # No traceback leaves a child; the parent makes "unknown" of it and goes on with the next item.
        emit({"fault": f"{type(error).__name__}: {error}"})


def capture(
    argv: t.Sequence[str], env: t.Mapping[str, str], lock: Lock, limit: float
) -> t.Tuple[str, t.Optional[bytes]]:
    """A problem ("" for none) and what a command that may hang printed; no output after ``limit`` seconds."""
    child = Child(lambda pipe: _execute(argv, env, pipe, lock.descriptor), int(limit) + 2, lock.descriptor)
    lock.note(child.pid)
    deadline = time.monotonic() + limit
    chunks = []
    while True:
        data = child.read(deadline - time.monotonic())
        if not data:
            break
        chunks.append(data)
    ended = child.end()
    if data is None:
        stays = f"; process {child.pid} cannot be ended" if ended is None else ""
        return f"{argv[0]} gave no answer within {limit:g} s{stays}", None
    return (f"{argv[0]} {ended}" if ended else ""), b"".join(chunks)


def _execute(argv: t.Sequence[str], env: t.Mapping[str, str], pipe: int, keep: t.Optional[int]) -> None:
    os.dup2(pipe, 1)
    os.dup2(pipe, 2)
    if keep is not None:
        os.set_inheritable(keep, True)
    os.execve(argv[0], list(argv), dict(env))
