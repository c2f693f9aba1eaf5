# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ipmitool prints, as of several vendors, against the reading that is made of it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import ipmi
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import reading as form
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result

AC_LOST = "Presence detected, Failure detected, Power Supply AC lost"


def rows(*lines: str) -> t.Dict[str, t.Any]:
    return ipmi.sensors(ipmi.parse("\n".join(lines)))


#: Lines of `sdr elist`; supplies as (name, present, input_lost, failed, predicted).
SUPPLIES: t.Dict[str, t.Tuple[t.List[str], t.List[t.Tuple[t.Any, ...]]]] = {
    "healthy": (["PSU1 Status      | 31h | ok  | 10.1 | Presence detected"], [("PSU1", True, False, False, False)]),
    "AC lost beside ok": ([f"PS2 Status | C9h | ok | 10.2 | {AC_LOST}"], [("PS2", True, True, None, False)]),
    "out of range": (
        ["PSU1 | 31h | ok | 10.1 | Presence detected, AC lost or out-of-range"],
        [("PSU1", True, True, False, False)],
    ),
    "failed": (
        ["PSU1 Status | 31h | ok | 10.1 | Presence detected, Failure detected"],
        [("PSU1", True, False, True, False)],
    ),
    "about to fail": (
        ["PSU1 Status | 31h | ok | 10.1 | Presence detected, Predictive failure"],
        [("PSU1", True, False, False, True)],
    ),
    "of another model": (
        ["PSU1 Status | 31h | ok | 10.1 | Presence detected, Config Error: Vendor Mismatch"],
        [("PSU1", True, False, True, False)],
    ),
    "an empty bay": (["PSU6 Status | 36h | ok | 10.6 | "], [("PSU6", False, None, None, None)]),
    "not read": (["PSU6 Status | 36h | ns | 10.6 | No Reading"], [("PSU6", None, None, None, None)]),
    "all of one instance": (
        ["PS1 Status | C8h | ok | 10.1 | Presence detected", "PS2 Status | C9h | ok | 10.1 | Presence detected"],
        [("PS1", True, False, False, False), ("PS2", True, False, False, False)],
    ),
    "no entity": (
        ["Power Supply 1 | 31h | ok | 0.0 | Presence detected"],
        [("Power Supply 1", True, False, False, False)],
    ),
    "a sensor of another part": (["CPU1 Status | 31h | ok | 3.1 | Presence detected"], []),
}


@pytest.mark.parametrize("name", SUPPLIES)
def test_supplies(name: str) -> None:
    lines, expected = SUPPLIES[name]
    keys = ("name", "present", "input_lost", "failed", "predicted")
    assert [tuple(one[key] for key in keys) for one in rows(*lines)["supplies"]] == expected


INPUTS = (
    "PSU1 Status | 31h | ok | 10.1 | Presence detected",
    "PSU1 Input | 21h | ok | 10.1 | 1200 Watts",
    "PSU1 Pwr Out | 22h | ok | 10.1 | 1150 Watts",
    "PSU1 Vin | 23h | ok | 10.1 | 231,5 Volts",
    "PSU1 12V | 24h | ok | 10.1 | 12.1 Volts",
    "PSU2 Status | 32h | ok | 10.2 | Presence detected",
    "PSU2 Input | 21h | ok | 10.2 | 1190 Watts",
)


def test_input_of_supplies() -> None:
    found = rows(*INPUTS)
    assert [(one["input_w"], one["input_v"]) for one in found["supplies"]] == [(1200.0, 231.5), (1190.0, None)]
    assert found["consumed_w"] == 2390.0
    mute = "PSU2 Input | 21h | ns | 10.2 | No Reading"
    assert rows(*INPUTS[:-1], mute)["consumed_w"] is None  # a part is not the whole
    lost = "PSU2 Status | 32h | ok | 10.2 | Presence detected, Power Supply AC lost"
    assert rows(*INPUTS[:-2], lost)["consumed_w"] == 1200.0
    assert rows(*INPUTS, "Pwr Consumption | 77h | ok | 7.1 | 2450 Watts")["consumed_w"] == 2450.0


@pytest.mark.parametrize(
    ("line", "celsius", "level"),
    [
        ("Inlet Temp | 01h | ok | 55.1 | 24 degrees C", 24.0, "ok"),
        ("Inlet_Temp | 01h | ok | 64.1 | 23,5 degrees C", 23.5, "ok"),
        ("Ambient Temp | 01h | unc | 55.1 | 39 degrees C", 39.0, "caution"),
        ("Inlet Temp | 01h | ucr | 55.1 | 43 degrees C", 43.0, "critical"),
        ("Inlet Temp | 01h | cr | 55.1 | 43 degrees C", 43.0, "critical"),
        ("Inlet Temp | 01h | lcr | 55.1 | 3 degrees C", 3.0, "ok"),
        ("Front Panel Temp | 01h | ok | 12.1 | 75 degrees F", 23.9, "ok"),
        ("Inlet Temp | 01h | ns | 55.1 | No Reading", None, None),
        ("GPU1 Inlet | 01h | ok | 11.1 | 60 degrees C", None, None),
        ("PSU1 Inlet | 01h | ok | 10.1 | 40 degrees C", None, None),
        ("Outlet Temp | 01h | ok | 55.2 | 60 degrees C", None, None),
    ],
)
def test_inlet(line: str, celsius: t.Optional[float], level: t.Optional[str]) -> None:
    found = [(one["celsius"], one["level"]) for one in rows(line)["inlets"]]
    assert found == ([] if celsius is None else [(celsius, level)])


@pytest.mark.parametrize(
    ("line", "failed"),
    [
        ("Fan1 | 11h | ok | 29.1 | 9000 RPM", False),
        ("Fan1 | 11h | lnc | 29.1 | 1500 RPM", False),
        ("Fan1 | 11h | lcr | 29.1 | 500 RPM", True),
        ("Fan1 | 11h | ucr | 29.1 | 30000 RPM", False),
        ("SYS_FAN | 11h | nr | 0.0 | 0 RPM", True),
        ("Fan1 Duty | 11h | ok | 29.1 | 40 percent", False),
    ],
)
def test_fans(line: str, failed: bool) -> None:
    assert [one["failed"] for one in rows(line)["fans"]] == [failed]


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("PS Redundancy | 40h | ok | 19.1 | Fully Redundant", "full"),
        ("PS Redundancy | 40h | ok | 19.1 | Fully Redundant, Redundancy Lost", "lost"),
        ("PS Redundancy | 40h | ok | 19.1 | Redundancy Degraded", "degraded"),
        ("PS Redundancy | 40h | ok | 19.1 | Non-Redundant: Insufficient Resources", "lost"),
        ("Fan Redundancy | 41h | ok | 30.1 | Redundancy Lost", None),
        ("Fan Redundancy | 41h | ok | 7.1 | Redundancy Lost", None),
    ],
)
def test_redundancy(line: str, state: t.Optional[str]) -> None:
    assert [one["state"] for one in rows(line)["redundancy"]] == ([] if state is None else [state])


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("Leak Sensor 1 | A0h | ok | 7.1 | Leak Detected", "critical"),
        ("Leak Sensor 1 | A0h | ok | 7.1 | State Asserted", "critical"),
        ("Leak Sensor 1 | A0h | ok | 7.1 | State Deasserted", "ok"),
        ("Leak Sensor 1 | A0h | ok | 7.1 | ", None),
    ],
)
def test_leaks(line: str, state: t.Optional[str]) -> None:
    assert [one["state"] for one in rows(line)["leaks"]] == [state]


def test_noise_between_rows() -> None:
    noise = "Get HPM.x Capabilities request failed, compcode = d4\nError | obtaining\n\x00\xff | | | |\n"
    assert [row.name for row in ipmi.parse(noise + INPUTS[0])][-1] == "PSU1 Status"


LOG = """   1 | 11/29/2026 | 03:12:44 | Power Supply PSU2 Status | Power Supply AC lost | Asserted
   2 | 11/29/26 | 03:12:59 UTC | Power Supply #0x32 | Power Supply AC lost | Deasserted
   3 |  Pre-Init  |0000000012| Power Supply PSU1 Status | Presence detected | Asserted
   4 | 11/30/2026 | 01:00:00 | Temperature Inlet Temp | Upper Critical going high | Asserted
   5 | garbage
"""


def test_event_log() -> None:
    assert [(one["at"], one["sensor"], one["way"]) for one in ipmi.events(LOG)] == [
        ("2026-11-29T03:12:44Z", "PSU2 Status", "asserted"),
        ("2026-11-29T03:12:59Z", "0x32", "deasserted"),
        ("", "PSU1 Status", "asserted"),
    ]


@pytest.mark.parametrize(
    ("text", "watts"),
    [
        ("    Instantaneous power reading:                   512 Watts\n", 512.0),
        ("    Instantaneous power reading:                     0 Watts\n", None),  # as some say "I cannot"
        ("DCMI request failed because: Invalid command (c1)", None),
        ("", None),
    ],
)
def test_dcmi(text: str, watts: t.Optional[float]) -> None:
    assert ipmi.dcmi(text) == watts


SDR = Result(0, "\n".join(INPUTS))
SESSION = Result(1, "", "Error: Unable to establish IPMI v2 / RMCP+ session\n")
#: What the commands give, in their order; the state of the reading, what is known, how many commands were run.
READ: t.Dict[str, t.Tuple[t.Dict[str, Result], str, t.Dict[str, t.Any], int]] = {
    "all": (
        {"sdr": SDR, "dcmi": Result(0, "Instantaneous power reading: 2500 Watts"), "sel": Result(0, LOG)},
        "ok",
        {"consumed_w": 2500.0, "errors": {}},
        3,
    ),
    "the log is longer than the limit": (
        {"sdr": SDR, "dcmi": Result(1), "sel": Result(None, timed_out=True)},
        "ok",
        {"consumed_w": 2390.0, "events": None, "errors": {"event log": "no answer within the time limit"}},
        3,
    ),
    "an empty log": ({"sdr": SDR, "dcmi": Result(1), "sel": Result(0, "")}, "ok", {"events": []}, 3),
    "sensors end with an error": (
        {"sdr": Result(1, SDR.out, "Get SDR 0033 command failed"), "dcmi": Result(1), "sel": Result(0, "")},
        "ok",
        {"errors": {"ipmitool sdr elist": "Get SDR 0033 command failed"}},
        3,
    ),
    "refused, and never tried again": ({"sdr": SESSION}, "refused", {}, 1),
    "silent": ({"sdr": Result(None, timed_out=True)}, "silent", {}, 1),
    "no device": (
        {"sdr": Result(1, "", "Could not open device at /dev/ipmi0 or /dev/ipmi/0: No such file")},
        "missing",
        {},
        1,
    ),
    "no ipmitool": ({"sdr": Result(None, missing=True)}, "missing", {}, 1),
    "no sensors": ({"sdr": Result(0, "")}, "silent", {}, 1),
}


@pytest.mark.parametrize("name", READ)
def test_read(name: str) -> None:
    answers, state, known, asked = READ[name]
    commands: t.List[str] = []

    def ask(argv: t.Sequence[str], limit: float) -> Result:
        assert limit > 0
        commands.append(argv[0])
        return answers[argv[0]]

    reading = ipmi.read(ask, "in-band", 60.0)
    assert reading["state"] == state, reading["error"]
    assert {key: reading[key] for key in known} == known
    assert len(commands) == asked


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        ("23,5", 23.5),
        ("24 degrees C", 24.0),
        ("N/A", None),
        (True, None),
        (None, None),
        ("1e400", None),
        ([], None),
    ],
)
def test_number(value: t.Any, number: t.Optional[float]) -> None:
    assert form.number(value) == number
