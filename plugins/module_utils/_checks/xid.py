# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the codes of NVIDIA's driver (Xid) and of NVSwitches (SXid) mean, and what is to be done. Data.

Sources: NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), its workbook of
2025-10 as leptonai/gpud @4a8de33 carries it, and there the same of SXids (NVIDIA's Fabric Manager user guide, appendix
D); codes 162 to 172 have no action in that workbook, so that theirs is ours. Codes that a user's program causes are
those that NVIDIA's k8s-device-plugin (internal/rm/health.go) passes over, and the ones whose action is "restart the
application". What state follows is our judgement.
"""

from __future__ import annotations

import typing as t


class Code(t.NamedTuple):
    """Of one code: what it means, and the state, the action and the reason of the Finding that it makes.

    ``user``: the program that ran is to blame in almost every case. A state ``ok`` means that nothing follows.
    """

    meaning: str
    state: str
    action: str = "none"
    user: bool = False
    reason: str = ""


def _app(meaning: str, reason: str = "") -> Code:
    return Code(meaning, "warn", "restart job", True, reason)


def _reset(meaning: str, reason: str = "") -> Code:
    return Code(meaning, "fail", "reset GPU", False, reason)


def _ignored(meaning: str) -> Code:
    return Code(meaning, "ok")


def _watched(meaning: str, reason: str = "", action: str = "none") -> Code:
    return Code(meaning, "warn", action, False, reason)


#: Engines of which each has its codes, in the order of their number: the program that used them is started again.
_ENGINES: t.Dict[str, t.Sequence[int]] = {
    "copy engine": (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
    "video decoder": (68, 83, 84, 88, 89, 96, 97, 98),
    "JPEG decoder": (82, *range(99, 106)),
    "optical flow engine": (86, 139),
}

_FOLLOW = "the Xid before it has the cause"
_SUPPORT = "NVIDIA's support"

XIDS: t.Dict[int, Code] = {
    **{
        code: _app(f"an error of {name} {number}")
        for name, codes in _ENGINES.items()
        for number, code in enumerate(codes)
    },
    8: _app("the GPU stopped processing"),
    11: _app("a damaged command stream"),
    13: _app("an exception of a program on the GPU", "on one GPU under different jobs: test that GPU"),
    25: _app("a command stream with an illegal method"),
    31: _app("a program read or wrote memory that is not its own", "on one GPU under different jobs: test that GPU"),
    32: _app("a damaged command stream"),
    37: _ignored("firmware met an unknown method"),
    38: _ignored("firmware's watchdog"),
    43: Code("a program's channel was stopped", "warn", "restart job", True, _FOLLOW),
    44: _ignored("a fault while contexts were switched"),
    45: Code(
        "a program's channels were removed",
        "warn",
        "restart job",
        True,
        f"{_FOLLOW}; alone, on a board with NVSwitches: did the fabric manager stop?",
    ),
    46: _reset("the GPU stopped processing"),
    48: _reset("a double-bit memory error", "171 beside it: DRAM; 172: SRAM"),
    54: _watched("auxiliary power is not connected", "seat the power cable of the board", "drain and inspect"),
    60: _app("an exception of the video processor"),
    62: _reset("a micro-controller of the GPU halted"),
    63: _watched("a row remap or page retirement was recorded", "it takes effect at the next reset", "reset GPU"),
    64: _reset("a row remap or page retirement could not be recorded", "remains it, the GPU is to be replaced"),
    66: _ignored("an illegal access by the driver"),
    67: _ignored("an illegal access by the driver"),
    69: _app("a program used an engine wrongly"),
    74: _reset("an NVLink error", "look at the links, both ends of them"),
    78: _watched("a virtual GPU could not start", "versions of host and guest driver", "fix configuration"),
    79: Code("the GPU fell off the bus", "fail", "reboot", False, "power, seating, riser, heat; AER lines before it"),
    80: _app("commands reached the GPU damaged"),
    92: _watched("many corrected memory errors", "watch for 48 and 64"),
    93: _watched("the infoROM is worn"),
    94: _watched("a memory error that was contained in one program", "reset it when convenient", "restart job"),
    95: _reset("a memory error that was not contained", "every program of the GPU is hit; an A100 without MIG: reboot"),
    106: _ignored("a test message of the management bus"),
    107: _ignored("a test message of the management bus"),
    109: _app("a switch of contexts took too long", "comes it again without a new job: reset the GPU"),
    110: _reset("a security fault"),
    119: _reset("the GPU's own processor (GSP) does not answer", "update the driver if it comes again"),
    120: _reset("an error of the GPU's own processor (GSP)", "update the driver if it comes again"),
    121: _ignored("a corrected error between CPU and GPU (C2C)"),
    136: _reset("a link could not be trained"),
    137: _app("a program reached over NVLink for memory that is not its own"),
    140: _reset("a memory error that could not be recorded"),
    141: _ignored("an error on CUDA's fast path"),
    142: _watched("an error of the video encoder", _SUPPORT),
    143: _reset("the GPU did not start"),
    151: Code("keys of confidential computing could not be changed", "fail", "reboot"),
    152: _ignored("an error of the DLA's memory unit"),
    153: _ignored("the DLA took too long"),
    155: _reset("an NVLink error that software defines"),
    156: _watched("a resource of the GPU was retired", "a reset takes it out of use", "reset GPU"),
    157: _watched("a resource of the GPU could not be retired", _SUPPORT, "drain and inspect"),
    158: _reset("the GPU took too long"),
    159: _watched("an error between CPU and GPU (CHI)", _SUPPORT, "drain and inspect"),
    160: _ignored("a memory channel was retired"),
    161: _ignored("a memory channel could not be retired"),
    162: _ignored("power smoothing is on again"),
    163: _watched("power smoothing went off", "heat; else load the driver again"),
    164: _watched("power smoothing wears out"),
    165: _watched("power smoothing is worn out"),
    166: _watched("traffic before a link was encrypted"),
    167: Code("PCIe took too long", "fail", "drain and inspect"),
    168: _watched("errors in protected memory", "switch ECC on, or reboot", "reboot"),
    169: Code("a micro-controller of the GPU halted", "fail", "drain and inspect"),
    170: _watched("an interrupt of confidential computing"),
    171: _reset("an uncorrected error in DRAM"),
    172: _reset("an uncorrected error in SRAM", "more than NVIDIA allows: ecc-sram-threshold says so"),
}

#: The driver's wish, of which the message has the number (``RECOVERY`` below), and errors of NVLink 5 (nvlink5.py).
RECOVERY_CHANGED = 154
NVLINK5 = range(144, 151)

#: In the catalogue without a meaning; nearly all of them for the support.
UNUSED = frozenset(
    (*range(1, 8), 9, 10, 12, *range(14, 25), *range(26, 31), *range(33, 37), 42, 47, *range(49, 54), 55, 56, 57)
    + (58, 59, 61, 65, 73, 81, 87, 90, 91, 108, *range(111, 119), 122, 123, 124, 125, 138)
)

#: Xid 154 by its number; the words changed over drivers ("PF FLR" and "GPU Reset Required" are both 1).
RECOVERY: t.Dict[int, t.Tuple[str, str]] = {
    1: ("a reset", "reset GPU"),
    2: ("a reboot", "reboot"),
    3: ("peer traffic to stop", "drain and inspect"),
    4: ("a reset after the work", "reset GPU"),
}

#: Classes of SXids. The ports of a fatal one stop, and GPUs behind them tell Xid 74.
_FATAL_HOST = (10003, 12020, 22003, 22011, *range(23001, 23018))
_FATAL_PORT = (
    *(11001, 11009, 11013, 11018, 11019, 11020, 12001, 12002, 12022, 12024, 12025, 12026, 12027, 12030, 12031, 12032),
    *(14017, 15001, 15006, 15009, 15010, 15012, 15013, 19047, 19048, 19054, 19056, 19058, 19060, 19061, 19063, 19064),
    *(19066, 19067, 19069, 19070, 20034, 24004, 24005, 24006, 24007),
)
_CORRECTED = (
    *(11012, 11021, 11022, 11023, 12021, 12023, 15008, 15011, 19049, 19055, 19057, 19059, 19062, 19065, 19068, 19071),
    *(24001, 24002, 24003),
)

_VM = "of a guest's port: restart that guest"

SXIDS: t.Dict[int, Code] = {
    **{
        code: Code("an NVSwitch stopped", "fail", "reboot", reason="the whole fabric starts again")
        for code in _FATAL_HOST
    },
    **{
        code: Code("a port of an NVSwitch stopped", "fail", "reset GPU", reason="all GPUs and switches")
        for code in _FATAL_PORT
    },
    **{code: _ignored("a corrected memory error of an NVSwitch") for code in _CORRECTED},
    10001: _watched("an illegal access to an NVSwitch"),
    10002: _watched("an access to an NVSwitch took too long"),
    10004: _watched("an NVSwitch is hot", "look at its cooling", "ask facility"),
    10005: _ignored("an NVSwitch is cool again"),
    11004: _watched("traffic that the partitions do not allow", _VM, "fix configuration"),
    12028: _watched("an access that a port refused", _VM),
    19084: _watched("a heartbeat of an NVSwitch is missing", "reset all GPUs and switches", "reset GPU"),
    20001: _ignored("a packet was sent again"),
    20009: _ignored("a short burst of errors on a link"),
    20012: _watched(
        "a link is broken at one end", "without a planned stop: look at its connectors", "drain and inspect"
    ),
    22013: _ignored("a link's controller asked for something"),
}


def unknown(code: int, told: str) -> Code:
    """Of a code that is in no table. ``told`` is the message: an SXid says itself whether it is fatal."""
    if " Fatal" in told:
        return Code("a fatal error without a published meaning", "fail", "drain and inspect", reason=_SUPPORT)
    known = "the catalogue gives it no meaning" if code in UNUSED else "it is in no table of this version"
    return _watched("an error without a published meaning", f"{known}; {_SUPPORT}")
