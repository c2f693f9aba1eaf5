# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of one device's worker, as the judges read it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Subject

Event = t.Mapping[str, t.Any]


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
