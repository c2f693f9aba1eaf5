# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of NVLink 5 (Blackwell), Xid 144 to 150: what the numbers of their message mean. Pure.

``UNIT SEVERITY XC0 i0 Link 03 (INTRINFO STATUS ...)``: the low bits of INTRINFO are the unit (ten of them up to driver
branch 570, seven since 575), bits 20 to 25 a subcode; STATUS is a mask of what happened. Source: the decoding sheet of
NVIDIA's Xid workbook (2025-10), by way of leptonai/gpud @4a8de33 and NVIDIA/NVSentinel's csv.go. Lines without numbers
and units of two words ("MSE Degraded") are in public logs: then the message's own severity decides.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.xid import Code
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.patterns import lazy

#: The driver branch from which on the unit has seven bits.
SEVEN_BITS_SINCE = 575


class Unit(t.NamedTuple):
    """A unit of the link: its bits before and since R575, the bits of STATUS that want a reset, and those for which
    Xid 154 says what is wanted. Every other bit is no fault of its own."""

    xid: int
    name: str
    old: int
    new: int
    reset: int = 0
    follow: int = 0


UNITS = (
    Unit(144, "SAW_MVB", 0x021, 0x01, reset=0x12),
    Unit(145, "RLW_CTRL", 0x062, 0x03),
    Unit(145, "RLW_REMAP", 0x082, 0x04, reset=0xC0, follow=0x3F),
    Unit(145, "RLW_RSPCOL", 0x0A2, 0x05, reset=0x2),
    Unit(145, "RLW_RXPIPE", 0x0C2, 0x06),
    Unit(145, "RLW_SRC_TRACK", 0x0E2, 0x07, reset=0x31, follow=0xC),
    Unit(145, "RLW_TAGSTATE", 0x102, 0x08, reset=0x120002),
    Unit(146, "TLW_CTRL", 0x123, 0x09, reset=0x4),
    Unit(146, "TLW_RX_PIPE0", 0x143, 0x0A, reset=0x4),
    Unit(146, "TLW_RX_PIPE1", 0x143, 0x0B, reset=0x4),
    Unit(146, "TLW_TX_PIPE0", 0x163, 0x0C, reset=0x4),
    Unit(146, "TLW_TX_PIPE1", 0x163, 0x0D, reset=0x4),
    Unit(147, "TREX", 0x184, 0x0E),
    Unit(148, "NVLPW_CTRL", 0x005, 0x0F),
    Unit(149, "NETIR_INT", 0x006, 0x18),
    Unit(149, "NETIR_BER_EVENT", 0x226, 0x13),
    Unit(149, "NETIR_LINK_EVT", 0x1C6, 0x11),
    Unit(149, "NETIR_MFDE_EVENT", 0x246, 0x14),
    Unit(150, "MSE_WATCHDOG", 0x000, 0x00),
)

_SIGNAL = "look at the link's signal, cables and connectors"
_USER = "what the software or a user did to the link"
_PEER = "look at the device at the other end"

#: NETIR_LINK_EVT: why a link went down, by subcode. 0x26 and 0x28 want nothing of this GPU.
LINK_DOWN = {
    0x01: "report it where it comes more than once a day",
    **dict.fromkeys((0x02, 0x04, 0x0A, 0x2A, 0x2B), _SIGNAL),
    **dict.fromkeys((0x0F, 0x11, 0x16, 0x26), _USER),
    **dict.fromkeys((0x10, 0x12), f"{_USER}, or its signal"),
    **dict.fromkeys((0x15, *range(0x20, 0x26)), _PEER),
    0x28: "look at the host",
}
LINK_DOWN_QUIET = (0x26, 0x28)
#: NETIR_MFDE_EVENT: firmware's events by STATUS; this one says nothing.
FIRMWARE_QUIET = 0x3

_MESSAGE = lazy(r"(?P<severity>Fatal|Non-?fatal)\s.*?\bLink (?P<link>-?\d+)", re.IGNORECASE)
_NUMBERS = lazy(r"\((0x[0-9a-fA-F]{8}) (0x[0-9a-fA-F]{8})[ )]")


def decode(xid: int, told: str, driver: str) -> Code:
    """What one message means; ``driver`` is the version of the driver that wrote it ("" where nobody knows)."""
    message = _MESSAGE.search(told)
    fatal = message is not None and message.group("severity").lower() == "fatal"
    link = f" on link {int(message.group('link'))}" if message and int(message.group("link")) >= 0 else ""
    numbers = _NUMBERS.search(told)
    if numbers is None:
        return _by_severity(f"an NVLink error{link}", fatal)
    information, status = (int(number, 16) for number in numbers.groups())
    unit = _unit(xid, information, driver)
    if unit is None:
        return _by_severity(f"an NVLink error of an unknown unit{link}", fatal)
    what = f"{unit.name}{link}, status {status:#x}"
    if xid == 149:
        return _network(unit, information >> 20 & 0x3F, status, what)
    if xid == 150:
        return Code(f"{what}: the link's firmware stopped", "fail", "reset GPU")
    if status & unit.reset:
        return Code(what, "fail", "reset GPU")
    if status & unit.follow:
        return Code(what, "warn", "none", reason="Xid 154 says what the driver wants")
    if fatal:
        # A bit that no table has: the message knows better.
        return _by_severity(what, fatal)
    return Code(what, "ok")


def _unit(xid: int, information: int, driver: str) -> t.Optional[Unit]:
    major = re.match(r"\d+", driver)
    # Of an unknown driver both are tried: no number of one kind is a unit of the same Xid in the other.
    new = major is None or int(major.group()) >= SEVEN_BITS_SINCE
    old = major is None or not new
    for unit in UNITS:
        if unit.xid == xid and ((new and information & 0x7F == unit.new) or (old and information & 0x3FF == unit.old)):
            return unit
    return None


def _network(unit: Unit, subcode: int, status: int, what: str) -> Code:
    if unit.name == "NETIR_BER_EVENT":
        return Code(f"{what}: many bit errors", "warn", "none", reason=_SIGNAL)
    if unit.name == "NETIR_MFDE_EVENT":
        if status == FIRMWARE_QUIET:
            return Code(what, "ok")
        return Code(f"{what}: an event of the link's firmware", "fail", "reset GPU", reason="NVIDIA's support")
    reason = LINK_DOWN.get(subcode, "the error before it, if there is one, has the cause")
    what = f"{what}: the link went down (subcode {subcode:#x})"
    if unit.name == "NETIR_LINK_EVT" and subcode in LINK_DOWN_QUIET:
        return Code(what, "warn", "none", reason=reason)
    return Code(what, "fail", "reset GPU", reason=reason)


def _by_severity(what: str, fatal: bool) -> Code:
    if fatal:
        return Code(f"{what}, fatal by its own words", "fail", "reset GPU")
    return Code(f"{what}, not fatal by its own words", "warn")
