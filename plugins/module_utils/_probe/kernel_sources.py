# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the kernel log can be read: ``/dev/kmsg``, the journal, dmesg; the lines after a place go to a Collector."""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import time
import typing as t
from contextlib import suppress

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.kernel_lines import WORDS, Collector, readable
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

if t.TYPE_CHECKING:
    import subprocess

KMSG = "/dev/kmsg"
#: Some containers have their console in its place.
DEVICE = os.makedev(1, 11)
#: Seconds for the whole log. A flooded buffer of 16 MiB takes 0.3 s.
LIMIT = 3.0
#: Bytes of one piece, which is all of the log that is in memory at once.
PIECE = 1 << 20

JOURNAL = ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic")


class Place:
    """How far the log was read: number of the record (kmsg) and microseconds since boot."""

    def __init__(self, seq: t.Optional[int] = None, usec: int = -1) -> None:
        self.seq = seq
        self.usec = usec


class _TooLong(Exception):
    """The time limit was reached; what was fed so far counts."""


def read(runner: Runner, collector: Collector, place: Place, deadline: float) -> t.Tuple[str, str, str]:
    """Feeds the first source that can be read. Its name, an error, and what was lost before its first line."""
    try:
        return "kmsg", "", _kmsg(runner, collector, place, deadline)
    except _TooLong:
        return "kmsg", f"the log is longer than can be read in {LIMIT:g} s; the next look goes on", ""
    except OSError as error:
        problem = f"{KMSG}: {error.strerror}"
    for source, ask in (("journal", journal), ("dmesg", _dmesg)):
        answer = ask(runner, collector, place, deadline)
        if answer != "nothing":
            return source, answer, ""
    return "none", f"{problem}, and neither the journal nor dmesg shows this user the kernel log", ""


def _kmsg(runner: Runner, collector: Collector, place: Place, deadline: float) -> str:
    """Feeds the records after ``place``; the text says how many were overwritten before they were read."""
    before = Place(place.seq, place.usec)
    descriptor = os.open(runner.path(KMSG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) and (not stat.S_ISCHR(found.st_mode) or found.st_rdev != DEVICE):
            raise OSError(errno.ENODEV, "it is another device")
        first, last = _records(descriptor, collector, Place(place.seq, place.usec), place, deadline)
        if place.seq is not None and last is not None and last < place.seq:
            # Another log than the one of before.
            os.lseek(descriptor, 0, os.SEEK_SET)
            place.seq, place.usec = None, -1
            first, last = _records(descriptor, collector, Place(), place, deadline)
    finally:
        os.close(descriptor)
    if first is None or last is None:
        raise OSError(errno.ENODATA, "it has no lines")
    return _gap(first, before if before.seq is None or last >= before.seq else Place())


def _records(
    descriptor: int, collector: Collector, before: Place, place: Place, deadline: float
) -> t.Tuple[t.Optional[t.Tuple[int, int]], t.Optional[int]]:
    """Feeds the records after ``before``, moves ``place``; the first record's numbers, and the last one's."""
    first: t.Optional[t.Tuple[int, int]] = None
    last: t.Optional[int] = None
    for piece in _pieces(descriptor, deadline):
        lines = piece.split(b"\n")
        numbers = [number for number in (_number(line) for line in (lines[0], _last(lines))) if number]
        if numbers:
            first, last = first or numbers[0], numbers[-1][0]
        old = last is not None and before.seq is not None and last <= before.seq
        if not old and any(word in piece for word in WORDS):
            for line in lines:
                if any(word in line for word in WORDS):
                    _record(collector, line, before)
        if not old and numbers:
            place.seq, place.usec = numbers[-1]
        if time.monotonic() > deadline:
            raise _TooLong
    return first, last


def _gap(first: t.Tuple[int, int], before: Place) -> str:
    """What was overwritten between the place of before and the first record that is still there."""
    if before.seq is None and before.usec >= 0:
        return "lines were overwritten before they were read" if first[1] > before.usec else ""
    count = first[0] - (0 if before.seq is None else before.seq + 1)
    return f"{count} lines were overwritten before they were read" if count > 0 else ""


def _pieces(descriptor: int, deadline: float) -> t.Iterator[bytes]:
    """Whole lines of a device that gives a record a call, or of a file."""
    parts: t.List[bytes] = []
    size = 0
    while time.monotonic() <= deadline or not parts:
        try:
            data = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EINVAL):
                continue  # Overwritten while we read: the numbers tell how many.
            raise
        if not data:
            break
        parts.append(data)
        size += len(data)
        if size >= PIECE:
            whole, _newline, rest = b"".join(parts).rpartition(b"\n")
            yield whole
            parts, size = [rest] if rest else [], len(rest)
    if parts:
        yield b"".join(parts).rstrip(b"\n")


def _number(line: bytes) -> t.Optional[t.Tuple[int, int]]:
    """Number and microseconds of a record; None of what goes on with one."""
    fields = line.split(b";", 1)[0].split(b",", 3)
    try:
        return int(fields[1]), int(fields[2])
    except (IndexError, ValueError):
        return None


def _last(lines: t.Sequence[bytes]) -> bytes:
    return next((line for line in reversed(lines) if line and not line.startswith(b" ")), b"")


def _record(collector: Collector, line: bytes, before: Place) -> None:
    number = _number(line)
    if number is not None and (number[0] > before.seq if before.seq is not None else number[1] > before.usec):
        collector.feed(number[1], readable(line.partition(b";")[2]))


def journal(runner: Runner, collector: Collector, place: Place, deadline: float) -> str:
    """Feeds this boot's lines of the journal after ``place``: "", "nothing" or an error, as _command."""
    return _command(runner, JOURNAL, collector, place, deadline)


def _dmesg(runner: Runner, collector: Collector, place: Place, deadline: float) -> str:
    return _command(runner, ("dmesg",), collector, place, deadline)


def _command(runner: Runner, argv: t.Sequence[str], collector: Collector, place: Place, deadline: float) -> str:
    """Feeds the lines after ``place``: "" for done, "nothing" where there was none, or an error."""
    import subprocess

    program = runner.which(argv[0])
    if program is None:
        return "nothing"
    try:
        process = subprocess.Popen(  # pylint: disable=consider-using-with
            [runner.path(program), *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**runner.env, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError:
        return "nothing"
    before, said = place.usec, False
    place.seq = None  # The numbers are those of another source.
    try:
        for piece in _output(process, deadline):
            said = said or bool(piece.strip())
            _stamped(collector, piece, before, place)
    except _TooLong:
        return f"{argv[0]} gave more than can be read in {LIMIT:g} s; the next look goes on"
    finally:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
    return "" if said else "nothing"


def _output(process: subprocess.Popen[bytes], deadline: float) -> t.Iterator[bytes]:
    """Whole lines of a command until it ends. Raises _TooLong."""
    if process.stdout is None:
        return
    descriptor, rest = process.stdout.fileno(), b""
    while True:
        ready, _write, _error = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready or time.monotonic() > deadline:
            raise _TooLong
        data = os.read(descriptor, PIECE)
        whole, _newline, rest = (rest + data).rpartition(b"\n") if data else (rest, b"", b"")
        if len(rest) > PIECE:
            rest = b""  # No line of a kernel.
        if whole:
            yield whole
        if not data:
            return


def _stamped(collector: Collector, piece: bytes, before: int, place: Place) -> None:
    """Lines that begin with ``[seconds.microseconds]``."""
    lines = piece.split(b"\n")
    wanted = any(word in piece for word in WORDS)
    for line in lines if wanted else lines[-1:]:
        usec = _microseconds(line)
        if usec is not None and usec > before:
            if wanted and any(word in line for word in WORDS):
                collector.feed(usec, readable(line))
            place.usec = max(place.usec, usec)


def _microseconds(line: bytes) -> t.Optional[int]:
    seconds, dot, fraction = line[1 : line.find(b"]")].strip().partition(b".")
    if line[:1] != b"[" or not dot or not seconds.isdigit() or not fraction.isdigit():
        return None
    return int(seconds) * 1_000_000 + int(fraction.ljust(6, b"0")[:6])
