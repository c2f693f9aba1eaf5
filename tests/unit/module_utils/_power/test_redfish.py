# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Redfish resources, healthy and as vendors garble them, against the reading that is made of them."""

from __future__ import annotations

import copy
import json
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import reading as form
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import redfish
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.reading import Trouble

ROOT = Path(__file__).resolve().parents[4]
SAMPLES = Path(os.environ.get("GPUFLEET_SAMPLES") or ROOT.parent / "shared" / "samples") / "redfish"
Tree = t.Dict[str, t.Any]
C = "/redfish/v1/Chassis/1U"
PSU = f"{C}/PowerSubsystem/PowerSupplies"
FAN = f"{C}/ThermalSubsystem/Fans"
OK = {"State": "Enabled", "Health": "OK"}


def at(path: str) -> Tree:
    return {"@odata.id": path}


def collection(path: str, names: t.Iterable[str]) -> Tree:
    return {"Members": [at(f"{path}/{name}") for name in names]}


def newer() -> Tree:
    """A service of the newer resources: four supplies, two fans, an inlet, a leak detector."""
    tree: Tree = {
        "/redfish/v1/": {"Chassis": at("/redfish/v1/Chassis")},
        "/redfish/v1/Chassis": collection("/redfish/v1/Chassis", ["1U"]),
        C: {
            **at(C),
            "PowerSubsystem": at(f"{C}/PowerSubsystem"),
            "ThermalSubsystem": at(f"{C}/ThermalSubsystem"),
            "EnvironmentMetrics": at(f"{C}/EnvironmentMetrics"),
        },
        f"{C}/EnvironmentMetrics": {"PowerWatts": {"Reading": 2400.0}},
        f"{C}/PowerSubsystem": {
            "PowerSupplies": at(PSU),
            "PowerSupplyRedundancy": [
                {"RedundancyType": "NPlusM", "MinNeededInGroup": 2, "MaxSupportedInGroup": 4, "Status": dict(OK)}
            ],
        },
        PSU: collection(PSU, "1234"),
        f"{C}/ThermalSubsystem": {
            "Fans": at(FAN),
            "ThermalMetrics": at(f"{C}/ThermalMetrics"),
            "LeakDetection": at(f"{C}/LeakDetection"),
        },
        FAN: collection(FAN, "12"),
        f"{C}/ThermalMetrics": {
            "TemperatureSummaryCelsius": {"Intake": {"Reading": 24.0, "DataSourceUri": f"{C}/Sensors/Inlet"}}
        },
        f"{C}/Sensors/Inlet": {
            "Name": "Inlet",
            "Thresholds": {"UpperCaution": {"Reading": 38}, "UpperCritical": {"Reading": 42}},
        },
        f"{C}/LeakDetection": {"LeakDetectors": at(f"{C}/LeakDetectors")},
        f"{C}/LeakDetectors": collection(f"{C}/LeakDetectors", "1"),
        f"{C}/LeakDetectors/1": {"Name": "Manifold", "DetectorState": "OK", "Status": dict(OK)},
    }
    for index in "1234":
        tree[f"{PSU}/{index}"] = {
            "Id": index,
            "Name": f"PSU{index}",
            "SerialNumber": f"S{index}",
            "Status": dict(OK),
            "LineInputStatus": "Normal",
            "PowerCapacityWatts": 3300,
            "Metrics": at(f"{PSU}/{index}/Metrics"),
        }
        tree[f"{PSU}/{index}/Metrics"] = {"InputVoltage": {"Reading": 231.5}, "InputPowerWatts": {"Reading": 600}}
    for index in "12":
        tree[f"{FAN}/{index}"] = {"Name": f"Fan{index}", "Status": dict(OK), "SpeedPercent": {"Reading": 55}}
    return tree


def older() -> Tree:
    """A service of the older resources."""
    ranges = [
        {"InputType": "AC", "MinimumVoltage": 90, "MaximumVoltage": 132, "OutputWattage": 1000},
        {"InputType": "AC", "MinimumVoltage": 180, "MaximumVoltage": 264, "OutputWattage": 2200},
    ]
    supply = {"PowerCapacityWatts": 2200, "LineInputVoltage": 230, "InputRanges": ranges, "Status": dict(OK)}
    return {
        "/redfish/v1/": {"Chassis": at("/redfish/v1/Chassis")},
        "/redfish/v1/Chassis": collection("/redfish/v1/Chassis", ["1U"]),
        C: {**at(C), "Power": at(f"{C}/Power"), "Thermal": at(f"{C}/Thermal")},
        f"{C}/Power": {
            "PowerControl": [{"PowerConsumedWatts": 900}],
            "PowerSupplies": [{**supply, "Name": f"PSU{index}"} for index in "12"],
            "Redundancy": [{"Name": "PSUs", "Mode": "N+m", "MinNumNeeded": 1, "Status": dict(OK)}],
        },
        f"{C}/Thermal": {
            "Fans": [{"FanName": "Fan1", "Reading": 9000, "ReadingUnits": "RPM", "Status": dict(OK)}],
            "Temperatures": [
                {"Name": "CPU1", "PhysicalContext": "CPU", "ReadingCelsius": 60},
                {"Name": "System Inlet", "ReadingCelsius": 23, "UpperThresholdCritical": 42},
                {"Name": "GPU1 inlet", "ReadingCelsius": 50},
            ],
        },
    }


def read(tree: Tree) -> form.Reading:
    def get(path: str) -> Tree:
        if path not in tree:
            raise Trouble("missing", f"{path} is not there (404)")
        if isinstance(tree[path], Trouble):
            raise tree[path]
        return t.cast("Tree", copy.deepcopy(tree[path]))

    return redfish.read(get, "bmc")


def got(reading: form.Reading, path: str) -> t.Any:
    """A value of the reading by path: ``supplies.0.failed``."""
    place: t.Any = reading
    for part in path.split("."):
        place = place[int(part)] if isinstance(place, list) else place[part]
    return place


HEALTHY: t.Dict[str, t.Any] = {
    "state": "ok",
    "errors": {},
    "consumed_w": 2400.0,
    "supplies.0.name": "PSU1",
    "supplies.0.serial": "S1",
    "supplies.0.present": True,
    "supplies.0.input_lost": False,
    "supplies.0.failed": False,
    "supplies.0.predicted": False,
    "supplies.0.capacity_w": 3300.0,
    "supplies.0.input_v": 231.5,
    "supplies.3.name": "PSU4",
    "redundancy.0.state": "full",
    "fans.1.failed": False,
    "inlets.0": {"name": "Inlet", "celsius": 24.0, "caution_c": 38.0, "critical_c": 42.0},
    "leaks.0.state": "ok",
}
OLDER: t.Dict[str, t.Any] = {
    "state": "ok",
    "errors": {},
    "consumed_w": 900.0,
    "supplies.1.name": "PSU2",
    "supplies.1.input_lost": False,
    "supplies.1.capacity_w": 2200.0,
    "redundancy.0.state": "full",
    "fans.0.rpm": 9000.0,
    "inlets": [{"name": "System Inlet", "celsius": 23.0, "caution_c": None, "critical_c": 42.0}],
}

P1, LOW = f"{PSU}/1", {"InputVoltage": {"Reading": 118}}
RANGES = [
    {"NominalVoltageType": "AC120V", "CapacityWatts": 1400},
    {"NominalVoltageType": "AC200To240V", "CapacityWatts": 3300},
]
#: Paths of the tree with what they hold instead; what the reading then has.
GARBLED: t.Dict[str, t.Tuple[t.Dict[str, t.Any], t.Dict[str, t.Any]]] = {
    "no input, and OK": (
        {f"{P1}.LineInputStatus": "LossOfInput"},
        {"supplies.0.input_lost": True, "supplies.0.failed": False},
    ),
    "AC lost in words beside OK": ({f"{P1}.Oem": {"V": {"Text": "AC lost"}}}, {"supplies.0.input_lost": True}),
    "AC lost in a condition": (
        {f"{P1}.Status": {**OK, "Conditions": [{"Message": "Power supply input lost."}]}},
        {"supplies.0.input_lost": True},
    ),
    "dead by its input": (
        {f"{P1}.Status.Health": "Critical", f"{P1}.LineInputStatus": "LossOfInput"},
        {"supplies.0.input_lost": True, "supplies.0.failed": None},
    ),
    "broken": ({f"{P1}.Status.Health": "Critical"}, {"supplies.0.input_lost": False, "supplies.0.failed": True}),
    "warned of": ({f"{P1}.Status.Health": "Warning"}, {"supplies.0.failed": False, "supplies.0.predicted": True}),
    "a health that is none": (
        {f"{P1}.Status.Health": "Failed"},
        {"supplies.0.failed": None, "supplies.0.predicted": None},
    ),
    "switched off": ({f"{P1}.Status.State": "Disabled"}, {"supplies.0.present": True, "supplies.0.failed": None}),
    "out of reach and broken": (
        {f"{P1}.Status": {"State": "UnavailableOffline", "Health": "Critical"}},
        {"supplies.0.failed": True},
    ),
    "an empty bay": ({f"{P1}.Status": {"State": "Absent"}}, {"supplies.0.present": False}),
    "numbers with a comma": (
        {f"{P1}/Metrics": {"InputVoltage": {"Reading": "231,5"}}, f"{P1}.PowerCapacityWatts": "3300,0 W"},
        {"supplies.0.input_v": 231.5, "supplies.0.capacity_w": 3300.0},
    ),
    "thousands with a comma": ({f"{P1}.PowerCapacityWatts": "3,300 W"}, {"supplies.0.capacity_w": None}),
    "thousands and a fraction": ({f"{P1}.PowerCapacityWatts": "3,300.0 W"}, {"supplies.0.capacity_w": None}),
    "nothing but null": (
        {P1: dict.fromkeys(("Name", "Status", "LineInputStatus", "PowerCapacityWatts", "Metrics", "SerialNumber"))},
        {f"supplies.0.{key}": None for key in ("present", "input_lost", "failed", "predicted", "capacity_w", "serial")},
    ),
    "at a low line": ({f"{P1}/Metrics": LOW, f"{P1}.InputRanges": RANGES}, {"supplies.0.capacity_w": 1400.0}),
    "at a low line without ranges": ({f"{P1}/Metrics": LOW}, {"supplies.0.capacity_w": None}),
    "between two ranges": (
        {f"{P1}/Metrics": {"InputVoltage": {"Reading": 160}}, f"{P1}.InputRanges": RANGES},
        {"supplies.0.capacity_w": None},
    ),
    "no metrics, ranges": ({f"{P1}/Metrics": {}, f"{P1}.InputRanges": RANGES}, {"supplies.0.capacity_w": 1400.0}),
    "metrics are not served": (
        {f"{P1}/Metrics": Trouble("missing", "404")},
        {"errors": {}, "supplies.0.input_v": None, "supplies.0.input_lost": False},
    ),
    "one supply fails to answer": (
        {P1: Trouble("malformed", "status 503")},
        {"errors": {P1: "status 503"}, "supplies.0.name": "PSU2", "supplies.3": form.supply("1", text="status 503")},
    ),
    "one resource is slow": ({FAN: Trouble("silent", "slow")}, {"fans": [], "leaks.0.state": "ok", "state": "ok"}),
    "a fan fails to answer": ({f"{FAN}/1": Trouble("malformed", "503")}, {"fans.1.name": "1", "fans.1.failed": None}),
    "a detector fails to answer": (
        {f"{C}/LeakDetectors/1": Trouble("malformed", "503")},
        {"leaks": [{"name": "1", "state": None, "text": "503"}]},
    ),
    "members are no list": ({f"{PSU}.Members": "none"}, {"supplies": [], "state": "ok"}),
    "a member is no link": ({f"{PSU}.Members": [at(P1), None, 5, "x", at(P1)]}, {"supplies.0.name": "PSU1"}),
    "members sent within": ({f"{PSU}.Members": [{**at("/x"), "Name": "A", "Status": OK}]}, {"supplies.0.name": "A"}),
    "pages": (
        {f"{PSU}.Members": [at(P1)], f"{PSU}.Members@odata.nextLink": "/next", "/next": collection(PSU, "2")},
        {"supplies.1.name": "PSU2"},
    ),
    "pages in a circle": (
        {
            f"{PSU}.Members": [at(P1)],
            f"{PSU}.Members@odata.nextLink": "/next",
            "/next": {"Members": [], "Members@odata.nextLink": "/next"},
        },
        {"supplies.0.name": "PSU1", "state": "ok"},
    ),
    "a link that is text": ({f"{C}.PowerSubsystem": f"{C}/PowerSubsystem"}, {"supplies": []}),
    "a link elsewhere": ({f"{C}.PowerSubsystem": at("http://example.com/x")}, {"supplies": []}),
    "redundancy lost": (
        {f"{C}/PowerSubsystem.PowerSupplyRedundancy": [{"Status": {"Health": "CRITICAL", "State": "Enabled"}}]},
        {"redundancy.0.state": "lost"},
    ),
    "redundancy garbled": ({f"{C}/PowerSubsystem.PowerSupplyRedundancy": {"Status": 3}}, {"redundancy": []}),
    "a fan stands": ({f"{FAN}/1.Status.Health": "Critical"}, {"fans.0.failed": True}),
    "a fan says nothing": ({f"{FAN}/1": {"Name": "F"}}, {"fans.0.failed": None, "fans.0.percent": None}),
    "an inlet of nobody knows": ({f"{C}/ThermalMetrics": {}}, {"inlets": []}),
    "wet": ({f"{C}/LeakDetectors/1.DetectorState": "LeakDetected"}, {"leaks.0.state": "critical"}),
    "wet, and OK in words": ({f"{C}/LeakDetectors/1.Status.Health": "Critical"}, {"leaks.0.state": "critical"}),
    "damp": ({f"{C}/LeakDetectors/1.DetectorState": "Warning"}, {"leaks.0.state": "warning"}),
    "no leak, in words": ({f"{C}/LeakDetectors/1.DetectorState": "NoLeak"}, {"leaks.0.state": "ok"}),
    "a detector says nothing": ({f"{C}/LeakDetectors/1": {"Name": "x"}}, {"leaks.0.state": None}),
    "detectors in the resource": (
        {f"{C}/LeakDetection": collection(f"{C}/LeakDetectors", "1")},
        {"leaks.0.name": "Manifold"},
    ),
    "refused": ({C: Trouble("refused", "401")}, {"state": "refused", "supplies": []}),
    "no Chassis": ({"/redfish/v1/": {}}, {"state": "malformed"}),
    "the root is not there": ({"/redfish/v1/": Trouble("missing", "404")}, {"state": "malformed"}),
    "silent": ({"/redfish/v1/": Trouble("silent", "no")}, {"state": "silent"}),
}


def change(tree: Tree, path: str, value: t.Any) -> None:
    """Put a value at a resource, or at ``RESOURCE.PROPERTY.PROPERTY``."""
    if path in tree or "." not in path or path.split(".", 1)[0] not in tree:
        tree[path] = value
        return
    resource, *keys = path.split(".") if "@" not in path else path.split(".", 1)
    place = tree[resource]
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value


@pytest.mark.parametrize(("tree", "expected"), [(newer(), HEALTHY), (older(), OLDER)], ids=["newer", "older"])
def test_a_healthy_service(tree: Tree, expected: t.Dict[str, t.Any]) -> None:
    reading = read(tree)
    assert {path: got(reading, path) for path in expected} == expected


@pytest.mark.parametrize("name", GARBLED)
def test_what_vendors_make_of_it(name: str) -> None:
    changes, expected = GARBLED[name]
    tree = newer()
    for path, value in changes.items():
        change(tree, path, value)
    reading = read(tree)
    assert {path: got(reading, path) for path in expected} == expected


@pytest.mark.parametrize(
    ("value", "lost", "capacity"),
    [(0, True, 2200.0), (115, False, 1000.0), (None, None, 1000.0), ("230,0", False, 2200.0)],
)
def test_the_older_resource_at_its_input(value: t.Any, lost: t.Optional[bool], capacity: float) -> None:
    tree = older()
    tree[f"{C}/Power"]["PowerSupplies"][0]["LineInputVoltage"] = value
    one = read(tree)["supplies"][0]
    assert (one["input_lost"], one["capacity_w"] if not lost else capacity) == (lost, capacity)


@pytest.mark.parametrize("tree", [newer(), older()], ids=["newer", "older"])
def test_junk_anywhere_breaks_nothing(tree: Tree) -> None:
    """Every property of every resource is junk in turn: there is a reading, of the parts that are left."""
    for path in tree:
        for key in tree[path]:
            for junk in (None, 5, "x", [], [1], {}, True, [[]], [{"Status": 1}]):
                broken = {**tree, path: {**tree[path], key: junk}}
                assert read(broken)["state"] in ("ok", "malformed"), (path, key, junk)


def sample(name: str) -> t.Any:
    if not (SAMPLES / name).exists():
        pytest.skip(f"{SAMPLES / name} is not there; name a folder of samples in GPUFLEET_SAMPLES")
    return json.loads((SAMPLES / name).read_text(encoding="utf-8"))


def test_a_real_power_shelf() -> None:
    base = "powershelf_delta/redfish/v1"
    shelf = "Chassis/PowerShelf_0"
    names = (
        "",
        "Chassis/",
        f"{shelf}/",
        f"{shelf}/PowerSubsystem/",
        f"{shelf}/PowerSubsystem/PowerSupplies/",
        f"{shelf}/Sensors/",
    )
    tree = {f"/redfish/v1/{name}".rstrip("/") or "/": sample(f"{base}/{name}index.json") for name in names}
    tree["/redfish/v1/"] = tree["/redfish/v1"]
    reading = read(tree)
    assert reading["state"] == "ok"
    assert [one["capacity_w"] for one in reading["supplies"]] == [5504.0] * 6
    # Their metrics are linked and not served; the sensors of the shelf have the input.
    assert [one["input_v"] for one in reading["supplies"]] == [241.5, 241.5, 241.5, 241.25, 241.5, 241.5]
    assert [one["input_w"] for one in reading["supplies"]] == [341.0, 249.0, 353.0, 258.0, 262.0, 290.0]
    assert {(one["input_lost"], one["failed"]) for one in reading["supplies"]} == {(False, False)}


@pytest.mark.parametrize(
    ("thermal", "detectors", "states", "errors"),
    [
        ("thermal_subsystem.json", ["leak_detector_ok.json", "leak_detector_leak.json"], ["ok", "critical"], 1),
        ("thermal_subsystem_buggy.json", ["leak_detector_leak.json"], ["critical"], 0),
    ],
)
def test_real_leak_detectors(thermal: str, detectors: t.List[str], states: t.List[str], errors: int) -> None:
    tree = newer()
    resource = sample(thermal)
    tree[f"{C}/ThermalSubsystem"] = resource
    detection = resource["LeakDetection"]["@odata.id"]
    tree[detection] = {"Members": [sample(name) for name in detectors]}
    reading = read(tree)
    assert [leak["state"] for leak in reading["leaks"]] == states
    assert len(reading["errors"]) == errors  # one links to fans that were not captured
