# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power and cooling as IPMI sensors tell them, through ``ipmitool``: on the host itself, or over its network.

A vendor's "ok" beside a sensor says that it was read; what it saw stands in the text (IPMI 2.0, tables 42-2 and 42-3).
The event log is read from its end and never cleared: it is evidence.
"""

from __future__ import annotations

import re
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import reading as form
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.reading import Reading, number, text
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result

#: Runs ipmitool with arguments and a time limit; the login is the caller's.
Ask = t.Callable[[t.Sequence[str], float], Result]

#: Entries from the end of the event log: a full one has thousands, at 20 ms each.
EVENTS = 100
EVENTS_SECONDS = 15.0
#: Entity ids (IPMI 2.0, table 43-13).
SUPPLY, COOLING, POWER_GROUPS = 10, (29, 30), (10, 19, 20, 21)
_SUPPLY_NAME = re.compile(r"^(psu?|power supply|pwr supply)[ _-]?\d", re.IGNORECASE)
_STATUS_WORDS = re.compile(
    r"presence|failure|predictive|lost|out-of-range|config error|inactive|vendor mismatch|revision mismatch|"
    r"processor missing|power supply",
    re.IGNORECASE,
)
_VALUE = re.compile(
    r"(?P<number>[-+]?\d+(?:[.,]\d+)?) (?P<unit>degrees [CF]|RPM|percent|%|Watts|Volts)\b", re.IGNORECASE
)
_TOTAL = re.compile(r"consumption|power meter|total.{0,4}(power|pwr)|(power|pwr).{0,4}total|sys.{0,6}(power|pwr)", re.I)
#: A sensor is beyond a limit: its status names which, upper and lower where ipmitool knows.
_CRITICAL, _CAUTION = ("cr", "nr", "ucr", "unr", "lcr", "lnr"), ("nc", "unc", "lnc")


class Row(t.NamedTuple):
    """A line of ``ipmitool sdr elist``: ``entity`` is (id, instance)."""

    name: str
    status: str
    entity: t.Tuple[int, int]
    value: str

    def measured(self) -> t.Tuple[t.Optional[float], str]:
        """Number and unit, (None, "") where it is no measurement."""
        match = _VALUE.match(self.value)
        return (number(match["number"]), match["unit"].lower()) if match else (None, "")


def read(ask: Ask, where: str, limit: float) -> Reading:
    """The reading. After a first question without an answer nothing more is asked: it may have been the login."""
    end = time.monotonic() + limit
    result = ask(["sdr", "elist"], limit)
    if result.missing:
        return form.reading("ipmi", where, "missing", "ipmitool is not installed")
    rows = parse(result.out)
    if result.timed_out:
        return form.reading("ipmi", where, "silent", f"ipmitool sdr elist has no answer within {limit:.3g} s")
    if not rows:
        return form.reading("ipmi", where, *_failed(result))
    found = form.reading("ipmi", where)
    found.update(sensors(rows))
    if result.rc != 0:
        found["errors"]["ipmitool sdr elist"] = _last(result)
    left = end - time.monotonic()
    if left > 0:
        consumed = dcmi(ask(["dcmi", "power", "reading"], min(left, EVENTS_SECONDS)).out)
        found["consumed_w"] = found["consumed_w"] if consumed is None else consumed
    left = end - time.monotonic()
    log = ask(["sel", "elist", "last", str(EVENTS)], min(left, EVENTS_SECONDS)) if left > 0 else Result(None)
    if log.rc == 0:
        found["events"] = events(log.out)
    else:
        found["errors"]["event log"] = log.problem or "no time was left to read it"
    return found


def parse(output: str) -> t.List[Row]:
    """The rows of ``sdr elist``, also where lines of noise stand between them."""
    rows = []
    for line in output.splitlines():
        parts = [part.strip() for part in line.split("|", 4)]
        if len(parts) != 5:
            continue
        match = re.match(r"(\d+)\.(\d+)$", parts[3])
        entity = (int(match[1]), int(match[2])) if match else (0, 0)
        rows.append(Row(text(parts[0]), parts[2].lower(), entity, text(parts[4])))
    return rows


def sensors(rows: t.Sequence[Row]) -> t.Dict[str, t.Any]:
    """Supplies, redundancy, fans, inlets and consumption of the sensors."""
    supplies = _Supplies()
    found: t.Dict[str, t.Any] = {"redundancy": [], "fans": [], "inlets": [], "leaks": []}
    totals: t.List[float] = []
    for row in rows:
        value, unit = row.measured()
        if "redundan" in row.value.lower() or "insufficient resources" in row.value.lower():
            if row.entity[0] not in COOLING and "fan" not in row.name.lower():
                found["redundancy"].append(_redundancy(row))
        elif unit == "rpm" or (row.entity[0] in COOLING and unit in ("percent", "%")):
            found["fans"].append(_fan(row, value, unit))
        elif unit.startswith("degrees"):
            if form.is_inlet(row.name) and row.entity[0] != SUPPLY:
                found["inlets"].append(_inlet(row, value, unit))
        elif unit in ("watts", "volts"):
            if row.entity[0] == SUPPLY or _SUPPLY_NAME.match(row.name):
                supplies.measured.append(row)
            elif unit == "watts" and value and _TOTAL.search(row.name):
                totals.append(value)
        elif row.entity[0] == SUPPLY or _SUPPLY_NAME.match(row.name):
            supplies.told.append(row)
        elif re.search(r"leak", row.name, re.IGNORECASE):
            found["leaks"].append(_leak(row))
    found["supplies"] = supplies.made()
    drawn = [one["input_w"] for one in found["supplies"] if one["present"] is not False and not one["input_lost"]]
    found["consumed_w"] = max(totals) if totals else (None if None in drawn else sum(drawn) or None)
    return found


@dataclass
class _Supplies:
    """The sensors of supplies: what they tell, and what they measure."""

    told: t.List[Row] = field(default_factory=list)
    measured: t.List[Row] = field(default_factory=list)

    def made(self) -> t.List[t.Dict[str, t.Any]]:
        """A supply for each that tells its state; a BMC that gives all of them one instance is seen through."""
        words = [row for row in self.told if _STATUS_WORDS.search(row.value) or "status" in row.name.lower()]
        found = []
        for row in words:
            alone = sum(other.entity == row.entity for other in words) == 1
            mine = [
                other
                for other in self.measured
                if (
                    other.entity == row.entity
                    if alone and other.entity[0]
                    else _digits(other.name) == _digits(row.name)
                )
            ]
            found.append(_supply(row, mine))
        return found


def _supply(row: Row, measured: t.Sequence[Row]) -> t.Dict[str, t.Any]:
    said = row.value.lower()
    volts = watts = None
    for other in measured:
        value, unit = other.measured()
        if "out" in other.name.lower():
            continue
        if unit == "watts" and value is not None:
            watts = max(value, watts or 0.0)
        if unit == "volts" and value is not None and abs(value) > 30:  # not one of its outputs
            volts = value
    read_it = row.status not in ("ns", "na", "disabled", "")
    present = "presence" in said or (True if _STATUS_WORDS.search(said) else None) if said else False
    if not read_it:
        present = None
    lost = None
    if present:
        lost = bool(form.INPUT_LOST.search(said))
    failed = "failure detected" in said or "config error" in said or "failure" in said.replace("predictive failure", "")
    return form.supply(
        re.sub(r"[ _]*status$", "", row.name, flags=re.IGNORECASE) or row.name,
        present=present,
        input_lost=lost,
        failed=None if not present or (failed and lost) else failed,
        predicted="predictive" in said if present else None,
        input_v=volts,
        input_w=watts,
        text=row.value or "no presence detected",
    )


def _redundancy(row: Row) -> t.Dict[str, t.Any]:
    said = row.value.lower()
    if "lost" in said or "non-redundant" in said or "insufficient" in said:
        state = "lost"
    elif "degraded" in said:
        state = "degraded"
    else:
        state = "full"
    return {"name": row.name, "mode": "", "state": state, "needed": None, "most": None, "text": row.value}


def _fan(row: Row, value: t.Optional[float], unit: str) -> t.Dict[str, t.Any]:
    rpm, percent = (value, None) if unit == "rpm" else (None, value)
    # A fast fan is none that failed.
    failed = row.status in _CRITICAL and not row.status.startswith("u") if row.status not in ("ns", "na", "") else None
    return {"name": row.name, "rpm": rpm, "percent": percent, "failed": failed, "text": f"{row.value}, {row.status}"}


def _inlet(row: Row, value: t.Optional[float], unit: str) -> t.Dict[str, t.Any]:
    if value is not None and unit.endswith("f"):
        value = round((value - 32) / 1.8, 1)
    # Too cold is not what is asked.
    upper = not row.status.startswith("l")
    level = "critical" if row.status in _CRITICAL else "caution" if row.status in _CAUTION else "ok"
    return {
        "name": row.name,
        "celsius": value,
        "caution_c": None,
        "critical_c": None,
        "level": level if upper else "ok",
    }


def _leak(row: Row) -> t.Dict[str, t.Any]:
    said = row.value.lower()
    state: t.Optional[str] = None
    if re.search(r"leak|state asserted|critical", said):
        state = "critical"
    elif re.search(r"\bok\b|deasserted|no leak", said):
        state = "ok"
    if "no leak" in said or "deasserted" in said:
        state = "ok"
    return {"name": row.name, "state": state, "text": row.value}


def events(output: str) -> t.List[t.Dict[str, str]]:
    """The entries of ``sel elist`` about power supplies, oldest first; ``at`` is "" where the BMC had no time yet."""
    found = []
    for line in output.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) < 6 or not parts[3].lower().startswith("power supply"):
            continue
        match = re.match(r"(\d\d)/(\d\d)/(\d{2,4})$", parts[1])
        year = "" if match is None else match[3] if len(match[3]) == 4 else "20" + match[3]
        clock = re.match(r"\d\d:\d\d:\d\d", parts[2])
        at = f"{year}-{match[1]}-{match[2]}T{clock[0]}Z" if match and clock else ""
        found.append(
            {"at": at, "sensor": text(parts[3][12:].strip(" #")), "event": text(parts[4]), "way": parts[5].lower()}
        )
    return found


def dcmi(output: str) -> t.Optional[float]:
    """Watts that the whole host draws now, None where the BMC does not tell."""
    match = re.search(r"Instantaneous power reading:\s*([\d.,]+)\s*Watts", output)
    value = number(match[1]) if match else None
    return value if value else None


def _failed(result: Result) -> t.Tuple[str, str]:
    said = _last(result)
    if "RMCP+ session" in result.err or "session" in said.lower():
        # ipmitool says the same for a wrong password and for a BMC that does not answer.
        return "refused", f"no session: it does not answer, or refuses the user or password ({said}); tried once"
    if "Could not open device" in result.err:
        return "missing", said
    return "silent", said or "no sensors"


def _last(result: Result) -> str:
    lines = [line for line in (result.err or result.out).splitlines() if line.strip() and "HPM.x" not in line]
    return text(lines[0] if lines else result.problem)


def _digits(name: str) -> str:
    match = re.search(r"\d+", name)
    return match[0] if match else ""
