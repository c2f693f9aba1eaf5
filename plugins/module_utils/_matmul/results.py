# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of one device's worker, as the judges read it."""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass, field

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Subject

Event = t.Mapping[str, t.Any]


_PRODUCT = ("dtype", "m", "n", "k", "state")
#: What the judges read of an event, whatever it says.
_FIELDS: t.Mapping[str, t.Sequence[str]] = {
    "exact": _PRODUCT,
    "rate": _PRODUCT,
    "copy": ("way", "gbs"),
    "agreement": ("dtype", "m", "n", "k", "rounds", "differing", "digest"),
    "pattern": ("mib", "wrong"),
    "compile": ("state",),
    "libraries": ("libraries",),
    "error": ("type", "message"),
    "allreduce": ("bytes", "right", "busbw_gbs", "ranks"),
    "peer": ("source", "target", "gbs", "right"),
    "training": ("name", "state"),
    "rank_error": ("rank", "kind", "type", "message"),
}
#: Beside these, by state.
_BY_STATE = {("rate", "ok"): ("tflops",), ("compile", "error"): ("type", "message")}
#: Numbers from 0 on: neither NaN nor infinity may pass for a rate.
_NUMBERS = ("m", "n", "k", "tflops", "gbs", "rounds", "differing", "mib", "wrong", "bytes", "busbw_gbs", "ranks")


def damage(event: Event) -> str:
    """What is wrong with the form of an event, "" where nothing is."""
    name, state = str(event["event"]), event.get("state")
    fields = [*_FIELDS.get(name, ()), *(_BY_STATE.get((name, str(state)), ()))]
    if state == "unsupported":
        fields.append("reason")
    for field_name in fields:
        value = event.get(field_name)
        if field_name not in event or (field_name in _NUMBERS and not _number(value)):
            return f"event {name} with {field_name} {value!r:.40}"
    return ""


def _number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf


def sound(ended: str, events: t.Sequence[Event]) -> t.Tuple[str, t.List[Event]]:
    """How a worker ended and its events, without those of another form: with one of them it did not end well."""
    good = [event for event in events if not damage(event)]
    if len(good) == len(events):
        return ended, good
    first = next(text for text in map(damage, events) if text)
    said: Event = {"event": "error", "kind": "damaged", "type": "damaged answer", "message": first}
    return ("error" if ended in ("done", "error") else ended), [*good, said]


@dataclass(frozen=True)
class Device:
    """One device and what came of its worker (as supervise.Outcome has it)."""

    kind: str
    key: str  # UUID of a GPU, number of a CPU process
    name: str
    ended: str
    events: t.Sequence[Event] = field(default_factory=tuple)
    code: t.Optional[int] = None
    stderr: str = ""
    problem: str = ""
    seconds: float = 0.0
    capability: str = ""
    multiprocessors: int = 0
    pci_address: str = ""

    @property
    def subject(self) -> Subject:
        """A GPU by its UUID; CPU processes are parts of the host."""
        return Subject("gpu", self.key) if self.kind == "cuda" else Subject("host", f"cpu{self.key}")

    def named(self, name: str) -> t.List[Event]:
        """Its events of that name."""
        return [event for event in self.events if event["event"] == name]


def product(event: Event) -> str:
    """The product of an event for a person: ``bfloat16 to float32 4096x4096x2048``."""
    into = f" to {event['output']}" if event.get("output") not in (None, event["dtype"]) else ""
    return f"{event['dtype']}{into} {event['m']}x{event['n']}x{event['k']}"
