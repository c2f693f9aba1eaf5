# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions as tuples of numbers: of drivers, kernels, CUDA, glibc and compute capabilities."""

from __future__ import annotations

import functools
import re

Version = tuple[int, ...]

_PLAIN = re.compile(r"\d+(?:\.\d+)*")
_LEADING = re.compile(r"\d+(?:[.-]\d+)*")


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Version:
    """``"550.163.01"`` as ``(550, 163, 1)``. ValueError where it is anything but numbers and points."""
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"{text!r} is not a version (numbers and points)")
    return tuple(int(part) for part in text.split("."))


@functools.lru_cache(maxsize=4096)
def leading(text: str) -> Version:
    """The numbers that a release string begins with: ``"6.1.0-50-amd64"`` as ``(6, 1, 0, 50)``; () where none."""
    match = _LEADING.match(text)
    return tuple(int(part) for part in re.split("[.-]", match.group(0))) if match else ()


def major(text: str) -> int:
    """The first number of a version."""
    return parse(text)[0]
