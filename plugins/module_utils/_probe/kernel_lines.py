# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of the kernel log that say something of GPUs, links, memory and the driver, collected as events. Pure.

A load of the driver takes back what the driver said before, and a reset of a GPU what was said of that GPU: a fault of
before is over. Alike events are one with a count, so that a flood stays small.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.address import normalise_address
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.patterns import lazy

Event = t.Dict[str, t.Any]

#: Different events that are kept; a broken host says the same thing over and over.
EVENTS_MOST = 400
#: Bytes of a line that are looked at; the kernel writes 1 KiB at most.
LINE_MOST = 2048
#: Characters of a message that are kept.
TEXT_MOST = 300

#: A piece of the log without any of these has nothing for us: searching for words is fast, and logs are long.
WORDS = tuple(
    word.encode()
    for word in (
        *("NVRM: ", "SXid", "PCIe Bus Error", "Hardware Error", "EDAC ", "pciehp", "blocked for more than"),
        *("soft lockup", "libnccl", "key is rejected", "Key was rejected", "nv_get_p2p", "[10de:", ": reset"),
        *("insufficient power on", "High Temperature"),
    )
)

#: Behind the driver's own beginning, "kernel: " is of a process's name, which a user chooses.
_PREFIX = lazy(r"^(?:\[[^\]]*\]\s*)*(?:(?!NVRM: )(?:\S.*? )?kernel: (?:\[[^\]]*\]\s*)*)?")
_ADDRESS = r"(?P<address>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_DEVICE = rf"^(?:(?P<driver>\S+) )?{_ADDRESS}: "

_XID = lazy(rf"^NVRM: Xid \((?:PCI:)?{_ADDRESS}[^)]*\)[^:]*: (?P<code>\d+)\b")
#: Besides the line that counts, an NVSwitch writes "Severity" and "Data" lines of the same code.
_SXID = lazy(rf"SXid \((?:PCI:)?{_ADDRESS}\): (?P<code>\d+), (?!Data |Severity )")
_LOADED = lazy(r"^NVRM: loading NVIDIA ")
_RESET = lazy(rf"{_DEVICE}(?:resetting|reset done|\[10de:[0-9a-f]{{4}}\] type )")
_NOTHING_WANTED = lazy(r"recovery action changed from 0x[0-9a-f]+ \([^)]*\) to 0x0\b")
_NAMED = lazy(rf"^NVRM: The NVIDIA GPU {_ADDRESS}")
_FALLEN = lazy(r"^NVRM:.*fallen off the bus")
_ANY_ADDRESS = lazy(_ADDRESS)
_NUMBERS = lazy(r"\((0x[0-9a-fA-F]{8} 0x[0-9a-fA-F]{8})\b")

#: What else is said, by name; what it means is in _checks/kernel_log.py. A group ``what`` keeps alike ones apart.
MESSAGES: t.Tuple[t.Tuple[str, t.Pattern[str]], ...] = tuple(
    (name, lazy(pattern))
    for name, pattern in (
        ("rm-init-failed", rf"^NVRM: GPU {_ADDRESS}: RmInitAdapter failed!"),
        ("open-module-required", r"^NVRM:.*requires use of the NVIDIA open kernel modules"),
        ("legacy-driver-required", r"^NVRM:.*(?:Legacy drivers|legacy driver)"),
        ("module-rejected", r"module with unavailable key is rejected|Key was rejected by service"),
        ("links-not-detected", r"knvlinkUpdatePostRxDetectLinkMask_\w*.*Failed to update"),
        ("peermem", r"nv_get_p2p_free_callback.*ERROR detected invalid context"),
        ("aer-fatal", rf"{_DEVICE}PCIe Bus Error: severity=Uncorrect\w* \(Fatal\)"),
        ("aer-nonfatal", rf"{_DEVICE}PCIe Bus Error: severity=Uncorrect\w*"),
        ("aer-corrected", rf"{_DEVICE}PCIe Bus Error: severity=Correct\w*"),
        ("link-down", rf"(?:{_DEVICE})?pciehp: Slot\((?P<what>[^)]*)\): (?:Link Down|Card not present)"),
        ("memory-uncorrected", r"EDAC \S+ \d+ UE |Hardware Error\]: .*severity: (?:fatal|recoverable)"),
        ("machine-check", r"mce: \[Hardware Error\]: (?:CPU \d+: Machine Check|Machine check)"),
        ("memory-corrected", r"EDAC \S+ \d+ CE |Hardware Error\]: .*severity: corrected"),
        ("task-hung", r"INFO: task (?P<what>.{1,32}?):\d+ blocked for more than"),
        ("cpu-stuck", r"BUG: soft lockup"),
        ("nccl-crashed", r"segfault at .* in libnccl"),
        ("nic-power", rf"(?:{_DEVICE})?mlx5_pcie_event.*insufficient power on the PCIe slot"),
        (
            "nic-heat",
            rf"(?:{_DEVICE}mlx5_port_module_event:\d+:\(pid \d+\): )?Port module event\[error\].*High Temperature",
        ),
    )
)
#: They end with the driver that said them.
OF_DRIVER = frozenset(("rm-init-failed", "open-module-required", "legacy-driver-required", "module-rejected"))
OF_DRIVER |= frozenset(("links-not-detected", "peermem"))


def message_of(line: str) -> str:
    """The message without what dmesg, journalctl or syslog put before it."""
    return line[_PREFIX.match(line).end() :].strip()  # type: ignore[union-attr]


def readable(data: bytes) -> str:
    """Odd bytes (names of processes) and control characters shown, never lost, and never sent to a terminal."""
    text = data[:LINE_MOST].decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


class Collector:
    """Events so far, fed line by line in the order of the log."""

    def __init__(self, events: t.Iterable[Event] = (), since: str = "", since_us: t.Optional[int] = None) -> None:
        self._events: t.Dict[t.Tuple[t.Any, ...], Event] = {_key(event): dict(event) for event in events}
        #: What the events are since: ``driver load``, ``acknowledgement``, or "" for the start of the log.
        self.since = since
        self.since_us = since_us
        #: Different events for which there was no room.
        self.dropped = 0
        self._named = ""

    @property
    def events(self) -> t.List[Event]:
        """In the order in which they came first."""
        return list(self._events.values())

    def forget(self, since: str, since_us: t.Optional[int]) -> None:
        """Somebody knows of all that was said until now."""
        self._events.clear()
        self.since, self.since_us = since, since_us

    def feed(self, usec: t.Optional[int], line: str) -> None:
        """One line; ``usec`` is microseconds since boot, None where it is not told."""
        message = message_of(line[:LINE_MOST])
        if message.startswith("NVRM: "):
            self._driver(usec, message)
            return
        switch = _SXID.search(message)
        if switch:
            self._add("sxid", usec, message, switch.group("address"), code=int(switch.group("code")))
            return
        again = _RESET.match(message)
        if again:
            self._drop(lambda event: event["address"] == normalise_address(again.group("address")))
            return
        self._message(usec, message)

    def _driver(self, usec: t.Optional[int], message: str) -> None:
        if _LOADED.match(message):
            self._drop(lambda event: event["kind"] != "message" or event["name"] in OF_DRIVER)
            self.since, self.since_us = "driver load", usec
            return
        xid = _XID.match(message)
        if xid:
            code, address = int(xid.group("code")), xid.group("address")
            if code == 154 and _NOTHING_WANTED.search(message):
                self._drop(lambda event: event["address"] == _whole(address))
                return
            numbers = _NUMBERS.search(message) if 144 <= code <= 150 else None
            self._add("xid", usec, message, address, code=code, what=numbers.group(1) if numbers else "")
            return
        named = _NAMED.match(message)
        if named:
            self._named = named.group("address")
        if _FALLEN.match(message):
            address = _ANY_ADDRESS.search(message)
            self._add("xid", usec, message, address.group() if address else self._named, code=79)
            return
        self._message(usec, message)

    def _message(self, usec: t.Optional[int], message: str) -> None:
        for name, pattern in MESSAGES:
            found = pattern.search(message)
            if found:
                groups = found.groupdict()
                address = groups.get("address") or (self._named if name.endswith("-required") else "")
                self._add("message", usec, message, address, name=name, what=groups.get("what") or "")
                return

    def _add(self, kind: str, usec: t.Optional[int], message: str, address: str, **fields: t.Any) -> None:
        event: Event = {"kind": kind, "code": None, "name": "", "what": "", **fields}
        event.update(address=_whole(address) if address else "", count=1, first_us=usec, last_us=usec)
        event["text"] = message[:TEXT_MOST]
        before = self._events.get(_key(event))
        if before is not None:
            before.update(count=before["count"] + 1, last_us=usec, text=event["text"])
        elif len(self._events) >= EVENTS_MOST:
            self.dropped += 1
        else:
            self._events[_key(event)] = event

    def _drop(self, which: t.Callable[[Event], bool]) -> None:
        self._events = {key: event for key, event in self._events.items() if not which(event)}


def _key(event: Event) -> t.Tuple[t.Any, ...]:
    return tuple(event[name] for name in ("kind", "code", "name", "address", "what"))


def _whole(address: str) -> str:
    """The driver leaves the function out (``0000:9b:00``): it is 0 of a GPU and of an NVSwitch."""
    return normalise_address(address if "." in address else f"{address}.0")
