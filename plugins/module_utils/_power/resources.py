# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What single Redfish resources say: a supply, its rating at its input, a leak detector, a status. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import reading as form
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.reading import number, text

Resource = t.Dict[str, t.Any]

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


def supply(one: Resource, volts: t.Optional[float], watts: t.Optional[float]) -> t.Dict[str, t.Any]:
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
    failed = {"Critical": True, "Warning": False, "OK": False}.get(health)
    # Healthy, and gives nothing to the host now: whether it would is not told.
    if not failed and state in ("Disabled", "UnavailableOffline"):
        failed = None
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
        predicted={"Critical": False, "Warning": not lost, "OK": False}.get(health),
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


def leak(told: str, health: str) -> t.Optional[str]:
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
