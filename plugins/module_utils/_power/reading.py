# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a BMC says of power and cooling, in one form whoever was asked (docs/architecture.md, the reading).

Everything that was not told is None: a supply whose input is not told has no input of "yes".
"""

from __future__ import annotations

import math
import re
import threading
import typing as t

Reading = t.Dict[str, t.Any]

#: Texts of a BMC are shown to people: not more than this of them, in characters.
TEXT_LIMIT = 200
_T = t.TypeVar("_T")


class Trouble(Exception):
    """A question that got no usable answer. ``state`` is one of

    silent (no answer in time, no connection), refused (the login was refused: it is never tried again), untrusted
    (certificate), malformed (an answer that is none), missing (there is no such thing), forbidden (the login may not
    ask this).
    """

    def __init__(self, state: str, text: str) -> None:
        super().__init__(text)
        self.state = state


def reading(source: str, where: str, state: str = "ok", error: str = "") -> Reading:
    """An empty reading. ``source`` is redfish, ipmi or none."""
    return {
        "source": source,
        "where": where,
        "state": state,
        "error": error,
        "supplies": [],
        "redundancy": [],
        "fans": [],
        "inlets": [],
        "leaks": [],
        "consumed_w": None,
        "events": None,
        "errors": {},
    }


def supply(name: str, **known: t.Any) -> t.Dict[str, t.Any]:
    """One power supply: what is known of it, None for the rest. ``text`` is what the BMC said, for a person."""
    blank: t.Dict[str, t.Any] = dict.fromkeys(
        ("serial", "model", "present", "input_lost", "failed", "predicted", "capacity_w", "input_v", "input_w")
    )
    return {"name": name, **blank, "text": "", **known}


#: 3,300 W is 3300 to some and 3.3 to others: nobody knows.
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}\Z")
_NUMBER = re.compile(r"[-+]?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?")


def number(value: t.Any) -> t.Optional[float]:
    """A number, also from text such as ``23,5`` or ``24 degrees C``; None where it is none or no finite one."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str):
        told = value.strip()
        match = _NUMBER.match(told)
        if match is None or told[match.end() : match.end() + 1] in (".", ",") or _THOUSANDS.match(match[0]):
            return None
        value = match[0].replace(",", ".")
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def text(value: t.Any) -> str:
    """Something of a BMC's for a person: one line, printable, not long."""
    if value is None:
        return ""
    line = " ".join("".join(char if char.isprintable() else " " for char in str(value)).split())
    return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 3] + "..."


def within(seconds: float, call: t.Callable[[], _T]) -> _T:
    """What ``call`` returns or raises, or Trouble where it takes longer.

    The limits of sockets are for one read each: a name that is not resolved, or a BMC that sends a byte now and then,
    stays within them for ever. The thread that is left behind ends with this process.
    """
    done: t.List[t.Tuple[bool, t.Any]] = []

    def work() -> None:
        try:
            done.append((True, call()))
        except BaseException as error:  # pylint: disable=broad-except
            done.append((False, error))

    if seconds <= 0:
        raise Trouble("silent", "no time was left to ask")
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if not done:
        raise Trouble("silent", f"no whole answer within {seconds:.3g} s")
    good, value = done[0]
    if not good:
        raise value
    return t.cast("_T", value)


#: A supply without input, as BMCs write it beside whatever status (IPMI 2.0 table 42-3, sensor type 08h, bits 3 to 5).
INPUT_LOST = re.compile(r"(ac|input|power) (is )?lost|lost (ac|input)|no (ac|input)|out[- ]of[- ]range", re.IGNORECASE)
_INLET = re.compile(r"inlet|intake|ambient|front panel temp", re.IGNORECASE)
#: Of a GPU, a network card or a supply: their air is warmed by what stands before them.
_NOT_THE_HOSTS = re.compile(r"gpu|psu|ps\d|nic|mlx|pcie|hdd|m\.2|outlet", re.IGNORECASE)


def is_inlet(name: str) -> bool:
    """Whether a temperature sensor is that of the air that enters the host, by its name."""
    return bool(_INLET.search(name)) and not _NOT_THE_HOSTS.search(name)
