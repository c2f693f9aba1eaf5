# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom to ask about power and cooling, and one reading of it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import ipmi, redfish
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import reading as form
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.login import Login
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.reading import Reading
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.web import Bmc, Web
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result, Runner

#: ipmitool reads the password from here: an argument would be seen by every user of the machine.
PASSWORD = "IPMI_PASSWORD"
DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
#: The firmware's entry of an IPMI controller (SMBIOS type 38).
FIRMWARE = "/sys/firmware/dmi/entries/38-0"


@dataclass(frozen=True)
class Ipmi:
    """How to speak IPMI over the network: ``cipher`` is the suite, 17 since 2015, 3 before."""

    port: int = 623
    cipher: int = 17
    privilege: str = "user"


def read(protocol: str, bmc: Bmc, ipmi_options: Ipmi, runner: Runner, virtualization: str, logins: str = "") -> Reading:
    """One reading, dated. ``protocol`` is redfish or ipmi; without a host of the BMC it is the machine's own.

    ``logins``: the folder in which refused logins are remembered. IPMI has none: its words for a refusal and for
    silence are the same, and a client sees a wrong password before it sends its proof of it (RAKP 2).
    """
    if bmc.host and protocol == "redfish":
        web = Web(bmc, Login(logins, bmc.host, bmc.user, bmc.password) if logins else None)
        try:
            found = redfish.read(web.get, bmc.host)
        finally:
            web.close()
    elif bmc.host:
        found = ipmi.read(_over_lan(bmc, ipmi_options, runner), bmc.host, bmc.limit)
    else:
        found = _own(bmc.limit, runner, virtualization)
    found["observed_at"] = _finding.now()
    return found


def _own(limit: float, runner: Runner, virtualization: str) -> Reading:
    """The machine's own BMC. Only a physical machine's tells of this machine."""
    if virtualization not in ("none", "unknown"):
        why = f"this is a virtual machine or container ({virtualization}): its power and cooling are its owner's"
        return form.reading("none", "in-band", "none", why)
    if not any(runner.exists(path) for path in DEVICES):
        if runner.exists(FIRMWARE):
            return form.reading(
                "ipmi",
                "in-band",
                "missing",
                "the firmware names a BMC, and /dev/ipmi0 is not there: modprobe ipmi_devintf",
            )
        return form.reading("none", "in-band", "none", "no BMC is known of: there is no /dev/ipmi0 and none was named")
    return ipmi.read(lambda argv, seconds: runner.run(["ipmitool", "-I", "open", *argv], seconds), "in-band", limit)


def _over_lan(bmc: Bmc, options: Ipmi, runner: Runner) -> ipmi.Ask:
    inner = Runner(runner.root, {**runner.env, PASSWORD: bmc.password})
    start = ["ipmitool", "-I", "lanplus", "-H", bmc.host, "-p", str(options.port), "-U", bmc.user, "-E"]
    start += ["-C", str(options.cipher), "-L", options.privilege, "-N", "2", "-R", "2"]

    def ask(argv: t.Sequence[str], seconds: float) -> Result:
        return inner.run([*start, *argv], seconds)

    return ask
