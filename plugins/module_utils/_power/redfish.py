# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power and cooling as a Redfish service tells them (DMTF DSP0266, schemas of DSP8010), newer and older resources.

``get`` returns a resource by path or raises Trouble. What one resource lacks or garbles is noted under ``errors`` of
the reading, and the others are read all the same.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import reading as form
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.reading import Reading, Trouble, number, text
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.resources import (
    Resource,
    dicts,
    leak,
    link,
    reading_of,
    status,
    supply,
)

Get = t.Callable[[str], t.Dict[str, t.Any]]

ROOT = "/redfish/v1/"
#: A chassis of eight GPUs shows about fifty, one a board.
CHASSIS_LIMIT = 100
MEMBERS_LIMIT = 200
#: After these nothing more can be had from this BMC.
FINAL = ("refused", "untrusted")
#: The number of the supply, and what of its input; as several vendors name their sensors.
_INPUT_SENSOR = re.compile(r"(?:ps|psu|power_?supply)_?(\d+)[a-z_]*?input_?(voltage|power)$", re.IGNORECASE)


def read(get: Get, where: str) -> Reading:
    """The reading of all chassis of a service."""
    return _Tree(get, where).read()


class _Tree:
    def __init__(self, get: Get, where: str) -> None:
        self._get = get
        self._reading = form.reading("redfish", where)
        self._errors: t.Dict[str, str] = self._reading["errors"]

    def read(self) -> Reading:
        try:
            root = self._get(ROOT)
            chassis = link(root, "Chassis")
            if chassis is None:
                raise Trouble("malformed", f"{ROOT} names no Chassis: is this a BMC?")
            members = self._members(self._get(chassis))[:CHASSIS_LIMIT]
            for member in members:
                self._chassis(member)
        except Trouble as trouble:
            state = "malformed" if trouble.state in ("missing", "forbidden") else trouble.state
            self._reading.update(state=state, error=str(trouble))
        return self._reading

    def _chassis(self, chassis: Resource) -> None:
        before = len(self._reading["supplies"])
        subsystem = self._follow(chassis, "PowerSubsystem")
        if subsystem:
            self._power_subsystem(chassis, subsystem)
        environment = self._follow(chassis, "EnvironmentMetrics", optional=True)
        self._consumed(reading_of(environment.get("PowerWatts")) if environment else None)
        if len(self._reading["supplies"]) == before:
            power = self._follow(chassis, "Power")
            if power:
                self._power(power)
        thermal = self._follow(chassis, "ThermalSubsystem")
        if thermal:
            self._thermal_subsystem(thermal)
        else:
            thermal = self._follow(chassis, "Thermal")
            if thermal:
                self._thermal(thermal)

    # Power.

    def _power_subsystem(self, chassis: Resource, subsystem: Resource) -> None:
        measured: t.Optional[t.Dict[t.Tuple[str, str], t.Optional[float]]] = None
        for one in self._list(self._follow(subsystem, "PowerSupplies")):
            metrics = self._follow(one, "Metrics", optional=True) or {}
            volts, watts = reading_of(metrics.get("InputVoltage")), reading_of(metrics.get("InputPowerWatts"))
            if volts is None and watts is None and status(one)[0] != "Absent":
                measured = self._inputs(chassis) if measured is None else measured
                number_of = "".join(re.findall(r"\d+", str(one.get("Id")))[-1:])
                volts, watts = (measured.get((number_of, what)) for what in ("voltage", "power"))
            self._reading["supplies"].append(supply(one, volts, watts))
        for name, error in self._unread(subsystem, "PowerSupplies"):
            self._reading["supplies"].append(form.supply(name, text=error))
        for group in dicts(subsystem.get("PowerSupplyRedundancy")):
            needed, most = number(group.get("MinNeededInGroup")), number(group.get("MaxSupportedInGroup"))
            self._redundancy(group, text(group.get("RedundancyType")), needed, most)

    def _inputs(self, chassis: Resource) -> t.Dict[t.Tuple[str, str], t.Optional[float]]:
        """Input voltage and power of supplies among the sensors of a chassis, where their metrics are not served."""
        found = {}
        for sensor in self._list(self._follow(chassis, "Sensors", optional=True), only=_INPUT_SENSOR):
            match = _INPUT_SENSOR.search(str(sensor.get("Id") or sensor.get("@odata.id")))
            if match:
                found[(match[1], match[2].lower())] = number(sensor.get("Reading"))
        return found

    def _power(self, power: Resource) -> None:
        for one in dicts(power.get("PowerSupplies")):
            watts = next(
                (
                    value
                    for value in (number(one.get(key)) for key in ("PowerInputWatts", "LastPowerOutputWatts"))
                    if value is not None
                ),
                None,
            )
            self._reading["supplies"].append(supply(one, number(one.get("LineInputVoltage")), watts))
        for group in dicts(power.get("Redundancy")):
            needed, most = number(group.get("MinNumNeeded")), number(group.get("MaxNumSupported"))
            self._redundancy(group, text(group.get("Mode")), needed, most)
        consumed = [number(control.get("PowerConsumedWatts")) for control in dicts(power.get("PowerControl"))]
        self._consumed(next((value for value in consumed if value is not None), None))

    def _redundancy(self, group: Resource, mode: str, needed: t.Optional[float], most: t.Optional[float]) -> None:
        state, health = status(group)
        told = {"OK": "full", "Warning": "degraded", "Critical": "lost"}.get(health)
        if state in ("Disabled", "Absent"):
            return
        name = text(group.get("Name") or group.get("MemberId") or "power supplies")
        self._reading["redundancy"].append(
            {"name": name, "mode": mode, "state": told, "needed": needed, "most": most, "text": f"{state} {health}"}
        )

    def _consumed(self, watts: t.Optional[float]) -> None:
        """The largest: a chassis counts the boards within it."""
        if watts is not None and watts > 0:
            self._reading["consumed_w"] = max(watts, self._reading["consumed_w"] or 0.0)

    # Cooling.

    def _thermal_subsystem(self, thermal: Resource) -> None:
        for fan in self._list(self._follow(thermal, "Fans")):
            speed = fan.get("SpeedPercent")
            speed = speed if isinstance(speed, dict) else {}
            self._fan(fan, number(speed.get("SpeedRPM")), number(speed.get("Reading")))
        for name, error in self._unread(thermal, "Fans"):
            self._reading["fans"].append({"name": name, "rpm": None, "percent": None, "failed": None, "text": error})
        metrics = self._follow(thermal, "ThermalMetrics", optional=True) or {}
        summary = metrics.get("TemperatureSummaryCelsius")
        intake = summary.get("Intake") if isinstance(summary, dict) else None
        if isinstance(intake, dict):
            sensor = {}
            if isinstance(intake.get("DataSourceUri"), str):
                sensor = self._resource(intake["DataSourceUri"]) or {}
            limits = sensor.get("Thresholds")
            limits = limits if isinstance(limits, dict) else {}
            caution, critical = (reading_of(limits.get(key)) for key in ("UpperCaution", "UpperCritical"))
            self._inlet(text(sensor.get("Name") or "intake"), number(intake.get("Reading")), caution, critical)
        self._leaks(thermal)

    def _thermal(self, thermal: Resource) -> None:
        for fan in dicts(thermal.get("Fans")):
            value = number(fan.get("Reading") if fan.get("Reading") is not None else fan.get("ReadingRPM"))
            percent = fan.get("ReadingUnits") == "Percent"
            self._fan(fan, None if percent else value, value if percent else None)
        for sensor in dicts(thermal.get("Temperatures")):
            name = text(sensor.get("Name"))
            if sensor.get("PhysicalContext") not in ("Intake", "Inlet") and not form.is_inlet(name):
                continue
            if status(sensor)[0] in ("Absent", "Disabled"):
                continue
            caution, critical = (number(sensor.get(f"UpperThreshold{name}")) for name in ("NonCritical", "Critical"))
            self._inlet(name or "intake", number(sensor.get("ReadingCelsius")), caution, critical)

    def _fan(self, fan: Resource, rpm: t.Optional[float], percent: t.Optional[float]) -> None:
        state, health = status(fan)
        if state in ("Absent", "Disabled"):
            return
        lowest = number(fan.get("LowerThresholdCritical"))
        stands = rpm is not None and lowest is not None and rpm <= lowest
        failed = True if health == "Critical" or stands else False if health in ("OK", "Warning") else None
        name = text(fan.get("Name") or fan.get("FanName") or fan.get("Id") or "fan")
        self._reading["fans"].append(
            {"name": name, "rpm": rpm, "percent": percent, "failed": failed, "text": f"{state} {health}".strip()}
        )

    def _inlet(
        self, name: str, celsius: t.Optional[float], caution: t.Optional[float], critical: t.Optional[float]
    ) -> None:
        self._reading["inlets"].append({"name": name, "celsius": celsius, "caution_c": caution, "critical_c": critical})

    def _leaks(self, thermal: Resource) -> None:
        detection = self._follow(thermal, "LeakDetection")
        if not detection:
            return
        # Where the detectors lie: in a collection beside it, or (seen of a vendor) in the resource itself.
        listed = self._list(self._follow(detection, "LeakDetectors")) or self._list(detection)
        for group in dicts(detection.get("LeakDetectorGroups")):
            listed += dicts(group.get("Detectors"))
        for one in listed:
            state, health = status(one)
            if state in ("Absent", "Disabled"):
                continue
            told = text(one.get("DetectorState"))
            name = text(one.get("DeviceName") or one.get("Name") or one.get("Id") or "leak detector")
            self._reading["leaks"].append({"name": name, "state": leak(told, health), "text": told or health})
        for name, error in self._unread(detection, "LeakDetectors"):
            self._reading["leaks"].append({"name": name, "state": None, "text": error})

    # How resources hang together.

    def _follow(self, resource: Resource, key: str, optional: bool = False) -> t.Optional[Resource]:
        """The resource behind a link, None where there is no link or nothing could be had.

        ``optional``: many services link to one that they do not serve.
        """
        path = link(resource, key)
        if path is not None:
            return self._resource(path, optional)
        if key in resource and resource[key] is not None:
            self._errors[f"{resource.get('@odata.id') or '?'} {key}"] = "is no link"
        return None

    def _resource(self, path: str, optional: bool = False) -> t.Optional[Resource]:
        try:
            return self._get(path)
        except Trouble as trouble:
            if trouble.state in FINAL or str(trouble).startswith("no time was left"):
                raise
            if not (optional and trouble.state == "missing"):
                self._errors[path] = str(trouble)
        return None

    def _members(self, collection: Resource, only: t.Optional[t.Pattern[str]] = None) -> t.List[Resource]:
        """The members of a collection, over its pages; those that were sent within it are not asked for again.

        ``only``: of those that were not, get what this finds in their paths.
        """
        found: t.List[Resource] = []
        seen: t.Set[str] = set()
        page: t.Optional[Resource] = collection
        while page is not None:
            listed = page.get("Members")
            if not isinstance(listed, list):
                self._errors[str(page.get("@odata.id") or "a collection")] = "has no list of members"
                break
            for entry in dicts(listed)[: MEMBERS_LIMIT - len(found)]:
                path = entry.get("@odata.id")
                if set(entry) - {"@odata.id", "@odata.type", "@odata.etag"}:
                    found.append(entry)
                elif isinstance(path, str) and path not in seen and (only is None or only.search(path)):
                    seen.add(path)
                    resource = self._resource(path)
                    if resource:
                        found.append(resource)
            after = page.get("Members@odata.nextLink")
            if not isinstance(after, str) or after in seen or len(found) >= MEMBERS_LIMIT:
                break
            seen.add(after)
            page = self._resource(after)
        return found

    def _unread(self, resource: Resource, key: str) -> t.List[t.Tuple[str, str]]:
        """Name and error of each member of a linked collection that could not be read: it is there, and unknown."""
        start = f"{link(resource, key) or '?'}/"
        parts = [(path[len(start) :], error) for path, error in self._errors.items() if path.startswith(start)]
        return [(name, error) for name, error in parts if "/" not in name]

    def _list(self, collection: t.Optional[Resource], only: t.Optional[t.Pattern[str]] = None) -> t.List[Resource]:
        return self._members(collection, only) if collection and "Members" in collection else []
