# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel said since the driver was loaded, the GPU was reset or somebody acknowledged it.

No Xid is a statement about a log that was read, and none about one that was not. The driver's own recovery action,
where it has one, outweighs an older Xid 154: when it wants nothing any more, the GPU was reset in between.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import nvlink5, xid
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    Judged,
    Observation,
    ok,
    skip,
    unknown,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.kernel_events import (
    NO_LOG,
    Event,
    by_subject,
    gpu_at,
    place_of,
    since,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import About, HostCheck, host_check
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Subject
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.visibility import CONTAINERS

#: GPUs that fall off the bus within this time fell together. Microseconds.
TOGETHER_US = 60_000_000
FELL = 79


@host_check("kernel-log", "report", "kernel_log")
def kernel_log(observed: Observation) -> Judged:
    """Whether the kernel log could be read from where the last look ended. Lines that were overwritten before they were
    read (a network card that complains by the second does it) may have been an Xid; "not observable" and "no Xid" are
    two findings (NVIDIA/NVSentinel). A container has no log of its own."""
    log = observed["kernel_log"]
    expected = f"every line {since(log)}"
    if log["source"] == "none":
        if observed["host"]["virtualization"] in CONTAINERS | {"wsl"}:
            return skip("the kernel log is that of the machine around this one")
        return unknown(log["error"], expected, "fix configuration", "look as root, or as a member of adm")
    if log["error"]:
        return unknown(log["error"], expected, "none", f"read so far: {log['source']}")
    if not log["complete"] or log["lost"]:
        return unknown(
            log["lost"], expected, "none", "an Xid may have been among them; the GPUs' own state still speaks"
        )
    return ok(f"read {since(log)}")


@host_check("xid", "block", "kernel_log")
def xids(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Errors that the driver reports of a GPU (Xid), but for those of a user's program. A fault where NVIDIA's
    catalogue wants a reset, a reboot or its support; a warning where it says to watch. 144 to 150 (NVLink 5) are
    decoded by the driver's version. GPUs that fell off the bus together name the bridge above them: it, its power or
    its cable failed, not each of them."""
    log = observed["kernel_log"]
    if log["source"] == "none":
        return NO_LOG
    events = [event for event in log["events"] if event["kind"] == "xid"]
    events = [event for event in events if not _reset_since(event, events, observed)]
    together = _fell_together(events, observed)
    single = [event for event in events if not any(event in group for _bridge, group in together)]
    parts = [_bridge_finding(bridge, group, observed) for bridge, group in together]
    parts += by_subject(single, lambda event: _xid(event, observed), False, observed)
    return parts or ok(f"none {since(log)}")


@host_check("xid-user", "report", "kernel_log")
def user_xids(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Xids that a user's program causes in almost every case: illegal access (13, 31), stopped channels (43, 45), video
    (68), a class error (69), a slow switch (109), and those for which the catalogue says to start the application
    again. They wake nobody; on one GPU under different jobs, test that GPU."""
    log = observed["kernel_log"]
    if log["source"] == "none":
        return NO_LOG
    events = [event for event in log["events"] if event["kind"] == "xid"]
    return by_subject(events, lambda event: _xid(event, observed), True, observed) or ok(f"none {since(log)}")


@host_check("sxid", "block", "kernel_log")
def sxids(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Errors of an NVSwitch (SXid): one that is fatal to a port or to the switch is a fault, for which all GPUs and
    switches are reset or the host reboots (NVIDIA, Fabric Manager user guide, appendix D); corrected ones are none."""
    log = observed["kernel_log"]
    if log["source"] == "none":
        return NO_LOG
    events = [event for event in log["events"] if event["kind"] == "sxid"]
    return by_subject(events, _sxid, False, observed) or ok(f"none {since(log)}")


def _xid(event: Event, observed: Observation) -> xid.Code:
    code, told = event["code"], event["text"]
    if code in xid.NVLINK5:
        return nvlink5.decode(code, told, str(observed["driver"].get("version") or ""))
    if code == xid.RECOVERY_CHANGED:
        number = _wanted(event)
        wish, action = xid.RECOVERY.get(number, (f"action {number}", "drain and inspect"))
        return xid.Code(f"the driver wants {wish}", "fail" if number else "ok", action if number else "none")
    return xid.XIDS.get(code) or xid.unknown(code, told)


def _sxid(event: Event) -> xid.Code:
    return xid.SXIDS.get(event["code"]) or xid.unknown(event["code"], event["text"])


def _wanted(event: Event) -> int:
    """The number of Xid 154; of a line without one, a number that no table has."""
    number = re.search(r" to 0x([0-9a-fA-F]+)", event["text"])
    return int(number.group(1), 16) if number else -1


def _reset_since(event: Event, events: t.Sequence[Event], observed: Observation) -> bool:
    """Whether the driver wanted something of this GPU at or after this event, and wants nothing now."""
    gpu = gpu_at(event["address"], observed)
    if gpu is None or gpu["recovery_action"] != "none":
        return False
    wishes = [one for one in events if one["code"] == xid.RECOVERY_CHANGED and one["address"] == event["address"]]
    return any(
        _wanted(wish)
        and wish["last_us"] is not None
        and event["last_us"] is not None
        and wish["last_us"] >= event["last_us"]
        for wish in wishes
    )


# ---- several GPUs behind one bridge ----


def _fell_together(events: t.Sequence[Event], observed: Observation) -> t.List[t.Tuple[str, t.List[Event]]]:
    """Bridges under which two GPUs or more fell off the bus at once: for each GPU the lowest that explains most."""
    paths: t.Mapping[str, t.Sequence[str]] = observed.get("pci_paths") or {}
    fallen = [event for event in events if event["code"] == FELL and paths.get(event["address"])]
    below: t.Dict[str, t.List[Event]] = {}
    for event in fallen:
        for bridge in paths[event["address"]]:
            below.setdefault(bridge, []).append(event)
    found: t.List[t.Tuple[str, t.List[Event]]] = []
    # The widest group first; of bridges with the same group the lowest, which comes last on every path.
    depth = {bridge: path.index(bridge) for path in paths.values() for bridge in path}
    for bridge in sorted(below, key=lambda bridge: (-len(below[bridge]), -depth[bridge])):
        group = [event for event in below[bridge] if not any(event in other for _bridge, other in found)]
        if len(group) > 1 and _at_once(group):
            found.append((bridge, group))
    return found


def _at_once(group: t.Sequence[Event]) -> bool:
    times = [event["last_us"] for event in group]
    return None in times or max(times) - min(times) <= TOGETHER_US


def _bridge_finding(bridge: str, group: t.Sequence[Event], observed: Observation) -> About:
    paths = observed["pci_paths"]
    under = sum(1 for path in paths.values() if bridge in path)
    names = [place_of(event["address"], observed)[1].rstrip(": ") for event in group]
    judged = Judged(
        "fail",
        f"{len(group)} GPUs fell off the bus at once, of {under} under the PCI bridge {bridge}: {', '.join(names)}",
        "no such line in the kernel log",
        "drain and inspect",
        "what they share failed: the switch or port, its power, its cable or riser; then reboot",
    )
    return About(Subject("link", bridge), judged, {"events": [dict(event) for event in group]})


CHECKS: t.Tuple[HostCheck, ...] = (kernel_log, xids, sxids, user_xids)
