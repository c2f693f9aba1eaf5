# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Access control services (ACS) of the bridges around GPUs: read, and cleared at each start where the user wants it.

With redirection on, two devices below one switch reach each other through the root complex only: slow, and with some
switches not at all. It keeps devices of several virtual machines apart, so that it is never cleared unasked.

This file is also what the boot unit runs, alone, with nothing but Python: it imports only the standard library. As a
script it takes the folder of the devices, where it is not sysfs.
Layout: PCI Express Base Specification, extended capability 0x000D; control at its offset 6.
"""

from __future__ import annotations

import os
import re
import struct
import sys
import typing as t

DEVICES = "/sys/bus/pci/devices"
#: Bits of the control register: request, completion and upstream redirection. Source validation (1) and translation
#: blocking (2) alone slow nothing down.
REDIRECTION = 0x04 | 0x08 | 0x10
_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_ACS = 0x000D


def control(config: bytes) -> t.Optional[t.Tuple[int, int]]:
    """Offset and value of the control register, None where the device has none or not all was read (not root)."""
    place = 0x100
    seen: t.Set[int] = set()
    while 0x100 <= place <= len(config) - 8 and place not in seen:
        seen.add(place)
        (header,) = struct.unpack_from("<I", config, place)
        if header & 0xFFFF == _ACS:
            return place + 6, struct.unpack_from("<H", config, place + 6)[0]
        place = header >> 20
    return None


def bridges(devices: str = DEVICES) -> t.List[str]:
    """Addresses of all bridges that have a common root port with an NVIDIA GPU."""
    paths = {}
    for address in sorted(os.listdir(devices)):
        parts = os.path.realpath(os.path.join(devices, address)).split("/")
        paths[address] = [part for part in parts if _ADDRESS.match(part)]
    roots = {path[0] for address, path in paths.items() if path and _is_gpu(devices, address)}
    return [
        address
        for address, path in paths.items()
        if path and path[0] in roots and _read(devices, address, "class").startswith("0x0604")
    ]


def read(devices: str = DEVICES) -> t.Dict[str, t.Optional[int]]:
    """The control register of each of them; None where it cannot be read, absent where the bridge has none."""
    found: t.Dict[str, t.Optional[int]] = {}
    for address in bridges(devices):
        config = _config(devices, address)
        told = control(config)
        if told is not None:
            found[address] = told[1]
        elif len(config) <= 0x100:
            found[address] = None
    return found


def clear(devices: str = DEVICES) -> t.List[str]:
    """Clear the register of each bridge; why it could not be, by address, nothing where all are clear."""
    failed = []
    for address in bridges(devices):
        told = control(_config(devices, address))
        if told is None or told[1] == 0:
            continue
        try:
            with open(os.path.join(devices, address, "config"), "r+b", buffering=0) as file:
                file.seek(told[0])
                file.write(b"\0\0")
        except OSError as error:
            failed.append(f"{address}: {error.strerror}")
            continue
        now = control(_config(devices, address))
        if now is None or now[1] & REDIRECTION:
            failed.append(f"{address}: the register stays at {(now or told)[1]:#x}")
    return failed


def _is_gpu(devices: str, address: str) -> bool:
    return _read(devices, address, "vendor") == "0x10de" and _read(devices, address, "class")[:4] in ("0x03", "0x12")


def _read(devices: str, address: str, name: str) -> str:
    try:
        with open(os.path.join(devices, address, name), encoding="ascii", errors="replace") as file:
            return file.read().strip().lower()
    except OSError:
        return ""


def _config(devices: str, address: str) -> bytes:
    try:
        with open(os.path.join(devices, address, "config"), "rb") as file:
            return file.read(4096)
    except OSError:
        return b""


if __name__ == "__main__":
    PROBLEMS = clear(*sys.argv[1:2])
    for PROBLEM in PROBLEMS:
        sys.stderr.write(f"ACS is not cleared at {PROBLEM}\n")
    raise SystemExit(1 if PROBLEMS else 0)
