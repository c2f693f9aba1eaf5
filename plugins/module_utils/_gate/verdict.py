# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's verdict, ``/run/gpufleet/verdict.json``: its form, its age, and whom it is believed.

Read before every job, so nothing is imported that takes time to import.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
import typing as t

FILE = "verdict.json"
SCHEMA = 1
#: Bytes, far above the verdict of the largest host.
READ_LIMIT = 4 << 20
#: Exit statuses of gpufleet-gate by state.
EXITS = {"ready": 0, "not_ready": 1, "unknown": 2}
#: Seconds for which a verdict may be good: what was said a month ago is not known of today.
LONGEST = 30 * 86400
#: What a Finding may say, as _finding has it, which takes long to import.
STATES = ("ok", "warn", "fail", "unknown", "not_applicable")
POLICIES = ("block", "report")
_TEXTS = ("id", "check", "found", "expected", "action", "reason")
_STAMP = re.compile(
    r"([12]\d{3})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):([0-5]\d):([0-5]\d)Z\Z", re.ASCII
)
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


def standing(made: Verdict, age: float) -> Verdict:
    """A verdict that is given again, with a Finding that says so."""
    said = unknown("verdict-standing", f"the look of {made['judged_at']}, {max(age, 0):.0f} s ago", "", "none")
    return {**made, "findings": [*made["findings"], {**said["findings"][0], "state": "ok", "policy": "report"}]}


def read(path: str, at: Now, owner: int = 0) -> Verdict:
    """The verdict in the file, or an ``unknown`` one that says why it does not hold. Only ``owner``'s is believed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != owner or found.st_mode & 0o022:
                return _unusable(path, "it is not a file that root alone writes")
            others = shared(os.path.dirname(path), owner)
            if others:
                return _unusable(path, others)
            data = json.loads(stream.read(READ_LIMIT).decode("utf-8"))
        return _stale(path, data, at) or t.cast("Verdict", data)
    except FileNotFoundError:
        return unknown(
            "verdict-current",
            f"no {path}",
            "a verdict of gpufleet-gate.timer; as root, gpufleet-gate --fresh makes one",
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        return _unusable(path, f"{type(error).__name__}: {error}")


def shared(folder: str, owner: int) -> str:
    """Who but root and ``owner`` can put another file in place of one in ``folder``, "" where nobody can.

    What a file system is mounted on is not replaced from above, so the look goes no further.
    """
    place = folder = os.path.realpath(folder)
    while True:
        found = os.stat(place)
        # A sticky folder lets nobody replace what is another's, but add what is not there yet.
        sticky = place != folder and found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, owner) or (found.st_mode & 0o022 and not sticky):
            mode = stat.S_IMODE(found.st_mode)
            return f"{place} can be changed by others than root (owner {found.st_uid}, mode {mode:o})"
        above = os.path.dirname(place)
        if above == place or os.stat(above).st_dev != found.st_dev:
            return ""
        place = above


def _stale(path: str, data: t.Any, at: Now) -> t.Optional[Verdict]:
    if data["schema"] != SCHEMA:
        return _unusable(path, f"its schema is {data['schema']!r}, this gate reads {SCHEMA}")
    if data["state"] not in EXITS or data["ok"] is not (data["state"] == "ready"):
        return _unusable(path, f"its state is {data['state']!r} with ok {data['ok']!r}")
    if not isinstance(data["findings"], list) or not all(_is_finding(item) for item in data["findings"]):
        return _unusable(path, "it has a finding that is not of our form")
    if data["ok"] and not _is_ready(data["findings"]):
        return _unusable(path, "it says ready beside findings that are not")
    if data["boot_id"] != at.boot_id or not at.boot_id:
        return _late(f"the verdict of {data['judged_at']} is of another boot")
    judged, limit = seconds_of(data["judged_at"]), data["valid_for"]
    # By the clock that nobody sets, where the verdict has it.
    age = at.uptime - number(data["uptime"]) if "uptime" in data else at.wall - judged
    if not 0 <= number(limit) <= LONGEST:
        return _unusable(path, f"it is good for {limit!r} s; {LONGEST} is the most")
    if age < -1:
        return _late(f"the verdict is of {data['judged_at']}, which is yet to come")
    if not age <= limit:
        return _late(f"the verdict of {data['judged_at']} is {age:.0f} s old and was good for {limit:.0f} s")
    return None


def _is_finding(item: t.Any) -> bool:
    """Whether everything that is read of a Finding is there, each of its kind."""
    return (
        isinstance(item, dict)
        and all(isinstance(item.get(name), str) for name in _TEXTS)
        and item.get("state") in STATES
        and item.get("policy") in POLICIES
        and isinstance(item.get("subject"), dict)
        and all(isinstance(item["subject"].get(name), str) for name in ("kind", "key"))
    )


def _is_ready(findings: t.Sequence[t.Mapping[str, t.Any]]) -> bool:
    """As _finding.fold says."""
    blocking = {item["state"] for item in findings if item["policy"] == "block"}
    return bool(blocking & {"ok", "warn"}) and not blocking & {"fail", "unknown"}


def number(value: t.Any) -> float:
    """``value``, where it is a number; ``true`` and a text are none. Raises TypeError."""
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is no number")
    return t.cast(float, value)


def seconds_of(stamp: str) -> float:
    """RFC 3339 in UTC as seconds since 1970. Raises ValueError."""
    found = _STAMP.match(stamp)
    if found is None:
        raise ValueError(f"{stamp!r} is no time")
    import calendar

    return float(calendar.timegm((*(int(part) for part in found.groups()), 0, 0, 0)))


def _unusable(path: str, why: str) -> Verdict:
    return unknown(
        "verdict-current", f"{path} cannot be used: {why}", "a verdict; as root, gpufleet-gate --fresh makes one"
    )


def _late(why: str) -> Verdict:
    return unknown(
        "verdict-current", why, "a verdict of now: is gpufleet-gate.timer active? gpufleet-gate --fresh makes one"
    )
