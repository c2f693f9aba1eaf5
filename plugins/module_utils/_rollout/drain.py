# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What draining a node means under every scheduler: whose a drain is, and what still runs there."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

#: Every drain of ours says so; the health checks of this collection begin theirs with the first word alone.
OURS = "gpufleet:"
ROLLOUT = "gpufleet: rollout"
#: Seconds for one command of a scheduler: it gives up on a controller that is gone before that.
LIMIT = 30.0


class SchedulerError(Exception):
    """The scheduler did not answer, or refused; the text says what was asked and what it said."""


@dataclass
class Drain:
    """``changed``: something was done. ``busy``: what still runs on the node. ``held``: somebody else's drain."""

    changed: bool = False
    busy: t.List[str] = field(default_factory=list)
    held: str = ""


Run = t.Callable[[t.Sequence[str]], str]
