# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel log from where the last look ended: the ``kernel_log`` part of an Observation.

``/dev/kmsg`` numbers its records, so that lost ones are noticed: a network card that complains by the second pushes
an Xid out of the buffer. Then, and where the device cannot be read, the journal is asked, and dmesg last. What was seen
is remembered with the place, because an Xid counts until its driver is loaded again, its GPU is reset or somebody
acknowledges it, however often we look. Memory is one piece of the log; time has a limit, and the next look goes on.
"""

from __future__ import annotations

import json
import os
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _state
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import child
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.kernel_lines import Collector
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.kernel_sources import LIMIT, Place, journal, read
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

SCHEMA = 1
FILE = "kernel-log.json"
#: Bytes of a remembered state.
STATE_MOST = 4 << 20

#: Of a log that was not read.
UNKNOWN: t.Dict[str, t.Any] = {
    "source": "none",
    "error": "not read",
    "since": "",
    "complete": False,
    "lost": "",
    "events": [],
}


def probe(
    runner: Runner, boot_id: t.Optional[str], *, remember: bool = False, acknowledge: bool = False
) -> t.Dict[str, t.Any]:
    """The ``kernel_log`` part. ``remember`` writes what was seen and how far; ``acknowledge`` makes what is there now
    count no more. Raises OSError where that cannot be written."""
    file = state_file(runner)
    memory, forgot = _load(file, boot_id)
    place = Place(memory.get("seq"), int(memory.get("usec", -1)))
    known = list(memory.get("events", []))
    collector = Collector(known, str(memory.get("since", "")), memory.get("since_us"))
    lost = str(memory.get("lost", ""))
    deadline = time.monotonic() + LIMIT
    source, error, gap = read(runner, collector, place, deadline)
    if gap:
        # The journal may have what the buffer lost; what it does not have yet, the buffer still has.
        filled = Collector(known, str(memory.get("since", "")), memory.get("since_us"))
        there = Place(None, int(memory.get("usec", -1)))
        if journal(runner, filled, there, deadline) == "":
            _source, late, between = read(runner, filled, there, deadline)
            if not late and not between:
                source, gap, collector, place = "journal", "", filled, there
    lost = lost or gap
    if collector.since_us is not None and collector.since_us != memory.get("since_us"):
        # Lines that are missing from before the driver was loaded do not matter any more.
        lost = ""
    if acknowledge and source != "none":
        collector.forget("acknowledgement", place.usec if place.usec >= 0 else None)
        lost = ""
    if collector.dropped:
        lost = lost or f"{collector.dropped} events more than {len(collector.events)} different ones"
    if (remember or acknowledge) and source != "none":
        data: t.Dict[str, t.Any] = {
            "schema": SCHEMA,
            "boot_id": boot_id,
            "seq": place.seq,
            "usec": place.usec,
            "lost": lost,
        }
        data.update(since=collector.since, since_us=collector.since_us, events=collector.events)
        _state.write_atomic(file, json.dumps(data, sort_keys=True) + "\n", 0o600)
    return {
        "source": source,
        "error": error,
        "since": collector.since or ("boot" if source != "none" else ""),
        "complete": source != "none" and not lost and not error,
        "lost": lost or forgot,
        "events": collector.events,
    }


def state_file(runner: Runner) -> str:
    """Where the place is remembered: beside the lock of probes, in a folder that a boot empties as it does the log."""
    return os.path.join(child.folder(runner), FILE)


_NONE = type(None)
_NO_PLACE: t.Mapping[str, t.Any] = {"seq": None, "since_us": None, "since": "", "lost": ""}
_EVENT: t.Mapping[str, t.Any] = {
    **dict.fromkeys(("kind", "name", "what", "address", "text"), str),
    **dict.fromkeys(("code", "first_us", "last_us"), (int, _NONE)),
    "count": int,
}


def _must_be(value: t.Mapping[str, t.Any], types: t.Mapping[str, t.Any]) -> None:
    """Raises TypeError or KeyError where a field is not what we wrote."""
    for name, kind in types.items():
        if not isinstance(value[name], kind):
            raise TypeError(f"{name} is {value[name]!r}"[:80])


def _load(file: str, boot_id: t.Optional[str]) -> t.Tuple[t.Dict[str, t.Any], str]:
    """What was remembered of this boot, and why there is nothing where there was something."""
    try:
        # A pipe in its place is not waited for.
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            data = stream.read(STATE_MOST) or b""
    except OSError:
        return {}, ""
    try:
        memory = json.loads(data.decode("utf-8"))
        if memory["schema"] != SCHEMA:
            raise ValueError(f"schema {memory['schema']}")
        _must_be(memory, {"usec": int})
        _must_be({**_NO_PLACE, **memory}, {"seq": (int, _NONE), "since_us": (int, _NONE), "since": str, "lost": str})
        for event in memory["events"]:
            _must_be(event, _EVENT)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return {}, f"{file} could not be used ({type(error).__name__}: {error}): the log was read from its start"
    if not boot_id or memory.get("boot_id") != boot_id:
        return {}, ""
    return memory, ""
