# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What draining a node means under every scheduler: whose a drain is, and what still runs there."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

#: How the reasons begin of a rollout, and of the gate's health program (_gate/slurm.py).
ROLLOUT = "gpufleet: rollout"
_GATE = "gpufleet: gate: "
#: Seconds for one command of a scheduler: it gives up on a controller that is gone before that.
LIMIT = 30.0


class SchedulerError(Exception):
    """The scheduler did not answer, or refused; the text says what was asked and what it said."""


def of_rollout(reason: str) -> bool:
    """Whether a rollout gave this reason: a person's can begin alike."""
    return f"{reason} ".startswith(f"{ROLLOUT} ")


def ours(reason: str) -> bool:
    """Whether this collection gave it."""
    return of_rollout(reason) or reason.startswith(_GATE)


@dataclass
class Drain:
    """``changed``: something was done. ``busy``: what still runs on the node. ``held``: somebody else's drain."""

    changed: bool = False
    busy: t.List[str] = field(default_factory=list)
    held: str = ""


Run = t.Callable[[t.Sequence[str]], str]
