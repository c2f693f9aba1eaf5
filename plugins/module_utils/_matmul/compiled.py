# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does torch.compile make code that runs and is right? Its parts (triton, a C compiler, headers) are the host's.

Runs in the environment's interpreter.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.device import Device
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import Wire

_SHAPE = (256, 512)


def compiled(device: Device, wire: Wire) -> None:
    """Event ``compile``: state ok, mismatch, error (with type and message), or unsupported (with reason)."""
    reason = _lacking(device)
    if reason:
        wire.emit("compile", state="unsupported", reason=reason)
        return
    try:
        made = tempfile.TemporaryDirectory(prefix="gpufleet-")
    except OSError as error:  # full, or not to be written: users' compilations end so too
        wire.emit("compile", state="error", type=type(error).__name__, message=str(error))
        return
    with made as folder:
        # What it compiles, and what of it was kept before, is nobody else's. Precompiled headers would be kept beside
        # the cache, 150 MB of them, and take a minute; they are for many kernels.
        names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
        os.environ.update({name: os.path.join(folder, name) for name in names}, TORCHINDUCTOR_COMPILE_THREADS="1")
        os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        torch = device.torch
        values = torch.arange(_SHAPE[0] * _SHAPE[1], dtype=torch.float32, device=device.name).reshape(_SHAPE) % 61 - 30
        try:
            found = torch.compile(_work)(values)
        except Exception as error:  # pylint: disable=broad-except # whatever it is, it is what users would see
            wire.emit("compile", state="error", type=type(error).__name__, message=_cause(error)[:2000])
            return
        # Sums of whole numbers below 2^24: any order gives the same bits.
        right = bool(torch.equal(found.cpu(), _work(values.cpu())))
        wire.emit("compile", state="ok" if right else "mismatch")


def _work(values: t.Any) -> t.Any:
    return (values * 3 + 1).relu().sum(dim=1)


def _lacking(device: Device) -> str:
    if device.cuda:
        return "" if importlib.util.find_spec("triton") else "triton is not in this environment"
    compiler = os.environ.get("CXX") or "g++"
    return "" if shutil.which(compiler) else f"this machine has no C++ compiler ({compiler})"


def _cause(error: BaseException) -> str:
    """The lines that say why: compilers speak before the exception's own words."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if "error:" in line or "No such file" in line or "cannot find" in line]
    return " ".join(telling[:3] or [line for line in lines if line][:2])
