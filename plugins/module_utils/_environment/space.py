# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Space on the disk, judged before anything is written."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import EnvironmentFailure

#: Where a wheel is not at hand to look inside, its files take at least this many times its own size: the wheels of
#: torch 2.14.1 with its CUDA libraries 1.9, those of torch 2.13.0+cpu 3.6 (measured). The least, since space that is
#: there must not be refused; with all wheels at hand it is counted, still before anything is installed.
UNPACKED_RATIO = 1.9
#: The empty environment and the pip in it (measured: 20 MB).
OVERHEAD_BYTES = 24 << 20
#: pip unpacked with its bytecode (measured: 19 MB for 23.2.1), and its small files.
PIP_BYTES = 24 << 20


class Need(t.NamedTuple):
    """Bytes that are going to be written under a path, and what for."""

    path: str
    size: int
    purpose: str


def existing(path: str) -> str:
    """The nearest folder above the path, or the path itself, that exists."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def check(needs: t.Iterable[Need]) -> None:
    """Raise EnvironmentFailure where a file system has less space than all that shall be written to it."""
    devices: t.Dict[int, t.List[Need]] = {}
    for need in needs:
        devices.setdefault(os.stat(existing(need.path)).st_dev, []).append(need)
    for group in devices.values():
        stat = os.statvfs(existing(group[0].path))
        free, total = stat.f_bavail * stat.f_frsize, sum(need.size for need in group)
        if free < total:
            raise EnvironmentFailure(
                f"not enough space: {megabytes(total)} MB needed ("
                + ", ".join(f"{megabytes(need.size)} MB for {need.purpose} in {need.path}" for need in group)
                + f"), {megabytes(free)} MB free at {existing(group[0].path)}; nothing was changed. Free some space, or"
                " choose another pytorch_venv or pytorch_wheel_store"
            )


def exhausted(paths: t.Iterable[str], said: str) -> str:
    """What to say where a disk became full in spite of all: free space by path."""
    places = sorted({existing(path) for path in paths})
    free = ", ".join(
        f"{os.statvfs(path).f_bavail * os.statvfs(path).f_frsize // 1_000_000} MB in {path}" for path in places
    )
    return (
        f"no space left on the device; free are {free} ({said}). Free some space, or choose another pytorch_venv or"
        " pytorch_wheel_store, and run again"
    )


def megabytes(size: int) -> int:
    """Rounded up, so that a need of one byte is not none."""
    return -(-size // 1_000_000)
