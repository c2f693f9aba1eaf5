# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout does next, as tables; and a thousand of them with failures and kills at random, within bounds."""

from __future__ import annotations

import random

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import rollout, rollout_report

NAMES = [f"n{number}" for number in range(1, 11)]


def records(**states):
    """Ten hosts that wait, except those named."""
    return {name: {"state": states.get(name, "waiting")} for name in NAMES}


@pytest.mark.parametrize(
    ("batches", "failures", "out", "words"),
    [
        ([], 0, 0, "rollout_batches is empty"),
        ([0], 0, 0, "rollout_batches has 0"),
        (["ten"], 0, 0, "'ten'"),
        (["-1"], 0, 0, "'-1'"),
        ([True], 0, 0, "True"),
        (["101%"], 0, 0, "more than all hosts"),
        ([1.5], 0, 0, "1.5"),
        (["200%"], 0, 0, "more than all hosts"),
        (["0%"], 0, 0, "'0%'"),
        ([float("nan")], 0, 0, "has nan"),
        ([None], 0, 0, "has None"),
        ([[1]], 0, 0, "a number of hosts"),
        (["10 %"], 0, 0, "'10 %'"),
        (["\u0663"], 0, 0, "a number of hosts"),
        (["1" * 5000], 0, 0, "a number of hosts"),
        ([1], 0, "0%", "rollout_max_out has '0%'"),
        ([1], 0, None, "rollout_max_out has None"),
        ([1], 0, -1, "rollout_max_out has -1"),
        ([1], -1, 0, "rollout_max_failures is -1"),
        ([1], 0, "half", "rollout_max_out has 'half'"),
    ],
)
def test_limits_that_cannot_be_meant(batches, failures, out, words):
    with pytest.raises(ValueError, match=words):
        rollout.settings(batches, failures, out)


@pytest.mark.parametrize(
    ("size", "total", "expected"),
    [(3, 10, 3), ("10%", 10, 1), ("10%", 9, 1), ("25%", 10, 2), ("100%", 10, 10), ("1%", 10, 1), ("50%", 1001, 500)],
)
def test_a_size_in_hosts(size, total, expected):
    assert rollout.count(size, total) == expected


@pytest.mark.parametrize(
    ("states", "batches", "failures", "out", "hosts", "sizes"),
    [
        # A canary, then wider, the last size again and again.
        ({}, [1, "20%", "30%"], 0, 0, NAMES, [1, 2, 3, 3, 1]),
        ({}, [20], 0, 0, NAMES, [10]),
        # Never more out than allowed, with room for each failure that is allowed.
        ({}, [1, 9], 0, 4, NAMES, [1, 4, 4, 1]),
        ({}, [1, 9], 1, 4, NAMES, [1, 3, 3, 3]),
        ({}, [1, 9], 0, "30%", NAMES, [1, 3, 3, 3]),
        # Those that are out come first, together; then on where the last run ended, within its batch.
        ({"n1": "done", "n2": "done", "n3": "changing"}, [1, 4], 0, 0, ["n3", *NAMES[3:]], [1, 3, 4]),
        ({"n1": "done", "n2": "failed"}, [1, 4], 1, 0, ["n2", *NAMES[2:]], [1, 4, 4]),
        # A canary that failed is tried again before another.
        ({"n1": "failed"}, [1, 9], 0, 0, NAMES, [1, 1, 8]),
        (dict.fromkeys(NAMES, "done"), [1], 0, 0, [], []),
        # A host that cannot be changed is in no batch.
        ({"n1": "held"}, [1, 9], 0, 0, NAMES[1:], [1, 8]),
    ],
)
def test_the_schedule(states, batches, failures, out, hosts, sizes):
    limits = rollout.settings(batches, failures, out)
    blocked = [name for name, state in states.items() if state == "held"]
    assert rollout.schedule(records(**states), NAMES, blocked, limits) == rollout.Schedule(hosts, sizes)


@pytest.mark.parametrize(
    ("states", "forget", "expected"),
    [
        ({"n1": "failed", "old": "done", "older": "waiting", "other": "held"}, [], []),
        ({"old": "failed", "older": "changing"}, [], ["old", "older"]),
        ({"old": "failed", "older": "changing"}, ["older", "x"], ["old"]),
    ],
)
def test_who_is_out_and_in_no_inventory_is_not_lost(states, forget, expected):
    old = {name: {"state": state} for name, state in states.items()}
    assert rollout.gone(old, NAMES, forget) == expected


def test_no_room_is_refused():
    with pytest.raises(ValueError, match="lets 1 of 10 hosts be out, and 1 may fail"):
        rollout.schedule(records(), NAMES, (), rollout.settings([1], 1, 1))


@pytest.mark.parametrize(
    ("states", "batch", "most", "stops"),
    [
        ({}, ["n1"], 0, ""),
        ({"n1": "failed"}, ["n2"], 0, "1 host failed and 0 may (n1)"),
        # A failed canary has proved nothing, however many may fail.
        ({"n1": "failed"}, ["n2"], 3, "no host was proved"),
        ({"n1": "failed", "n2": "done"}, ["n3"], 1, ""),
        ({"n1": "failed", "n2": "done", "n3": "changing"}, ["n4"], 1, "2 hosts failed"),
        # The batch that is tried again.
        ({"n1": "failed", "n2": "changing"}, ["n1", "n2"], 0, ""),
        ({"n1": "failed", "n2": "changing"}, ["n2"], 0, "1 host failed"),
    ],
)
def test_when_it_stops(states, batch, most, stops):
    reason = rollout.stop(records(**states), batch, most)
    assert reason.startswith(stops) and bool(reason) == bool(stops)


@pytest.mark.parametrize(
    ("old", "blocked", "reset", "expected"),
    [
        (None, {}, False, {"state": "waiting"}),
        (None, {"n1": "gone"}, False, {"state": "held", "note": "gone"}),
        ({"state": "held", "note": "gone"}, {}, False, {"state": "waiting"}),
        ({"state": "done", "wish": "w"}, {}, False, {"state": "done"}),
        ({"state": "done", "wish": "w", "note": "left"}, {}, False, {"state": "done", "note": "left"}),
        ({"state": "done", "wish": "old"}, {}, False, {"state": "waiting"}),
        ({"state": "done", "wish": "w"}, {}, True, {"state": "waiting"}),
        # Who is out is never forgotten.
        ({"state": "failed", "step": "proving"}, {}, True, {"state": "failed", "step": "proving"}),
        ({"state": "changing", "step": "draining"}, {}, True, {"state": "changing", "step": "draining"}),
        ({"state": "changing", "step": "changing"}, {"n1": "gone"}, False,
         {"state": "failed", "step": "changing", "note": "gone"}),
    ],
)  # fmt: skip
def test_what_the_last_run_left(old, blocked, reset, expected):
    merged = rollout.merge({"n1": old} if old else {}, {"n1": "w"}, blocked, reset=reset)
    assert merged == {"n1": {**expected, "wish": "w"}}


def test_a_host_outside_this_run_keeps_its_state():
    assert rollout.merge({"n9": {"state": "failed"}}, {"n1": "w"}, {}, reset=True)["n9"] == {"state": "failed"}


def test_no_random_rollout_has_more_hosts_out_than_allowed():
    for seed in range(1000):
        assert _ends_within_its_bounds(random.Random(seed)), seed


def _ends_within_its_bounds(dice):
    """Failures, lost hosts and kills at random, starts until all is done: the bound holds at every moment."""
    names = [f"h{number}" for number in range(dice.randint(1, 40))]
    most = dice.randint(1, len(names))
    failures = dice.randint(0, most - 1)
    limits = rollout.settings([1, dice.choice([2, "10%", "50%"]), "100%"], failures, most)
    state = {}
    for start in range(200):
        odds = 0.3 / (start + 1)
        state = rollout.merge(state, dict.fromkeys(names, "w"), {}, reset=False)
        planned = rollout.schedule(state, names, (), limits)
        for batch in planned.batches():
            for name in rollout.lost(state, batch, planned.hosts):
                state[name]["state"] = "failed"
            if rollout.stop(state, batch, failures):
                break
            for name in batch:
                state[name]["state"] = "changing"
            if sum(record["state"] in rollout.OUT for record in state.values()) > most:
                return False
            if dice.random() < odds:  # killed, anywhere in the batch
                for name in batch[: dice.randint(0, len(batch))]:
                    state[name]["state"] = "done"
                break
            for name in batch:
                lucky = dice.random()
                state[name]["state"] = "done" if lucky > odds else "failed" if lucky > odds / 2 else "changing"
        if all(record["state"] == "done" for record in state.values()):
            return True
    return False


@pytest.mark.parametrize(
    ("proved", "result", "action"),
    [
        ({"driver": {"action": "keep", "packages": ["a=1"]}}, {"changed": True}, "downgrade"),
        ({"driver": {"action": "keep", "packages": ["a=1"]}}, {"changed": False}, "keep"),
        ({"driver": {"action": "keep", "packages": []}}, {"changed": True}, "keep"),
        ({"driver": {"action": "external", "packages": ["a=1"]}}, {"changed": True}, "external"),
        ({"driver": {"action": "install", "packages": ["a=1"]}}, {"changed": True}, "install"),
        ({"accelerator": "cpu"}, {}, None),
        ({}, {}, None),
    ],
)
def test_the_plan_to_go_back_to(proved, result, action):
    assert (rollout.restored(proved, result).get("driver") or {}).get("action") == action


@pytest.mark.parametrize(
    ("record", "state", "says"),
    [
        ({"state": "waiting"}, "unknown", "waits for its batch"),
        ({"state": "held", "note": "no answer"}, "unknown", "is left alone: no answer"),
        ({"state": "changing", "step": "draining"}, "unknown", "is out: draining"),
        ({"state": "failed", "step": "proving", "note": "wrong"}, "fail", "failed at proving, is out: wrong"),
        ({"state": "done", "note": ""}, "ok", "done"),
        ({"state": "done", "note": "not resumed"}, "warn", "done: not resumed"),
    ],
)
def test_a_host_in_the_verdict(record, state, says):
    (finding,) = rollout_report.findings(record)
    assert (finding.state, finding.found) == (state, says)


def test_the_schedule_in_words():
    state = records(n1="done", n2="failed", n9="held")
    state["n9"]["note"] = "it does not answer"
    planned = rollout.schedule(state, NAMES, ["n9"], rollout.settings([1, 4], 1, 0))
    assert rollout_report.lines(planned, state) == [
        "rollout: 8 of 10 hosts to change, 1 done",
        "  batch 1 (again): 1 host: n2",
        "  batch 2: 4 hosts: n3, n4, n5, n6",
        "  batch 3: 3 hosts: n7, n8, n10",
        "  n9: is left alone: it does not answer",
    ]
