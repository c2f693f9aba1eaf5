# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one seam for effects: every file, folder, variable and command that a probe looks at goes through a Runner.

Nothing here raises for what a host lacks: an absent or unreadable file is
None, an absent command a Result with ``missing`` set.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import typing as t

if t.TYPE_CHECKING:
    import subprocess

#: Seconds. No command that a probe runs needs longer on a healthy host.
COMMAND_LIMIT = 3.0
#: Bytes. Larger than every file that a probe reads (dpkg's status file is the largest).
READ_LIMIT = 16 << 20
#: Bytes of a command's output, far above what any of them prints.
OUTPUT_LIMIT = 16 << 20
#: Where commands lie; the PATH of a caller can be anything.
COMMAND_PATH = ("/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin")
#: Nothing has a name with a NUL in it, which Python says in its own way. Such names come from files of the machine.
_NO_FILE = (OSError, ValueError)


class Result(t.NamedTuple):
    """What a command left behind. ``rc`` is None where it did not run to its end."""

    rc: t.Optional[int]
    out: str = ""
    err: str = ""
    missing: bool = False
    timed_out: bool = False
    flooded: bool = False

    @property
    def problem(self) -> str:
        """One line for a person, "" where the command ended with 0."""
        if self.missing:
            return "the command is not there"
        if self.timed_out:
            return "no answer within the time limit"
        if self.flooded:
            return f"more than {OUTPUT_LIMIT >> 20} MiB of output"
        if self.rc == 0:
            return ""
        text = (self.err.strip() or self.out.strip()).split("\n", 1)[0]
        return f"exit status {self.rc}: {text}"


class Runner:
    """Effects on the machine under ``root``, which is ``/`` except where a tree was laid out for a test."""

    def __init__(self, root: str = "/", env: t.Optional[t.Mapping[str, str]] = None) -> None:
        self.root = root.rstrip("/")
        self.env: t.Mapping[str, str] = os.environ if env is None else env

    def path(self, path: str) -> str:
        """Where ``path`` of the observed machine really lies."""
        return self.root + path

    def read_bytes(self, path: str, limit: int = READ_LIMIT) -> t.Optional[bytes]:
        """The first ``limit`` bytes of a file, None where it cannot be read."""
        chunks: t.List[bytes] = []
        try:
            # In small pieces: the kernel answers a large read of a file under /proc/sys with ENOMEM.
            with open(self.path(path), "rb") as file:
                while limit > 0:
                    chunk = file.read(min(limit, 1 << 16))
                    if not chunk:
                        break
                    chunks.append(chunk)
                    limit -= len(chunk)
        except _NO_FILE:
            return None
        return b"".join(chunks)

    def read(self, path: str, limit: int = READ_LIMIT) -> t.Optional[str]:
        """The text of a file without white space around it, None where it cannot be read."""
        data = self.read_bytes(path, limit)
        return None if data is None else data.decode("utf-8", "replace").strip()

    def listdir(self, path: str) -> t.List[str]:
        """Sorted names in a folder, none where it cannot be read."""
        try:
            return sorted(os.listdir(self.path(path)))
        except _NO_FILE:
            return []

    def exists(self, path: str) -> bool:
        """Whether something is there (a link to nowhere is not)."""
        return os.path.exists(self.path(self.realpath(path) if self.root else path))

    def access(self, path: str) -> bool:
        """Whether this process may read and write: the kernel asks the device cgroup too, and opens nothing."""
        try:
            return os.access(self.path(path), os.R_OK | os.W_OK)
        except ValueError:
            return False

    def mode(self, path: str) -> t.Optional[int]:
        """Permission bits, None where nothing is there."""
        try:
            return os.stat(self.path(path)).st_mode & 0o7777
        except _NO_FILE:
            return None

    def uid(self) -> int:
        """The user as whom we look."""
        return os.geteuid()

    def link(self, path: str) -> t.Optional[str]:
        """The last name of what a link points to, None where there is no link."""
        try:
            return os.path.basename(os.readlink(self.path(path)))
        except _NO_FILE:
            return None

    def realpath(self, path: str) -> str:
        """The path without links; an absolute link starts at ``root`` again."""
        for _turn in range(40):
            parts = path.split("/")
            for end in range(2, len(parts) + 1):
                prefix = "/".join(parts[:end])
                try:
                    target = os.readlink(self.path(prefix))
                except _NO_FILE:
                    continue
                path = os.path.normpath(os.path.join(os.path.dirname(prefix), target, *parts[end:]))
                break
            else:
                return path
        return path

    def which(self, name: str) -> t.Optional[str]:
        """Where a command lies (a path is its own answer), None where there is none."""
        if name.startswith("/"):
            return name if os.access(self.path(name), os.X_OK) else None
        for folder in COMMAND_PATH:
            path = f"{folder}/{name}"
            if os.access(self.path(path), os.X_OK):
                return path
        return None

    def run(self, argv: t.Sequence[str], limit: float = COMMAND_LIMIT, stdin: bytes = b"") -> Result:
        """Run a command, killed with its children after ``limit`` seconds and abandoned where it will not die.

        ``stdin``: at most what a pipe holds, 4096 bytes.
        """
        import subprocess  # most looks run no command

        program = self.which(argv[0])
        if program is None:
            return Result(None, missing=True)
        env = {**self.env, "LC_ALL": "C"}
        told = _pipe(stdin) if stdin else subprocess.DEVNULL
        try:
            process = subprocess.Popen(  # pylint: disable=consider-using-with
                [self.path(program)] + list(argv[1:]),
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                start_new_session=True,
            )
        except _NO_FILE as error:
            return Result(None, err=str(error))
        finally:
            if stdin:
                os.close(told)
        flooded = False
        try:
            out, err = _read(process, limit)
            return Result(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        except subprocess.TimeoutExpired:
            pass
        except OverflowError:
            flooded = True
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        return Result(None, timed_out=not flooded, flooded=flooded)


def _pipe(data: bytes) -> int:
    """The end from which a command reads these bytes and then nothing."""
    reading, writing = os.pipe()
    os.write(writing, data)
    os.close(writing)
    return reading


def _read(process: subprocess.Popen[bytes], limit: float) -> t.Tuple[bytes, bytes]:
    """What a command prints until it ends: TimeoutExpired after ``limit`` seconds, OverflowError above OUTPUT_LIMIT."""
    import selectors
    import subprocess

    deadline = time.monotonic() + limit
    told: t.Dict[t.Any, t.List[bytes]] = {process.stdout: [], process.stderr: []}
    size = 0
    with selectors.DefaultSelector() as selector:
        for stream in told:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired(process.args, limit)
            for key, _events in ready:
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                told[key.fileobj].append(data)
                size += len(data)
            if size > OUTPUT_LIMIT:
                raise OverflowError
    process.wait(max(0.0, deadline - time.monotonic()))
    for stream in told:
        stream.close()
    out, err = (b"".join(parts) for parts in told.values())
    return out, err
