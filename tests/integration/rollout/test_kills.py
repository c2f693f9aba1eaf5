# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller killed at named points and at random moments, then started again: it converges, and nobody is lost."""

from __future__ import annotations

import os
import random
from pathlib import Path

from ansible_collections.gpufleet.pytorch.tests.integration.rollout.fleet import Fleet

#: How many kills at a moment of chance. CI has time for one.
RANDOM = int(os.environ.get("GPUFLEET_ROLLOUT_KILLS", "1"))
#: Events that Ansible sees in a run of three hosts.
EVENTS = 70

#: Moment, host and task, in the order in which one rollout comes to them: canary, second batch, end.
POINTS = [
    "before n1 Begin the rollout, or go on with it",
    "after n1 Begin the rollout, or go on with it",
    "before n1 Mark the host before it is drained",
    "after n1 Mark the host before it is drained",
    "after n1 Take the host for this rollout",
    "before n1 Change the host",
    "after n1 Change the host",
    "after n1 Mark the host before it is resumed",
    "after n1 Give the host back",
    "after n1 Mark the host as done",
    "before n2 Change the host",
    "before n3 Mark the host as done",
    "before n1 Say who is where",
]


def test_one_rollout_killed_at_every_named_point(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 3, rollout_batches=[1, 2])
    for point in POINTS:
        killed = fleet.roll(kill_at=point)
        assert killed.code == -9, f"{point}: {killed.output}"
        fleet.consistent(f"killed {point}: {killed.output}")
    assert set(fleet.states().values()) == {"done"}
    again = fleet.roll()
    fleet.all_done(again)
    # Six starts came to the change of n1, two to that of n2 and n3, and what was done stayed done.
    assert fleet.changes("n1") <= 6 and fleet.changes("n2") <= 2 and fleet.changes("n3") <= 2, again.output


def test_rollouts_killed_at_random_moments(tmp_path: Path) -> None:
    """Killed again and again, each time at a moment of chance, until so many kills were had; then to the end."""
    dice = random.Random()
    kills, number = 0, 0
    while kills < RANDOM:
        number += 1
        (tmp_path / str(number)).mkdir()
        fleet = Fleet(tmp_path / str(number), 3, rollout_batches=[1, 2], pause=dice.choice([0, 1]))
        done = None
        while kills < RANDOM and done is None:
            moment = f"{dice.randint(1, EVENTS)} {dice.uniform(0, 0.5):.3f}"
            ended = fleet.roll(kill_at=moment)
            print(f"rollout {number}, moment {moment}: exit {ended.code}, {fleet.states()}")
            fleet.consistent(f"killed at {moment}: {ended.output}")
            done = ended if ended.code != -9 else None
            kills += done is None
        fleet.all_done(done or fleet.roll())
