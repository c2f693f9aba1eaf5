# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The worker's end of the line to the module: its life, its messages, and what its errors are called.

Runs in the environment's interpreter, like `survey` and `compute`.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
import typing as t

_PR_SET_PDEATHSIG = 1


class Wire:
    """JSON lines to the module, words back from it."""

    def __init__(self) -> None:
        # Libraries print to descriptor 1 as they like: keep the line for ourselves, send theirs to stderr.
        self.descriptor = os.dup(1)
        self._out = os.fdopen(self.descriptor, "w")
        os.dup2(2, 1)

    def emit(self, event: str, **fields: t.Any) -> None:
        """Send one event."""
        self._out.write(json.dumps({"event": event, **fields}) + "\n")
        self._out.flush()

    def wait(self) -> None:
        """Wait for the module's word to go on; end where the module is gone."""
        if not sys.stdin.readline():
            os._exit(1)


def tie_life(parent: int, seconds: int) -> None:
    """Die with the process ``parent`` whatever kills it (0: with whoever it is), and after ``seconds`` in any case."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() != parent:  # it died before we asked
        os._exit(1)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)


def import_torch(wire: Wire) -> t.Any:
    """The module torch, announced with the seconds that it took. Raises what its import raises."""
    begin = time.monotonic()
    torch = importlib.import_module("torch")
    wire.emit("imported", seconds=round(time.monotonic() - begin, 3))
    return torch


def error_kind(error: BaseException) -> str:
    """``out_of_memory``, ``cuda_error``, or ``error`` for the rest."""
    text = f"{type(error).__name__}: {error}".lower()
    full = ("outofmemory", "out of memory", "allocate memory")
    if isinstance(error, MemoryError) or any(word in text for word in full):
        return "out_of_memory"
    if any(word in text for word in ("cuda", "cublas", "cudnn", "nccl", "acceleratorerror")):
        return "cuda_error"
    return "error"


def serve(work: t.Callable[[t.Any, t.Mapping[str, t.Any], Wire], None], job: t.Mapping[str, t.Any]) -> None:
    """Run ``work(torch, job, wire)`` to its end: the last event is ``done`` or ``error``."""
    tie_life(job["parent"], job["alarm_s"])
    wire = Wire()
    try:
        work(import_torch(wire), job, wire)
    except Exception as error:  # pylint: disable=broad-except # whatever it is, the module must hear of it
        wire.emit("error", kind=error_kind(error), type=type(error).__name__, message=str(error)[:2000])
        sys.stderr.flush()
        os._exit(1)  # a broken CUDA context can hang in its destructors
    wire.emit("done")
    os._exit(0)
