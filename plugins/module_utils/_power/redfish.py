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

Get = t.Callable[[str], t.Dict[str, t.Any]]
Resource = t.Dict[str, t.Any]

ROOT = "/redfish/v1/"
#: A chassis of eight GPUs shows about fifty, one a board.
CHASSIS_LIMIT = 100
MEMBERS_LIMIT = 200
#: After these nothing more can be had from this BMC.
FINAL = ("refused", "untrusted")
#: Volts. Between them lies no mains of the world (IEC 60038: 100 to 127 V, 200 to 240 V and the 277 V of a rack).
LOW_LINE, HIGH_LINE = (85.0, 140.0), (180.0, 310.0)
#: Nominal voltages of an input range (PowerSupply.NominalVoltageType) by what was measured.
NOMINAL = {
    "AC100To127V": LOW_LINE,
    "AC120V": LOW_LINE,
    "AC100To240V": (85.0, 264.0),
    "AC100To277V": (85.0, 310.0),
    "AC200To240V": (180.0, 264.0),
    "AC200To277V": (180.0, 310.0),
    "AC208V": (180.0, 230.0),
    "AC230V": (180.0, 264.0),
    "AC240V": (200.0, 264.0),
    "AC277V": (240.0, 310.0),
    "DCNeg48V": (-60.0, -36.0),
    "DC48V": (36.0, 60.0),
    "DC240V": (180.0, 290.0),
    "DC380V": (260.0, 400.0),
}
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
            self._reading["supplies"].append(_supply(one, volts, watts))
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
            self._reading["supplies"].append(_supply(one, number(one.get("LineInputVoltage")), watts))
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
            self._reading["leaks"].append({"name": name, "state": _leak(told, health), "text": told or health})

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

    def _list(self, collection: t.Optional[Resource], only: t.Optional[t.Pattern[str]] = None) -> t.List[Resource]:
        return self._members(collection, only) if collection and "Members" in collection else []


def _supply(one: Resource, volts: t.Optional[float], watts: t.Optional[float]) -> t.Dict[str, t.Any]:
    state, health = status(one)
    line = text(one.get("LineInputStatus"))
    present = None if not state else state != "Absent"
    oem = _lost_in_words(one)
    if line in ("LossOfInput", "OutOfRange") or oem or volts == 0.0:
        lost: t.Optional[bool] = True
    elif line == "Normal" or (volts is not None and abs(volts) > 30) or (watts is not None and watts > 0):
        lost = False
    else:
        lost = None
    failed = None
    if health:
        failed = health == "Critical"
    # Dead because of its input is another fault than broken.
    if failed and lost:
        failed = None
    said = [
        word for word in (state, health, line, oem, f"{volts:g} V in" if lost and volts is not None else "") if word
    ]
    return form.supply(
        text(one.get("Name") or one.get("Id") or one.get("MemberId") or "power supply"),
        serial=text(one.get("SerialNumber")) or None,
        model=text(one.get("Model")) or None,
        present=present,
        input_lost=lost,
        failed=failed,
        predicted=health == "Warning" and not lost if health else None,
        capacity_w=_capacity(one, volts),
        input_v=volts,
        input_w=watts,
        text=", ".join(said),
    )


def _lost_in_words(one: Resource) -> str:
    """What a vendor says of the input in words, beside a status that is "ok"."""
    places = [one.get(key) for key in ("StatusText", "Description", "FirmwareStatus")]
    own = one.get("Status")
    if isinstance(own, dict):
        places += [entry.get("Message") for entry in dicts(own.get("Conditions"))]
    oem = one.get("Oem")
    if isinstance(oem, dict):
        places += [value for part in oem.values() if isinstance(part, dict) for value in part.values()]
    return next((text(place) for place in places if isinstance(place, str) and form.INPUT_LOST.search(place)), "")


def _capacity(one: Resource, volts: t.Optional[float]) -> t.Optional[float]:
    """Watts that the supply is rated for at its present input; None where that is not told.

    A supply that has ranges gives less at a low line; without ranges, its one rating is that of the high line.
    """
    rated = number(one.get("PowerCapacityWatts"))
    ranges = []
    for entry in dicts(one.get("InputRanges")):
        watts = number(entry.get("CapacityWatts"))
        watts = number(entry.get("OutputWattage")) if watts is None else watts
        low, high = number(entry.get("MinimumVoltage")), number(entry.get("MaximumVoltage"))
        if low is None or high is None:
            low, high = NOMINAL.get(str(entry.get("NominalVoltageType")), (None, None))
        if watts is not None and watts > 0 and low is not None and high is not None:
            ranges.append((low, high, watts))
    if volts is not None and ranges:
        fitting = [watts for low, high, watts in ranges if low * 0.95 <= volts <= high * 1.05]
        return min(fitting) if fitting else None
    if volts is not None and LOW_LINE[0] <= volts <= LOW_LINE[1]:
        return None
    if volts is None and len(ranges) > 1:
        return min(watts for _low, _high, watts in ranges)
    return rated if rated is not None and rated > 0 else None


def _leak(told: str, health: str) -> t.Optional[str]:
    """ok, warning or critical; None where it says neither. Vendors have words of their own (LeakDetected)."""
    word = re.sub(r"[^a-z]", "", told.lower())
    if health == "Critical" or word == "critical" or ("leak" in word and not word.startswith("no")):
        return "critical"
    if health == "Warning" or word == "warning":
        return "warning"
    return "ok" if word in ("ok", "normal", "noleak", "noleakdetected") or (not word and health == "OK") else None


def link(resource: Resource, key: str) -> t.Optional[str]:
    """The path that a property links to, None where it is no link of this service."""
    value = resource.get(key)
    path = value.get("@odata.id") if isinstance(value, dict) else None
    return path if isinstance(path, str) and path.startswith("/") else None


def dicts(value: t.Any) -> t.List[Resource]:
    """The objects of a list, whatever it holds beside them, or none."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def status(resource: Resource) -> t.Tuple[str, str]:
    """State and Health, "" where one is not told."""
    own = resource.get("Status")
    own = own if isinstance(own, dict) else {}
    return text(own.get("State")), text(own.get("Health")).capitalize().replace("Ok", "OK")


def reading_of(value: t.Any) -> t.Optional[float]:
    """The Reading of an excerpt of a sensor."""
    return number(value.get("Reading")) if isinstance(value, dict) else number(value)
