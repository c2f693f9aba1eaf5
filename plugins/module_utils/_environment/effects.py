# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one seam through which making an environment runs commands, opens connections and tells how far it is."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import tempfile
import typing as t
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit, urlunsplit

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import venv as _venv
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import EnvironmentFailure

#: Seconds that a server has to answer a question of ours.
ANSWER_LIMIT = 10.0
#: Seconds between two looks at a running command.
TICK = 0.5
Say = t.Callable[[str, int, int], None]


@dataclass(frozen=True)
class Result:
    """The end of a command: exit status (None where it could not be started) and both streams in one text."""

    rc: t.Optional[int]
    output: str


@dataclass
class Effects:
    """This machine. ``progress(stage, done, total)`` in bytes hears every step; ``watched()`` is False once nobody
    listens any more; ``keep`` are descriptors that commands inherit (a lock is held until the last of them ends)."""

    progress: Say = lambda stage, done, total: None
    watched: t.Callable[[], bool] = lambda: True
    keep: t.Tuple[int, ...] = ()
    environ: t.Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def say(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Tell what is being done."""
        self.progress(stage, done, total)

    def run(
        self, argv: t.Sequence[str], environ: t.Mapping[str, str], watch: t.Callable[[], None] = lambda: None
    ) -> Result:
        """Run a command to its end, calling ``watch`` now and then; ended early where nobody watches any more."""
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(  # pylint: disable=consider-using-with
                    list(argv),
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=self.keep,
                    cwd="/",
                )
            except OSError as error:
                return Result(None, f"{argv[0]}: {error.strerror}")
            while True:
                try:
                    process.wait(TICK)
                    break
                except subprocess.TimeoutExpired:
                    watch()
                if not self.watched():
                    process.send_signal(signal.SIGTERM)
                    process.wait()
                    raise EnvironmentFailure("nobody waits for this work any more, so it stopped; run again to go on")
            output.seek(0)
            return Result(process.returncode, output.read().decode("utf-8", "replace"))

    def unreachable(self, url: str) -> str:
        """Why no server answers at the address; empty where one does, whatever it says."""
        try:
            self._open(url, "GET").close()
        except urllib.error.HTTPError:
            return ""
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None)
            text = str(reason or error)
            # The machine may trust a certificate through pip's own settings, which this question does not know.
            return "" if "CERTIFICATE_VERIFY_FAILED" in text else text
        return ""

    def size(self, url: str) -> int:
        """Bytes of the file at the address, 0 where that cannot be told."""
        parts = urlsplit(url)
        try:
            if parts.scheme == "file":
                return os.stat(unquote(parts.path)).st_size
            with self._open(url, "HEAD") as answer:
                return int(answer.headers.get("Content-Length") or 0)
        except (OSError, ValueError):
            return 0

    def users_of(self, venv: str) -> t.List[int]:
        """Processes that have files of the environment in memory."""
        return _venv.users_of(venv)

    @staticmethod
    def _open(url: str, method: str) -> t.Any:
        parts = urlsplit(url)
        request = urllib.request.Request(
            urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), method=method
        )
        if parts.username:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
        return urllib.request.build_opener().open(request, timeout=ANSWER_LIMIT)
