# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCIe paths of GPUs and RDMA adapters: who is near whom, lanes as they are now, NUMA nodes, ACS. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.acs import REDIRECTION
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.model import nearness

Facts = t.Mapping[str, t.Any]
#: Devices that a person reads before the rest is counted.
SHOWN = 4


def gpu_nic_affinity(topology: Facts) -> Finding:
    """Whether each GPU has an RDMA adapter near it: behind one switch best, on its NUMA node at least.

    It is asked where there are at least half as many adapters as GPUs; fewer were never meant for a GPU each.
    """
    gpus, nics = topology["gpus"], topology["nics"]
    if not nics or 2 * len(nics) < len(gpus):
        reason = "no RDMA adapter" if not nics else f"{len(nics)} RDMA adapters for {len(gpus)} GPUs are shared"
        return Finding("gpu-nic-affinity", "not_applicable", reason=reason, policy="report")
    order = ("bridge", "node", "unknown", "far")
    near: t.Dict[str, t.Dict[str, t.List[str]]] = {}
    for address, gpu in gpus.items():
        found: t.Dict[str, t.List[str]] = {}
        for other, nic in nics.items():
            found.setdefault(nearness(gpu, nic), []).append(next(iter(nic["names"]), other))
        best = next(level for level in order if level in found)
        near[address] = {best: found[best]}
    evidence = {"near": near}
    levels = {next(iter(one)) for one in near.values()}
    far = [_gpu_label(topology, address) for address, one in near.items() if "far" in one]
    if far:
        return Finding(
            "gpu-nic-affinity",
            "warn",
            found=f"no RDMA adapter on the NUMA node of {', '.join(far)}",
            expected="one beside each GPU",
            reason="an adapter is missing, or sits in another slot",
            policy="report",
            evidence=evidence,
        )
    if levels == {"unknown"}:
        return Finding(
            "gpu-nic-affinity",
            "not_applicable",
            reason="this machine tells no NUMA node of its devices",
            policy="report",
            evidence=evidence,
        )
    words = {"bridge": "behind one switch with it", "node": "on its NUMA node", "unknown": "at an untold place"}
    text = ", ".join(words[level] for level in order if level in levels)
    return Finding(
        "gpu-nic-affinity", "ok", found=f"each GPU has an adapter {text}", policy="report", evidence=evidence
    )


def _gpu_label(topology: Facts, address: str) -> str:
    index = topology["gpus"][address].get("index")
    return f"GPU at {address}" if index is None else f"GPU {index} at {address}"


def nic_link(topology: Facts) -> Finding:
    """Lanes and speed of the RDMA adapters, as they are now: NCCL reads the maximum, and a degraded link only is slow.

    Fewer lanes than a like adapter of the host are a fault; all alike below the maximum is how the slots are wired.
    """
    nics = topology["nics"]
    told = {address: nic for address, nic in nics.items() if nic["width"] and _gts(nic["speed"])}
    slow = []
    for address, nic in told.items():
        alike = [other for other in told.values() if (other["width_max"], other["speed_max"]) ==
                 (nic["width_max"], nic["speed_max"])]  # fmt: skip
        lanes = max(other["width"] for other in alike)
        if nic["width"] < lanes:
            slow.append(f"{nic_label(nic, address)}: x{nic['width']} of x{lanes}")
        elif _gts(nic["speed"]) < max(_gts(other["speed"]) for other in alike):
            slow.append(f"{nic_label(nic, address)}: {nic['speed']}")
    if not told:
        reason = "no RDMA adapter" if not nics else "this machine does not tell the links of its adapters"
        return Finding("nic-link", "not_applicable", reason=reason, policy="report")
    if slow:
        return Finding(
            "nic-link",
            "warn",
            found="slower than its like, now: " + "; ".join(slow[:SHOWN]),
            expected="lanes and speed as the other adapters have",
            action="drain and inspect",
            reason="trained slower: seat, riser or slot",
            policy="report",
        )
    if len(told) < len(nics):
        untold = [nic_label(nic, address) for address, nic in nics.items() if address not in told]
        return Finding(
            "nic-link",
            "unknown",
            found=f"the link is not told of {', '.join(untold[:SHOWN])}",
            expected="lanes and speed, as the other adapters have",
            action="drain and inspect",
            policy="report",
        )
    links = sorted({f"x{nic['width']} {nic['speed']}" for nic in told.values()})
    return Finding("nic-link", "ok", found=f"{len(nics)} adapters, now: {', '.join(links)}", policy="report")


def nic_label(nic: Facts, address: str) -> str:
    """How a person finds an adapter."""
    return f"{next(iter(nic['names']), 'adapter')} at {address}"


def _gts(text: t.Optional[str]) -> float:
    try:
        return float((text or "").split(" ", 1)[0])
    except ValueError:
        return 0.0


def bridge_link(topology: Facts) -> t.List[Finding]:
    """Lanes of the bridges above the GPUs, now, against those of the same place above other GPUs.

    A switch whose way up to the CPU lost lanes slows all below it; neither NVML nor NCCL shows it.
    """
    places: t.Dict[t.Tuple[int, t.Optional[int]], t.Dict[str, int]] = {}
    for gpu in topology["gpus"].values():
        for depth, address in enumerate(gpu["parents"]):
            bridge = topology["bridges"].get(address, {})
            if bridge.get("width"):
                places.setdefault((depth, bridge["width_max"]), {})[address] = bridge["width"]
    slow = [f"{address}: x{width} of x{max(alike.values())}" for alike in places.values()
            for address, width in alike.items() if width < max(alike.values())]  # fmt: skip
    if not slow:
        return []
    return [
        Finding(
            "bridge-link",
            "warn",
            found="a bridge above GPUs has fewer lanes than its like, now: " + "; ".join(slow[:SHOWN]),
            expected="as many lanes as the bridges above the other GPUs",
            action="drain and inspect",
            policy="report",
        )
    ]


def numa_nodes(topology: Facts, virtual: bool) -> Finding:
    """Whether the firmware names the NUMA node of each GPU: without it NCCL hangs them all on one unknown CPU."""
    untold = [_gpu_label(topology, address) for address, gpu in topology["gpus"].items() if gpu["numa_node"] is None]
    if not untold:
        nodes = sorted({gpu["numa_node"] for gpu in topology["gpus"].values()})
        text = ", ".join(str(node) for node in nodes)
        return Finding("gpu-numa", "ok", found=f"GPUs on NUMA nodes {text}", policy="report")
    if virtual or len(topology["gpus"]) < 2:
        return Finding("gpu-numa", "not_applicable", reason="this machine tells no NUMA node", policy="report")
    return Finding(
        "gpu-numa",
        "warn",
        found=f"no NUMA node told for {', '.join(untold[:SHOWN])}",
        expected="a NUMA node of each GPU in sysfs",
        action="fix configuration",
        reason="NUMA is off in the firmware's settings, or the firmware is old",
        policy="report",
    )


def acs(registers: t.Mapping[str, t.Optional[int]], virtual: bool, wanted: bool) -> Finding:
    """Access control services above GPUs. With redirection, peers below one switch meet at the CPU (gpud; NVIDIA's NCCL
    troubleshooting). A virtual machine needs them, and cannot change them."""
    if virtual:
        return Finding("acs", "not_applicable", reason="the hypervisor sets ACS, and needs it", policy="report")
    if not registers:
        return Finding("acs", "not_applicable", reason="no bridge above a GPU has ACS", policy="report")
    if None in registers.values():
        return Finding(
            "acs",
            "unknown",
            found="the bridges' configuration cannot be read",
            expected="root, who may read it",
            policy="report",
        )
    on = [address for address, value in registers.items() if value and value & REDIRECTION]
    if not on:
        return Finding("acs", "ok", found=f"no redirection on {len(registers)} bridges", policy="report")
    return Finding(
        "acs",
        "fail" if wanted else "warn",
        found=f"redirection on {len(on)} of {len(registers)} bridges: {', '.join(on[:SHOWN])}",
        expected="none, where GPUs and adapters below one switch talk to each other",
        action="fix configuration" if wanted else "none",
        reason="" if wanted else "topology_clear_acs: true clears it at each start; not where this host runs VMs",
        policy="report",
        evidence={"registers": dict(registers)},
    )
