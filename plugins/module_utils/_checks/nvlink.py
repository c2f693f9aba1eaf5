# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink: links that are down, slow or with errors, and whether GPUs reach each other's memory.

A GPU on a PCIe card has its links although no bridge joins them; two of three bridges are a choice, not a fault; a
virtual machine gets a part of the board. Only a board whose GPUs hang on NVSwitches has to have all links up.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    Check,
    Gpu,
    Judged,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)

#: Models that are sold with a part of their links (export variants): those that are up are compared with siblings only.
CUT = ("A800", "H800")


def switched(gpu: Gpu) -> bool:
    """Whether all links of this GPU must be up: a whole board on NVSwitches, on bare metal or passed on as a whole."""
    switches = any(device.get("role") == "nvswitch" for device in gpu.observed["pci"])
    fabric = gpu.known("fabric.state") == "completed"
    whole = gpu.observed["host"]["virtualization"] == "none" or len(gpu.siblings()) >= 7
    return (switches or fabric) and whole and bool(gpu.siblings())


def bridged(gpu: Gpu) -> bool:
    """Whether somebody chose which GPUs are joined, and by how many links: cards, and parts of a board."""
    return not switched(gpu) and "SXM" not in str(gpu["name"])


@check("nvlink-links", "block", "nvlink.count", "nvlink.active")
def nvlink_links(gpu: Gpu) -> Judged:
    """Links that are up. On a board with NVSwitches all of them (NVIDIA's health validation: 0 inactive on A100, H100,
    GB200); elsewhere as many as a sibling has. A card with none up has no bridge."""
    count, active = gpu["nvlink.count"], gpu["nvlink.active"]
    if not count:
        return skip("no NVLink")
    down = ", ".join(str(link) for link in gpu.known("nvlink.inactive_links") or [])
    found = f"{active} of {count} links up" + (f"; down: {down}" if down and active else "")
    others = [
        other for other in (sibling.known("nvlink.active") for sibling in gpu.siblings()) if isinstance(other, int)
    ]
    if active == count:
        return ok(found)
    if others and active < max(others) and not (bridged(gpu) and not active):
        expected = f"{max(others)}, as its siblings have"
        if bridged(gpu):
            return warn(found, expected, "drain and inspect", "a bridge is loose, or was left out on purpose")
        return fail(found, expected, "drain and inspect", "reset all GPUs of the board first")
    if switched(gpu) and not any(name in str(gpu["name"]) for name in CUT):
        reason = "all GPUs alike: an NVSwitch or the fabric manager" if active else "is the fabric manager running?"
        return fail(found, f"{count} links up", "drain and inspect", reason)
    return ok(found) if active else skip("no bridge and no NVSwitch joins its links")


@check("nvlink-speed", "block", "nvlink.speed_mbps")
def nvlink_speed(gpu: Gpu) -> Judged:
    """Speed of the links: slower than those of a sibling of the same model."""
    speed = gpu["nvlink.speed_mbps"]
    if not gpu.known("nvlink.active"):
        return skip("no link is up")
    others = [one for one in (sibling.known("nvlink.speed_mbps") for sibling in gpu.siblings()) if isinstance(one, int)]
    if others and speed < max(others):
        return fail(
            f"{speed} MB/s a link", f"{max(others)}, as its siblings have", "drain and inspect", "trained slower"
        )
    return ok(f"{speed} MB/s a link")


@check("nvlink-errors", "report")
def nvlink_errors(gpu: Gpu) -> Judged:
    """Errors of all links since the driver was loaded: any replay or recovery (DCGM: 1 or more). CRC errors matter from
    100 a second on (DCGM), which a count does not tell. The past wakes nobody; growth would be a fault."""
    counts = {name: gpu[f"nvlink.errors.{name}"] for name in ("replay", "recovery")}
    known = {name: value for name, value in counts.items() if isinstance(value, int)}
    if any(known.values()):
        text = ", ".join(f"{name} {value}" for name, value in known.items())
        return warn(
            f"link errors since the driver was loaded: {text}", "0", reason="look again after a job: do they grow?"
        )
    if None in counts.values():
        return unknown("the error counters cannot be read", "counters", "drain and inspect")
    if not known:
        return skip("no NVLink, or its errors are not counted")
    return ok("no replay, no recovery")


@check("peer-access", "block", "nvlink.active")
def peer_access(gpu: Gpu) -> Judged:
    """Whether a GPU with NVLink reads the memory of its siblings that have it too (DCGM_FR_BROKEN_P2P_*). Over PCIe
    alone, and between cards with bridges, it is not asked for."""
    square = gpu.observed["nvml"].get("p2p_read")
    peers = [sibling for sibling in gpu.siblings() if sibling.known("nvlink.active")]
    if not square or not gpu["nvlink.active"] or not peers:
        return skip("no sibling joined by NVLink, or no matrix of peers was read")
    if bridged(gpu):
        return skip("which GPUs the bridges join is not told")
    words = {int(peer["index"]): square[gpu["index"]][peer["index"]] for peer in peers}
    broken = ", ".join(f"GPU {index}: {word}" for index, word in sorted(words.items()) if word not in ("ok", None))
    if broken:
        return fail(f"no peer access to {broken}", "peer access over NVLink", "drain and inspect")
    if None in words.values():
        return unknown("peer access cannot be read", "a matrix of peers", "drain and inspect")
    return ok("peer access to all that NVLink joins")


CHECKS: t.Tuple[Check, ...] = (nvlink_links, nvlink_speed, nvlink_errors, peer_access)
