# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's verdict, ``/run/gpufleet/verdict.json``: its form, its age, and whom it is believed.

Read before every job, so nothing is imported that takes time to import.
"""

from __future__ import annotations

import json
import os
import stat
import time
import typing as t

FILE = "verdict.json"
SCHEMA = 1
#: Bytes, far above the verdict of the largest host.
READ_LIMIT = 4 << 20
#: Exit statuses of gpufleet-gate by state.
EXITS = {"ready": 0, "not_ready": 1, "unknown": 2}
BOOT_ID = "/proc/sys/kernel/random/boot_id"

Verdict = t.Dict[str, t.Any]


class Now(t.NamedTuple):
    """This moment: seconds since 1970, seconds since the boot (a suspended host's too), and which boot."""

    wall: float
    uptime: float
    boot_id: str


def now() -> Now:
    """This moment by the kernel's clocks."""
    try:
        with open(BOOT_ID, encoding="ascii") as stream:
            boot = stream.read().strip()
    except OSError:
        boot = ""
    return Now(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), boot)


def unknown(check: str, found: str, expected: str, action: str = "fix configuration") -> Verdict:
    """A verdict of one Finding (as _finding.Finding.to_dict gives it) that says why nothing is known."""
    finding = {
        "id": f"{check}/host",
        "check": check,
        "subject": {"kind": "host", "key": ""},
        "state": "unknown",
        "found": found,
        "expected": expected,
        "action": action,
        "policy": "block",
        "reason": "",
        "evidence": {},
        "observed_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "valid_for": None,
    }
    return {"ok": False, "state": "unknown", "findings": [finding]}


def read(path: str, at: Now, owner: int = 0) -> Verdict:
    """The verdict in the file, or an ``unknown`` one that says why it does not hold. Only ``owner``'s is believed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != owner or found.st_mode & 0o022:
                return _unusable(path, "it is not a file that root alone writes")
            data = json.loads(stream.read(READ_LIMIT).decode("utf-8"))
        return _stale(path, data, at) or t.cast("Verdict", data)
    except FileNotFoundError:
        return unknown(
            "verdict-current",
            f"no {path}",
            "a verdict of gpufleet-gate.timer; as root, gpufleet-gate --fresh makes one",
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _unusable(path, str(error) or type(error).__name__)


def _stale(path: str, data: t.Any, at: Now) -> t.Optional[Verdict]:
    if data["schema"] != SCHEMA:
        return _unusable(path, f"its schema is {data['schema']!r}, this gate reads {SCHEMA}")
    if (
        data["state"] not in EXITS
        or data["ok"] is not (data["state"] == "ready")
        or not isinstance(data["findings"], list)
    ):
        return _unusable(path, f"its state is {data['state']!r} with ok {data['ok']!r}")
    if data["boot_id"] != at.boot_id or not at.boot_id:
        return _late(f"the verdict of {data['judged_at']} is of another boot")
    age, limit = _age(data, at), float(data["valid_for"])
    if age < -1:
        return _late(f"the verdict is of {data['judged_at']}, which is yet to come")
    if not age <= limit:
        return _late(f"the verdict of {data['judged_at']} is {age:.0f} s old and was good for {limit:.0f} s")
    return None


def _age(data: t.Mapping[str, t.Any], at: Now) -> float:
    """Seconds: by the clock that nobody sets, where the verdict has it."""
    if "uptime" in data:
        return at.uptime - float(data["uptime"])
    import calendar

    return at.wall - calendar.timegm(time.strptime(data["judged_at"], "%Y-%m-%dT%H:%M:%SZ"))


def _unusable(path: str, why: str) -> Verdict:
    return unknown(
        "verdict-current", f"{path} cannot be used: {why}", "a verdict; as root, gpufleet-gate --fresh makes one"
    )


def _late(why: str) -> Verdict:
    return unknown(
        "verdict-current", why, "a verdict of now: is gpufleet-gate.timer active? gpufleet-gate --fresh makes one"
    )
