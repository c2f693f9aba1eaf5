# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fingerprints of the keys in an OpenPGP file, without a tool: a fresh host has none that prints them. Pure.

Packets, ASCII armour and fingerprints are described in RFC 4880, sections 4.2, 6.2 and 12.2, and RFC 9580, 5.5.4.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import typing as t

_PUBLIC_KEY = 6
#: NVIDIA's, revoked in April 2022 (NVIDIA/deepops#1167); who still trusts it alone knows no repository of today.
REVOKED = ("AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80",)


def known(key: t.Optional[bytes]) -> t.List[str]:
    """The same as fingerprints, none of what is not there or holds no key."""
    try:
        return fingerprints(key) if key else []
    except (ValueError, IndexError):
        return []


def fingerprints(data: bytes) -> t.List[str]:
    """The fingerprint of each primary key, upper case. Raises ValueError where the data hold no key."""
    found = [_fingerprint(body) for tag, body in _packets(_dearmour(data)) if tag == _PUBLIC_KEY]
    if not found:
        raise ValueError("no OpenPGP key in it")
    return found


def _dearmour(data: bytes) -> bytes:
    blocks = re.findall(
        rb"-----BEGIN PGP PUBLIC KEY BLOCK-----\r?\n(?:[\w-]+: .*\r?\n)*\r?\n?(.*?)(?:\r?\n=\S{4})?\s*-----END PGP",
        data,
        re.DOTALL,
    )
    try:
        return b"".join(base64.b64decode(block) for block in blocks) if blocks else data
    except binascii.Error as error:
        raise ValueError(f"damaged armour: {error}") from None


def _packets(data: bytes) -> t.Iterator[t.Tuple[int, bytes]]:
    at = 0
    while at < len(data):
        head = data[at]
        if not head & 0x80:
            raise ValueError("it is no OpenPGP file")
        if head & 0x40:  # the new form
            tag, first = head & 0x3F, data[at + 1]
            if first < 192:
                length, at = first, at + 2
            elif first < 224:
                length, at = ((first - 192) << 8) + data[at + 2] + 192, at + 3
            elif first == 255:
                length, at = int.from_bytes(data[at + 2 : at + 6], "big"), at + 6
            else:
                raise ValueError("a key of partial length, which no key has")
        else:
            size = head & 0x03
            if size == 3:
                raise ValueError("a key of no length, which no key has")
            tag, width = (head >> 2) & 0x0F, 1 << size
            length, at = int.from_bytes(data[at + 1 : at + 1 + width], "big"), at + 1 + width
        yield tag, data[at : at + length]
        at += length


def _fingerprint(body: bytes) -> str:
    if body[:1] == b"\x04":
        return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
    if body[:1] == b"\x06":
        return hashlib.sha256(b"\x9b" + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise ValueError(f"a key of version {body[0] if body else 'none'}, which is not known")
