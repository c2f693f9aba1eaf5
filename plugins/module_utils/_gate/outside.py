# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others found on this host between two looks: ``/run/gpufleet/findings.d/NAME.json``, folded into the verdict.

A file is ``{"findings": [Finding...], "judged_at": "...Z", "valid_for": seconds}`` of root's. One that is too old or
cannot be used is one Finding that says so and only reports: who writes it may be as slow as a BMC.
"""

from __future__ import annotations

import json
import os
import stat
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject, from_dict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate.verdict import LONGEST, number, seconds_of

NAME = "findings.d"
FOLDER = f"/run/gpufleet/{NAME}"
#: Bytes, and files: far above what any of them needs.
READ_LIMIT, FILES_LIMIT = 1 << 20, 20


def read(folder: str, wall: float, owner: int = 0) -> t.List[Finding]:
    """The Findings of all files in ``folder``. ``wall``: seconds since 1970."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))
    except OSError:
        return []
    found: t.List[Finding] = []
    for name in names[:FILES_LIMIT]:
        try:
            found += _one(os.path.join(folder, name), wall, owner)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            found.append(_unknown(name, f"{os.path.join(folder, name)} cannot be used: {error}"))
    return found


def _one(path: str, wall: float, owner: int) -> t.List[Finding]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:
        seen = os.fstat(descriptor)
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != owner or seen.st_mode & 0o022:
            raise ValueError("it is not a file that root alone writes")
        data = json.loads(stream.read(READ_LIMIT).decode("utf-8"))
    limit = number(data["valid_for"])
    if not 0 <= limit <= LONGEST:
        raise ValueError(f"it is good for {limit!r} s; {LONGEST} is the most")
    if not -60 <= wall - seconds_of(data["judged_at"]) <= limit:
        name = os.path.basename(path)
        return [_unknown(name, f"{path} is of {data['judged_at']} and was good for {data['valid_for']} s")]
    return [from_dict(item) for item in data["findings"]]


def _unknown(name: str, found: str) -> Finding:
    return Finding(
        "findings-current",
        "unknown",
        Subject("host", name.rpartition(".")[0]),
        found=found,
        expected="findings of now",
        action="fix configuration",
        policy="report",
        reason="does what writes it still run?",
    )
