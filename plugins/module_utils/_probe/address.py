# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One way to write a PCI address."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"^(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])$")


def normalise_address(text: str) -> str:
    """A PCI address as sysfs writes it, of any way to write it (``00000000:1B:00.0``, ``1b:00.0``).

    What is no address comes back in lower case, so that it can still be named.
    """
    match = _ADDRESS.match(text.strip())
    if match is None:
        return text.strip().lower()
    domain, bus, slot, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(slot, 16):02x}.{function}"
