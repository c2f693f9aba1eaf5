# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the firmware trusts the key with which DKMS signs the modules that it builds: read from shim's own lists.

shim keeps the machine owner's keys in the variables MokListRT, MokListRT1 and so on, and what mokutil asked for until
the next start in MokNew; each holds the certificates as they are (rhboot/shim, MokVars.txt).
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Where DKMS keeps its certificate: Ubuntu's shares it with shim, Debian's and RHEL's do not.
CERTIFICATES = ("/var/lib/shim-signed/mok/MOK.der", "/var/lib/dkms/mok.pub")
VARIABLES = "/sys/firmware/efi/efivars"
#: Of shim.
GUID = "605dab50-e046-4300-abb6-3dd810dd8b23"
#: The kernel's own copy, which has no limit of size.
COPIES = "/sys/firmware/efi/mok-variables"


def certificate(runner: Runner) -> str:
    """The file of the certificate that DKMS signs with, "" where it has made none yet."""
    return next((path for path in CERTIFICATES if runner.exists(path)), "")


def probe(runner: Runner) -> t.Optional[str]:
    """``enrolled``, ``requested``, ``not_enrolled`` or ``no_key``; None on a machine without UEFI."""
    if not runner.exists("/sys/firmware/efi"):
        return None
    path = certificate(runner)
    key = runner.read_bytes(path) if path else None
    if not key:
        return "no_key"
    if any(key in data for data in _lists(runner, "MokListRT")):
        return "enrolled"
    return "requested" if any(key in data for data in _lists(runner, "MokNew")) else "not_enrolled"


def _lists(runner: Runner, name: str) -> t.Iterator[bytes]:
    for folder, tail in ((VARIABLES, f"-{GUID}"), (COPIES, "")):
        for entry in runner.listdir(folder):
            number = entry[len(name) :][: len(entry) - len(name) - len(tail)]
            if entry.startswith(name) and entry.endswith(tail) and (number == "" or number.isdigit()):
                yield runner.read_bytes(f"{folder}/{entry}") or b""
