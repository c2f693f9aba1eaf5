# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import cooling, supplies
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import reading as form

GPUS = supplies.Load(5600.0, 400.0, 1800.0)
UNKNOWN_BASE = supplies.Load(5600.0, 400.0, None)
NO_INPUT = {"input_lost": True, "text": "Presence detected, Power Supply AC lost"}
FAILED = {"failed": True, "text": "Presence detected, Failure detected"}
MUTE = {"input_lost": None}


def bmc(*changed: t.Mapping[str, t.Any], count: int = 6, capacity: t.Optional[float] = 3000.0, **more: t.Any) -> t.Any:
    """A reading of so many supplies, of which the first ones are changed."""
    made = form.reading("ipmi", "in-band")
    good = {"present": True, "input_lost": False, "failed": False, "predicted": False, "capacity_w": capacity}
    for index in range(count):
        change = changed[index] if index < len(changed) else {}
        made["supplies"].append(form.supply(f"PSU{index + 1}", **{**good, **change}))
    made.update(observed_at="2026-12-01T05:30:00Z", events=[])
    made.update(more)
    return made


def states(reading: t.Any, load: supplies.Load = GPUS, **policy: t.Any) -> t.Dict[str, t.List[str]]:
    found: t.Dict[str, t.List[str]] = {}
    for finding in supplies.check(reading, load, supplies.Policy(**policy)):
        found.setdefault(finding.check, []).append(finding.state)
    return found


# What is at work, the load, the policy; what is said of the capacity and whether the host may work.
CAPACITY: t.Dict[str, t.Tuple[t.Any, supplies.Load, t.Dict[str, t.Any], str, str]] = {
    "all": (bmc(), GPUS, {}, "ok", "ready"),
    "all, two feeds": (bmc(), GPUS, {"redundancy": "2n"}, "ok", "ready"),
    "one without input": (bmc(NO_INPUT), GPUS, {}, "ok", "ready"),
    "one without input, two feeds": (bmc(NO_INPUT), GPUS, {"redundancy": "2n"}, "warn", "ready"),
    "one feed lost": (bmc(NO_INPUT, NO_INPUT, NO_INPUT), GPUS, {}, "warn", "ready"),
    "one feed lost, n": (bmc(NO_INPUT, NO_INPUT, NO_INPUT), GPUS, {"redundancy": "n"}, "ok", "ready"),
    "four lost": (bmc(NO_INPUT, NO_INPUT, NO_INPUT, FAILED), GPUS, {"redundancy": "n"}, "fail", "not_ready"),
    "none at work": (bmc(*[NO_INPUT] * 6), GPUS, {}, "fail", "ready"),
    "an empty bay is no supply that is lost": (bmc({"present": False, "input_lost": None}), GPUS, {}, "ok", "ready"),
    "small at a low line": (bmc(capacity=1400.0), GPUS, {}, "warn", "ready"),
    "too small": (bmc(capacity=1200.0), GPUS, {}, "fail", "not_ready"),
    "what they give is not told": (bmc(capacity=None), GPUS, {}, "unknown", "ready"),
    "what they give is configured": (bmc(capacity=None), GPUS, {"supply_w": 3000.0}, "ok", "ready"),
    "the site's word goes before the BMC's": (bmc(), GPUS, {"supply_w": 1200.0}, "fail", "not_ready"),
    "input is not told": (bmc(MUTE), GPUS, {}, "unknown", "ready"),
    "too small whatever is not told": (bmc(MUTE, capacity=1000.0), GPUS, {}, "fail", "not_ready"),
    "no base load": (bmc(), UNKNOWN_BASE, {}, "unknown", "ready"),
    "measured at rest": (bmc(consumed_w=1500.0), UNKNOWN_BASE, {}, "unknown", "ready"),
    "measured at rest, and even so too much": (bmc(consumed_w=1500.0, count=2), UNKNOWN_BASE, {}, "fail", "not_ready"),
    "measured at work": (bmc(consumed_w=7000.0), supplies.Load(5600.0, 5200.0), {}, "ok", "ready"),
    "measured at work, less than the GPUs draw": (
        bmc(consumed_w=700.0),
        supplies.Load(5600.0, 5200.0),
        {},
        "unknown",
        "ready",
    ),
    "measured at work before": (bmc(), supplies.Load(5600.0, 400.0, None, 1800.0), {}, "ok", "ready"),
    "measured at work before, and more now": (
        bmc(consumed_w=20000.0),
        supplies.Load(5600.0, 400.0, None, 1800.0),
        {},
        "fail",
        "not_ready",
    ),
    "a GPU's limit is unknown": (bmc(), supplies.Load(None, None, 1800.0), {}, "unknown", "ready"),
    "no GPUs": (bmc(count=2, capacity=800.0), supplies.Load(0.0, 0.0, 500.0), {}, "ok", "ready"),
    "a shelf": (bmc(capacity=5500.0), GPUS, {"redundancy": "shelf", "shelf_hosts": 3}, "ok", "ready"),
    "a shelf that is full": (bmc(capacity=5500.0), GPUS, {"redundancy": "shelf", "shelf_hosts": 4}, "warn", "ready"),
    "a shelf for too many": (
        bmc(capacity=5500.0),
        GPUS,
        {"redundancy": "shelf", "shelf_hosts": 5},
        "fail",
        "not_ready",
    ),
    "a shelf for nobody knows": (bmc(capacity=5500.0), GPUS, {"redundancy": "shelf"}, "unknown", "ready"),
}


@pytest.mark.parametrize("name", CAPACITY)
def test_what_is_left_carries_the_load(name: str) -> None:
    reading, load, policy, state, folded = CAPACITY[name]
    assert states(reading, load, **policy)["psu-capacity"] == [state]
    assert fold(supplies.check(reading, load, supplies.Policy(**policy))) == folded


LOST, UNTOLD = ({"name": "PS", "state": state, "text": "said"} for state in ("lost", None))
SUPPLIES: t.Dict[str, t.Tuple[t.Any, t.Dict[str, t.Any], t.Dict[str, t.List[str]]]] = {
    "healthy": (bmc(), {}, {"psu-ac-lost": ["ok"], "psu-failed": ["ok"]}),
    "two without input": (bmc(NO_INPUT, NO_INPUT), {}, {"psu-ac-lost": ["warn", "warn"], "psu-failed": ["ok"]}),
    "failed": (bmc(FAILED), {}, {"psu-ac-lost": ["ok"], "psu-failed": ["warn"]}),
    "about to fail": (bmc({"predicted": True}), {}, {"psu-failed": ["warn"]}),
    "one is silent": (bmc(NO_INPUT, MUTE), {}, {"psu-ac-lost": ["warn", "unknown"]}),
    "health is not told": (bmc({"failed": None}), {}, {"psu-failed": ["unknown"]}),
    "one fewer than there should be": (bmc(count=5), {"expected": 6}, {"psu-count": ["warn"]}),
    "as many as there should be": (bmc(), {"expected": 6}, {"psu-count": ["ok"]}),
    "redundancy lost": (bmc(redundancy=[LOST]), {}, {"psu-redundancy": ["warn"]}),
    "redundancy lost that nobody wants": (
        bmc(redundancy=[LOST]),
        {"redundancy": "n"},
        {"psu-redundancy": ["ok"]},
    ),
    "redundancy full": (bmc(redundancy=[{"name": "PS", "state": "full", "text": ""}]), {}, {"psu-redundancy": ["ok"]}),
    "redundancy not told": (bmc(redundancy=[UNTOLD]), {}, {"psu-redundancy": ["unknown"]}),
    "no supply": (bmc(count=0), {}, {"psu-input": ["not_applicable"]}),
    "empty bays alone": (bmc({"present": False}, count=1), {}, {"psu-input": ["not_applicable"], "psu-capacity": None}),
    "empty bays alone where supplies should be": (
        bmc({"present": False}, count=1),
        {"expected": 1},
        {"psu-input": ["not_applicable"], "psu-count": ["warn"]},
    ),
    "supplies cannot be read": (bmc(count=0, errors={"/x/PowerSubsystem": "503"}), {}, {"psu-input": ["unknown"]}),
    "the log takes too long": (bmc(events=None, errors={"event log": "time"}), {}, {"psu-events": ["unknown"]}),
}  # fmt: skip


@pytest.mark.parametrize("name", SUPPLIES)
def test_supplies(name: str) -> None:
    reading, policy, expected = SUPPLIES[name]
    found = states(reading, **policy)
    assert {check: found.get(check) for check in expected} == expected


def event(at: str, event: str = "Power Supply AC lost", way: str = "asserted") -> t.Dict[str, str]:
    return {"at": at, "sensor": "PSU2 Status", "event": event, "way": way}


@pytest.mark.parametrize(
    ("logged", "state", "found"),
    [
        ([], "ok", "no loss of input in 7 days"),
        (
            [event("2026-11-30T04:00:00Z"), event("2026-11-30T04:01:00Z", way="deasserted")],
            "warn",
            "PSU2 Status 1 times",
        ),
        ([event("2026-11-30T04:00:00Z"), event("2026-11-29T04:00:00Z")], "warn", "PSU2 Status 2 times"),
        ([event("2025-11-30T04:00:00Z")], "ok", "no loss"),  # an old one wakes nobody, and is never cleared
        ([event("")], "ok", "no loss"),  # before the BMC knew the time
        ([event("2026-12-01T19:00:00Z")], "warn", "PSU2"),  # its clock is of another zone
        ([event("2026-11-30T04:00:00Z", "Presence detected")], "ok", "no loss"),
    ],
)
def test_losses_that_are_over(logged: t.Any, state: str, found: str) -> None:
    made = [one for one in supplies.check(bmc(events=logged), GPUS, supplies.Policy()) if one.check == "psu-events"]
    assert [(one.state, one.policy, found in one.found) for one in made] == [(state, "report", True)]


def gpu(limit: t.Any = 700.0, draw: t.Any = 70.0) -> t.Dict[str, t.Any]:
    return {"state": "ok", "power": {"limit_w": limit, "draw_w": draw}}


@pytest.mark.parametrize(
    ("observed", "limits", "draw"),
    [
        ({"gpus": [gpu(), gpu()], "pci": [{"role": "gpu"}] * 2}, 1400.0, 140.0),
        ({"gpus": [gpu(), gpu("not_supported")], "pci": [{"role": "gpu"}] * 2}, None, 140.0),
        ({"gpus": [gpu(), {"state": "timeout", "error": "x"}], "pci": [{"role": "gpu"}] * 2}, None, None),
        ({"gpus": [], "pci": [{"role": "gpu"}]}, None, None),  # GPUs without a driver draw power too
        ({"gpus": [gpu()], "pci": [{"role": "gpu"}] * 2}, None, None),  # one is not seen by NVML
        ({"gpus": [], "pci": [{"role": "display"}]}, 0.0, 0.0),
        ({"gpus": [], "pci": [], "errors": {"pci": "x"}}, None, None),
        ({}, None, None),
    ],
)
def test_the_load_of_the_gpus(observed: t.Any, limits: t.Optional[float], draw: t.Optional[float]) -> None:
    assert supplies.load_of(observed, 100.0) == supplies.Load(limits, draw, 100.0)


def test_a_limit_that_was_set_since() -> None:
    observed = {"gpus": [gpu(), gpu()], "pci": []}
    assert supplies.load_of(observed, 100.0, 500.0) == supplies.Load(1000.0, 140.0, 100.0)
    assert supplies.load_of({"gpus": [], "pci": []}, 100.0, 500.0) == supplies.Load(0.0, 0.0, 100.0)


def air(*inlets: t.Tuple[float, t.Optional[float], t.Optional[float]], **more: t.Any) -> t.Any:
    made = form.reading("redfish", "bmc")
    made["inlets"] = [
        {"name": "Inlet", "celsius": celsius, "caution_c": caution, "critical_c": critical}
        for celsius, caution, critical in inlets
    ]
    made.update(more)
    return made


def fans(*failed: t.Optional[bool]) -> t.List[t.Dict[str, t.Any]]:
    return [{"name": f"Fan{index}", "failed": one} for index, one in enumerate(failed)]


def leak(state: t.Optional[str]) -> t.List[t.Dict[str, t.Any]]:
    return [{"name": "Manifold", "state": state, "text": "x"}, {"name": "Plate", "state": "ok", "text": "OK"}]


COOLING: t.Dict[str, t.Tuple[t.Any, str, str, str]] = {
    "cool": (air((24.0, 38.0, 42.0)), "inlet-hot", "ok", "none"),
    "warm for the site": (air((36.0, 38.0, 42.0)), "inlet-hot", "warn", "ask facility"),
    "warm for the BMC": (air((33.0, 32.0, 42.0)), "inlet-hot", "warn", "ask facility"),
    "hot": (air((24.0, None, None), (43.0, 38.0, 42.0)), "inlet-hot", "fail", "ask facility"),
    "hot, the BMC says no limit": (air((50.0, None, None)), "inlet-hot", "warn", "ask facility"),
    "no inlet": (air(), "inlet-hot", "unknown", "none"),
    "fans turn": (air(fans=fans(False, False)), "fan-failed", "ok", "none"),
    "a fan stands": (air(fans=fans(False, True)), "fan-failed", "warn", "replace"),
    "two fans stand": (air(fans=fans(True, True, False)), "fan-failed", "fail", "drain and inspect"),
    "fans are not told": (air(fans=fans(None, False)), "fan-failed", "unknown", "none"),
    "no fans": (air(), "fan-failed", "not_applicable", "none"),
    "dry": (air(leaks=leak("ok")), "leak-detected", "ok", "none"),
    "wet": (air(leaks=leak("critical")), "leak-detected", "fail", "drain and inspect"),
    "damp": (air(leaks=leak("warning")), "leak-detected", "warn", "ask facility"),
    "not told": (air(leaks=leak(None)), "leak-detected", "unknown", "ask facility"),
    "all parts": (air(), "bmc-answers", "ok", "none"),
    "not all parts": (air(errors={"/x": "503"}), "bmc-answers", "warn", "none"),
    "a virtual machine": (form.reading("none", "in-band", "none", "a VM"), "bmc-answers", "not_applicable", "none"),
    "silent": (form.reading("redfish", "b", "silent", "x"), "bmc-answers", "unknown", "ask facility"),
    "refused": (form.reading("ipmi", "b", "refused", "x"), "bmc-answers", "unknown", "fix configuration"),
    "untrusted": (form.reading("redfish", "b", "untrusted", "x"), "bmc-answers", "unknown", "fix configuration"),
    "HTML": (form.reading("redfish", "b", "malformed", "x"), "bmc-answers", "unknown", "ask facility"),
}


@pytest.mark.parametrize("name", COOLING)
def test_cooling(name: str) -> None:
    reading, check, state, action = COOLING[name]
    made = [one for one in cooling.check(reading) if one.check == check]
    assert [(one.state, one.action) for one in made] == [(state, action)]


@pytest.mark.parametrize("state", ["silent", "refused", "untrusted", "malformed", "missing", "none"])
def test_no_reading_says_nothing_of_supplies_and_stops_nobody(state: str) -> None:
    reading = form.reading("redfish", "bmc", state, "x")
    assert supplies.check(reading, GPUS, supplies.Policy()) == []
    assert [one.policy for one in cooling.check(reading)] == ["report"]


def test_what_speaks_against_a_heavy_load() -> None:
    made = [*supplies.check(bmc(NO_INPUT, MUTE), GPUS, supplies.Policy()), *cooling.check(air((43.0, 38.0, 42.0)))]
    assert cooling.hazards([one.to_dict() for one in made]) == ["psu-ac-lost/psu/PSU1", "inlet-hot/host"]
    calm = [*supplies.check(bmc(), GPUS, supplies.Policy()), *cooling.check(air((24.0, 38.0, 42.0)))]
    assert cooling.hazards([one.to_dict() for one in calm]) == []


@pytest.mark.parametrize(
    ("policy", "installed", "at_work", "spare"),
    [("n", 6, 6, 0), ("n+1", 6, 6, 1), ("n+1", 6, 0, 0), ("2n", 6, 6, 3), ("2n", 5, 5, 3), ("2n", 6, 2, 2)],
)
def test_spare(policy: str, installed: int, at_work: int, spare: int) -> None:
    assert supplies.spare(policy, installed, at_work) == spare
