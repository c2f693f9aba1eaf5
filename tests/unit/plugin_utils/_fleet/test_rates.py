# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices against those of other hosts and against a baseline: who is named, and who never is."""

from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import rates

H100 = "NVIDIA H100 80GB HBM3"
SIZE = {"dtype": "bfloat16", "m": 8192, "n": 8192, "k": 8192, "state": "ok"}


def proof(
    *values: float, kind: str = "cuda", name: str = H100, rounds: int = 2, ended: str = "done"
) -> dict[str, t.Any]:
    return {
        "devices": [
            {"kind": kind, "key": f"{kind}-{index}", "name": name, "ended": ended,
             "rates": [{**SIZE, "rounds": [value] * rounds, "tflops": value}]}
            for index, value in enumerate(values)
        ]
    }  # fmt: skip


def named(proofs: list[dict[str, t.Any]]) -> dict[str, list[tuple[str, str]]]:
    devices = [item for index, one in enumerate(proofs) for item in rates.devices_of(f"h{index}", one)[0]]
    return {
        host: [(item.subject.key, item.state) for item in found if item.state != "ok"]
        for host, found in rates.among_hosts(devices).items()
    }


@pytest.mark.parametrize(
    ("proofs", "expected"),
    [
        ([proof(780, 781), proof(779, 780), proof(782, 781)], {"h0": [], "h1": [], "h2": []}),
        # All of a host are slow alike, which it cannot see itself.
        (
            [proof(780, 781), proof(779, 780), proof(700, 701)],
            {"h0": [], "h1": [], "h2": [("cuda-0", "fail"), ("cuda-1", "fail")]},
        ),
        ([proof(780), proof(779), proof(725)], {"h0": [], "h1": [], "h2": []}),  # 7 % is not enough
        ([proof(780), proof(700)], {}),  # nobody knows which of two is off
        ([proof(780), proof(779), proof(700, name="NVIDIA H200")], {}),
        ([proof(780), proof(779), proof(700, ended="crash")], {}),
        ([proof(780, rounds=1), proof(779, rounds=1), proof(600, rounds=1)], {"h0": [], "h1": [], "h2": []}),
        # Many that differ: 8 % and more, but within what they spread.
        ([proof(value) for value in (700, 740, 780, 820, 860)], {f"h{index}": [] for index in range(5)}),
        (
            [proof(1.0, 1.0, kind="cpu"), proof(1.01, 0.99, kind="cpu"), proof(0.5, 0.5, kind="cpu")],
            {"h0": [], "h1": [], "h2": [("", "warn")]},
        ),
        ([{"devices": []}, {}, proof()], {}),
    ],
)
def test_who_is_slow_among_hosts(proofs, expected):
    assert named(proofs) == expected


def test_a_slow_cpu_never_blocks():
    found = rates.among_hosts(
        [
            item
            for index, value in enumerate((1, 1, 0.5))
            for item in rates.devices_of(f"h{index}", proof(value, kind="cpu"))[0]
        ]
    )
    assert {item.policy for items in found.values() for item in items} == {"report"}


def test_a_healthy_fleet_raises_no_alarm():
    """1,000 fleets of 8 hosts with 8 GPUs, spread 5 % over GPUs and 0.5 % over rounds."""
    source, alarms = random.Random(7), 0
    for _trial in range(1000):
        proofs = []
        for _host in range(8):
            one = proof(*(780 * source.uniform(0.95, 1.0) for _gpu in range(8)))
            for device in one["devices"]:
                row = device["rates"][0]
                row["rounds"] = [value * source.gauss(1, 0.005) for value in row["rounds"]]
            proofs.append(one)
        alarms += any(named(proofs).values())
    assert alarms == 0


def test_a_host_slow_by_a_tenth_is_named_in_100_of_100():
    source, found = random.Random(8), 0
    for _trial in range(100):
        proofs = [proof(*(780 * source.uniform(0.98, 1.0) for _gpu in range(8))) for _host in range(7)]
        proofs.append(proof(*(780 * 0.9 * source.uniform(0.98, 1.0) for _gpu in range(8))))
        found += [host for host, items in named(proofs).items() if items] == ["h7"]
    assert found == 100


def many(*proofs: dict[str, t.Any]) -> list[rates.Device]:
    return [item for index, one in enumerate(proofs) for item in rates.devices_of(f"h{index}", one)[0]]


@pytest.mark.parametrize(
    ("values", "name", "states"),
    [
        ((780, 779), H100, ["ok", "ok"]),
        ((700, 779), H100, ["fail", "ok"]),
        ((730,), H100, ["ok"]),
        ((900,), H100, ["ok"]),
        ((100,), "NVIDIA L4", ["not_applicable"]),
    ],
)
def test_against_a_baseline(values, name, states):
    baseline = rates.learn(many(proof(780, 781, 779, 782)))
    found = rates.against_baseline(many(proof(*values, name=name)), baseline)
    assert [item.state for item in found["h0"]] == states


def test_too_few_teach_nothing():
    with pytest.raises(ValueError, match=r"3 healthy devices of a model are needed, found 2 of NVIDIA H100"):
        rates.learn(many(proof(780, 781)))


@pytest.mark.parametrize(
    "damaged",
    [
        {}, [], None, "x", 7,
        {"schema": 2, "models": {}}, {"schema": True, "models": {}}, {"schema": [1], "models": {}},
        {"schema": 1, "models": []}, {"schema": 1, "models": None}, {"schema": 1, "models": {"a": {"b": 1}}},
        {"schema": 1, "models": {"a": 1}}, {"schema": 1, "models": {"a": {"b": {"middle": 1.0}}}},
    ],
)  # fmt: skip
def test_what_is_no_baseline_is_refused(damaged):
    with pytest.raises(ValueError, match=r"baseline|schema"):
        rates.against_baseline(many(proof(780)), damaged)


@pytest.mark.parametrize(
    "changed",
    [
        {"middle": float("nan")},
        {"middle": float("inf")},
        {"middle": 0},
        {"middle": -780},
        {"middle": "780"},
        {"middle": 10**400},
        {"middle": True},
        {"middle": [780]},
        {"deviation": float("nan")},
        {"deviation": float("inf")},
        {"deviation": -1},
        {"deviation": None},
        {"deviation": False},
    ],
)
def test_an_edited_rate_is_refused(changed):
    baseline = rates.learn(many(proof(780, 781, 779, 782)))
    (row,) = baseline["models"][H100].values()
    row.update(changed)
    with pytest.raises(ValueError, match=f"no baseline of rates: models, '{H100}', 'bfloat16 8192x8192x8192'"):
        rates.against_baseline(many(proof(100)), baseline)


NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize("rounds", [[NAN, 780], [INFINITY, 780], [-1, 780], [0, 780], [True, True], ["780"], [None],
                                    "780", 780j, {"a": 1}, 10**400])  # fmt: skip
def test_a_round_that_is_no_rate_is_named_and_never_ok(rounds):
    damaged = proof(780, 781)
    damaged["devices"][1]["rates"][0]["rounds"] = rounds
    devices, (finding,) = rates.devices_of("h0", damaged)
    assert [item.subject.key for item in devices] == ["cuda-0"]
    assert (finding.state, finding.policy, finding.evidence["fault"]) == ("unknown", "block", "damaged")
    assert "device cuda-1: a round of" in finding.found


@pytest.mark.parametrize(
    "devices",
    ["x", 7, {"a": 1}, [None], ["x"], [[]], [{}], [{"ended": "done"}], [{"ended": "done", "rates": 7}],
     [{"ended": "done", "rates": ["x"]}], [{"ended": "done", "rates": [{"rounds": [1.0]}], "kind": "cpu"}],
     [{"ended": "done", "rates": [{**SIZE, "rounds": [1.0]}]}],
     [{"ended": "done", "rates": [{**SIZE, "rounds": [1.0]}], "kind": "cuda"}]],
)  # fmt: skip
def test_a_proof_damaged_otherwise_is_named_and_never_ok(devices):
    measured, (finding,) = rates.devices_of("h0", {"devices": devices})
    assert measured == [] and finding.state == "unknown" and "the proof is damaged: device" in finding.found


CPU, CUDA = {"accelerator": "cpu"}, {"accelerator": "cuda"}


def gpus(*names, **more):
    return {"gpus": [{"name": name, **more} for name in names]}


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([], {}),
        ([(CPU, {}), (CPU, {"gpus": []})], {"CPU": 2}),
        ([(CUDA, gpus(H100, H100)), (CUDA, gpus(H100, "NVIDIA L4"))], {H100: 3, "NVIDIA L4": 1}),
        ([(CUDA, {"gpus": []})], None),  # a driver that is still to come
        ([(CUDA, gpus(H100, mig={"current": True}))], None),  # instances that only CUDA counts
        ([(CUDA, gpus(H100, None))], None),  # one that is lost
    ],
)
def test_how_many_devices_a_proof_would_measure(hosts, expected):
    assert rates.foreseen(hosts) == expected


@pytest.mark.parametrize(
    ("counts", "says"),
    [({}, "found none"), ({"CPU": 2}, "found 2 of CPU"), ({H100: 2, "L4": 2}, f"found 2 of L4, 2 of {H100}"),
     ({"CPU": 3}, None), ({H100: 3, "L4": 1}, None)],
)  # fmt: skip
def test_too_few_are_refused_before_the_proof(counts, says):
    if says is None:
        rates.refuse_too_few(counts)
        return
    with pytest.raises(ValueError, match=f"3 healthy devices of a model are needed, {says}"):
        rates.refuse_too_few(counts)
