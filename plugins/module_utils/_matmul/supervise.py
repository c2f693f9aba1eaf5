# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers: started with the environment's interpreter, one a device, each with a limit, none outlives the module.

A hang, a crash or a broken CUDA context ends in that worker's Outcome and
nowhere else. Workers stay in the module's process group, so that what stops
the module stops them; a kill of the module alone reaches them through
PR_SET_PDEATHSIG, and an alarm of their own ends them in any case.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.paths import not_runnable
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import container

#: Seconds. A worker that a kill did not end by then sits in the kernel, and is left behind.
_KILL_WAIT_S = 5.0
_CLOSE_WAIT_S = 2.0
_POLL_S = 0.01
_STDERR_KEPT = 4000
_LINE_LIMIT = 1 << 20
#: More than any worker has to say: what prints without an end is not let fill the module's memory.
_MOST_BYTES = 64 << 20
_MOST_EVENTS = 100_000

#: Makes the modules that ``first`` brings, then calls ``main`` (or another function) of the last.
RANK_BOOT = """
import json, sys, types
job = json.loads(first)
for name, text in job.pop("modules"):
    parts = name.split(".")
    for end in range(1, len(parts)):
        package = ".".join(parts[:end])
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = []
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
getattr(module, job.pop("call"))(job)
"""
#: The same for a worker, whose first line of stdin it is.
BOOT = "import sys\nfirst = sys.stdin.readline()" + RANK_BOOT

Source = t.Sequence[t.Tuple[str, str]]


def sources(names: t.Sequence[str]) -> Source:
    """Name and text of imported modules, from their loader: also out of Ansible's zip and the gate's."""
    found = []
    for name in names:
        spec = sys.modules[name].__spec__
        text = spec.loader.get_source(name) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
        if text is None:
            raise RuntimeError(f"the loader of {name} gives no source")
        found.append((name, text))
    return found


_START = 19  # of a process, behind its name in /proc/PID/stat


def _stat(pid: int) -> t.List[str]:
    """State, parent and so on of a process, empty where it is gone: of /proc, what no stuck process can block."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(") ")[2].split()
    except OSError:
        return []


def descendants(pid: int) -> t.Dict[int, str]:
    """The processes that it started, and those that they did, with the time of each start."""
    children: t.Dict[int, t.Dict[int, str]] = {}
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else []
        if fields:
            children.setdefault(int(fields[1]), {})[int(name)] = fields[_START]
    found: t.Dict[int, str] = {}
    seen = [pid]
    while seen:
        young = children.get(seen.pop(), {})
        found.update(young)
        seen += young
    return found


def left_behind(pid: int) -> str:
    """What is to be said of a process that SIGKILL did not end: a driver or a file system holds it in the kernel."""
    told = [f"state {state}" for state in _stat(pid)[:1]]
    with contextlib.suppress(OSError), open(f"/proc/{pid}/wchan", encoding="utf-8", errors="replace") as file:
        told += [f"in {place}" for place in (file.read(),) if place not in ("", "0")]
    return f"process {pid} does not end by SIGKILL and is left behind ({', '.join(told) or 'gone from /proc'})"


@dataclass(frozen=True)
class Worker:
    """What to start: a device's key, its job (JSON), and variables of its own."""

    key: str
    job: t.Mapping[str, t.Any]
    call: str = "main"
    env: t.Mapping[str, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """What came of a worker.

    ``ended``: ``done`` (its last event was done), ``error`` (it said what
    failed), ``crash`` (it died without a word; ``code`` is subprocess's),
    ``hang`` (killed at its limit, or for the ``problem``), ``stuck`` (not even
    killed: ``problem`` says which process is left behind), ``not_started``.
    """

    key: str
    ended: str = ""
    events: t.List[t.Dict[str, t.Any]] = field(default_factory=list)
    code: t.Optional[int] = None
    stderr: str = ""
    problem: str = ""
    seconds: float = 0.0
    pid: t.Optional[int] = None

    def named(self, name: str) -> t.List[t.Dict[str, t.Any]]:
        """Its events of that name."""
        return [event for event in self.events if event["event"] == name]


class _Running:
    def __init__(self, worker: Worker, process: subprocess.Popen[bytes], deadline: float, begun: float) -> None:
        self.outcome = Outcome(worker.key, pid=process.pid)
        self.process = process
        self.deadline: t.Optional[float] = deadline
        self.begun = begun
        self.buffer = b""
        self.open = 2
        self.ready = False
        self.killed = False
        self.heard = 0
        self.family: t.Dict[int, str] = {}


class Supervisor:
    """Runs workers side by side.

    Seconds: ``import_limit`` until torch is imported; ``before`` from there to
    ``ready``; ``after`` from the word to go on to the end, so that waiting for
    siblings counts for nobody; ``ramp`` between the starts of two devices'
    load, so that their power does not step.
    """

    def __init__(
        self,
        where: t.Union[str, container.Host, container.Image],
        source: Source,
        *,
        import_limit: float = 300.0,
        before: float = 30.0,
        after: float = 30.0,
        ramp: float = 0.0,
    ) -> None:
        self.where = container.Host(where) if isinstance(where, str) else where
        self.source = source
        self.import_limit = import_limit
        self.before = before
        self.after = after
        self.ramp = ramp
        self._selector = selectors.DefaultSelector()
        self._running: t.List[_Running] = []
        self._go_at: t.Optional[float] = None

    def run(self, workers: t.Sequence[Worker]) -> t.List[Outcome]:
        """Start all, read all, end all: one Outcome each, in their order. An exception leaves none running."""
        outcomes: t.Dict[str, Outcome] = {}
        try:
            for worker in workers:
                outcomes[worker.key] = self._start(worker)
            while self._running:
                self._turn()
        finally:
            for running in self._running:
                running.process.kill()
            end = time.monotonic() + _KILL_WAIT_S
            for running in list(self._running):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    running.process.wait(max(0.0, end - time.monotonic()))
                self._end(running, "hang")
            self._selector.close()
        return [outcomes[worker.key] for worker in workers]

    def _start(self, worker: Worker) -> Outcome:
        command, env, parent = self.where.command(worker.key, worker.env, BOOT)
        try:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
            )
        except OSError as error:
            self.where.ended(worker.key)
            problem = not_runnable(command[0]) if os.path.isabs(command[0]) else ""
            return Outcome(
                worker.key, ended="not_started", problem=problem or f"{command[0]}: {error.strerror or error}"
            )
        now = time.monotonic()
        running = _Running(worker, process, now + self.import_limit, now)
        self._running.append(running)
        for name in ("stdout", "stderr"):
            stream = getattr(process, name)
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, (running, name))
        alarm = int(self.import_limit + 2 * (self.before + self.after)) + 60
        first = {"modules": self.source, "call": worker.call, "parent": parent, "alarm_s": alarm, **worker.job}
        self._tell(running, json.dumps(first))
        return running.outcome

    @staticmethod
    def _tell(running: _Running, line: str) -> None:
        stdin = t.cast(t.IO[bytes], running.process.stdin)
        with contextlib.suppress(OSError):  # it is dead: its end of stdout says so
            stdin.write(line.encode() + b"\n")
            stdin.flush()

    def _turn(self) -> None:
        now = time.monotonic()
        self._release(now)
        waits = [running.deadline - now for running in self._running if running.deadline is not None]
        if any(running.open == 0 or running.killed for running in self._running):
            waits.append(_POLL_S)  # nothing but asking tells when it has ended
        if self._go_at is not None:
            waits.append(self._go_at - now)
        for key, _events in self._selector.select(max(0.0, min(waits, default=1.0))):
            running, name = key.data
            self._read(running, name, key.fileobj)
        now = time.monotonic()
        for running in self._running:
            late = running.deadline is not None and now >= running.deadline
            # One that has ended leaves its descriptors to a child that stays.
            if (running.open == 0 or late or running.killed) and running.process.poll() is not None:
                self._end(running, "hang" if running.killed else "")
                return  # ending can take seconds: read what the others sent meanwhile before they are judged
            if late and running.killed:
                self._end(running, "stuck")
                return
            if late:
                # Nobody waits for it: several that sit in the kernel take no longer than one.
                running.family = descendants(running.process.pid)
                running.process.kill()
                running.killed, running.deadline = True, now + _KILL_WAIT_S

    def _release(self, now: float) -> None:
        """Let the next worker go on once all that live are ready, one every ``ramp`` seconds."""
        alive = [running for running in self._running if not running.killed]
        waiting = [running for running in alive if running.ready]
        if not waiting or (self._go_at is None and len(waiting) < len(alive)):
            return
        while waiting and (self._go_at is None or now >= self._go_at):
            running = waiting.pop(0)
            running.ready = False
            running.deadline = now + self.after
            self._tell(running, "go")
            self._go_at = now + self.ramp
        if not waiting:
            self._go_at = None

    def _read(self, running: _Running, name: str, stream: t.Any) -> None:
        try:
            data = os.read(stream.fileno(), 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(stream)
            running.open -= 1
            if running.open == 0 and not running.killed:  # it is about to end
                running.deadline = time.monotonic() + _CLOSE_WAIT_S
            return
        if name == "stderr":
            running.outcome.stderr = (running.outcome.stderr + data.decode("utf-8", "replace"))[-_STDERR_KEPT:]
            return
        running.heard += len(data)
        if running.heard > _MOST_BYTES or len(running.outcome.events) > _MOST_EVENTS:
            running.buffer = b""
            if not running.killed:
                running.outcome.problem = f"it sent more than {_MOST_BYTES >> 20} MiB or {_MOST_EVENTS} events"
                running.deadline = 0.0
            return
        *lines, running.buffer = (running.buffer + data).split(b"\n")
        running.buffer = running.buffer[-_LINE_LIMIT:]
        for line in lines:
            self._hear(running, line)

    def _hear(self, running: _Running, line: bytes) -> None:
        try:
            event = json.loads(line)
            name = event["event"]
        except (ValueError, KeyError, TypeError):
            running.outcome.stderr = (running.outcome.stderr + repr(line[:200]))[-_STDERR_KEPT:]
            return
        running.outcome.events.append(event)
        if running.killed:
            return
        if name == "imported":
            running.deadline = time.monotonic() + self.before
        elif name == "ready":
            running.ready, running.deadline = True, None
        elif name == "done":
            running.deadline = time.monotonic() + _CLOSE_WAIT_S

    @staticmethod
    def _kill(family: t.Mapping[int, str]) -> t.List[int]:
        """End what a worker that was killed had started; those of it that stay even then."""

        def lives(pid: int) -> bool:
            fields = _stat(pid)
            return bool(fields) and fields[0] not in "ZX" and fields[_START] == family[pid]

        end, alive = time.monotonic() + _CLOSE_WAIT_S, [pid for pid in family if lives(pid)]
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        while alive and time.monotonic() < end:
            time.sleep(_POLL_S)
            alive = [pid for pid in alive if lives(pid)]
        return alive

    def _end(self, running: _Running, ended: str) -> None:
        outcome, process = running.outcome, running.process
        outcome.code = process.poll()
        if outcome.code is None:
            ended = "stuck"
        if running.killed or ended == "stuck":
            left = [process.pid] if ended == "stuck" else []
            left += self._kill(running.family)
            said = outcome.problem or "no answer within its time limit"
            outcome.problem = "; ".join([said, *map(left_behind, left)])
        last = outcome.events[-1]["event"] if outcome.events else ""
        if ended == "stuck" or (ended and last != "done"):  # what was done is done, however long the exit takes
            outcome.ended = ended
        else:
            outcome.ended = {"done": "done", "error": "error", "import_error": "error"}.get(last, "crash")
        self.where.ended(outcome.key)
        outcome.seconds = time.monotonic() - running.begun
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is None:
                continue
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(stream)
            with contextlib.suppress(OSError):
                stream.close()
        self._running.remove(running)
