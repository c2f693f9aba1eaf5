# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what the machine shows to NCCL's tree: the same that NCCL would find, and dump, on a host that hides nothing.

Pure. The widths and speeds in it are the highest ones, as NCCL takes them, so that the tree is the same whether the
links idle or not; what they run at now stands in the facts beside it (``sysfs.read``).
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import sysfs
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.tree import Node

ARCHES = {"x86_64": "x86_64", "aarch64": "arm64", "ppc64le": "ppc64"}
#: GPUs by address: ``{index, compute_capability, links}``, ``links`` as count by remote address or None for unknown.
Gpus = t.Mapping[str, t.Mapping[str, t.Any]]
NVSWITCH = "0x068000"
#: What NVML says of an NVSwitch that is no PCI device of this machine (xml.cc takes it for an NVSwitch).
HIDDEN = "fffffff:ffff:ff"


def build(seen: t.Mapping[str, t.Any], gpus: Gpus, arch: str) -> Node:
    """The ``system`` element of the machine: its GPUs and RDMA adapters, the bridges above them, their NUMA nodes."""
    system = Node("system", {"version": "1"})
    cpus: t.Dict[int, Node] = {}
    placed: t.Dict[str, Node] = {}
    leaves = [*sysfs.of_kind(seen, "gpu"), *sysfs.of_kind(seen, "nic")]
    for address in sorted(leaves):
        device = seen["devices"][address]
        numa = -1 if device["numa_node"] is None else int(device["numa_node"])
        if numa not in cpus:
            cpus[numa] = _cpu(seen, numa, arch)
        parent = cpus[numa]
        for part in (*device["parents"], address):
            if part not in placed:
                placed[part] = _pci(seen, part)
                parent.children.append(placed[part])
            parent = placed[part]
        if device["kind"] == "gpu":
            parent.children.append(_gpu(seen, gpus.get(address, {})))
        elif device["names"]:
            parent.children.append(Node("nic", {}, [_net(port) for port in device["names"]]))
    system.children = [cpus[numa] for numa in sorted(cpus)]
    return system


def _cpu(seen: t.Mapping[str, t.Any], numa: int, arch: str) -> Node:
    node = seen["nodes"].get(str(numa), {})
    told = {"numaid": str(numa), "affinity": node.get("cpumap"), "arch": ARCHES.get(arch, arch), **seen["cpu"]}
    return Node("cpu", {key: value for key, value in told.items() if value})


def _pci(seen: t.Mapping[str, t.Any], address: str) -> Node:
    device = seen["devices"][address]
    above = seen["devices"].get(device["parents"][-1]) if device["parents"] else None
    told = {"busid": address}
    for name in ("class", "vendor", "device", "subsystem_vendor", "subsystem_device"):
        told[name] = device[name]
    told["link_speed"] = _slower(device["link"]["speed_max"], above["link"]["speed_max"] if above else None)
    widths = [one["link"]["width_max"] for one in (device, above) if one and one["link"]["width_max"]]
    told["link_width"] = str(min(widths)) if widths else ""
    return Node("pci", {key: value for key, value in told.items() if value is not None})


def _slower(one: t.Optional[str], other: t.Optional[str]) -> str:
    """The slower of the two ends of a link; a text without a speed counts for nothing, as in NCCL."""
    found = [(float(match[1]), text) for text in (one, other) for match in [re.match(r"([\d.]+) GT/s", text or "")]
             if text and match]  # fmt: skip
    return min(found)[1] if found else one or ""


def _gpu(seen: t.Mapping[str, t.Any], facts: t.Mapping[str, t.Any]) -> Node:
    told = {"dev": facts.get("index"), "sm": str(facts.get("compute_capability") or "").replace(".", "") or None}
    node = Node("gpu", {key: str(value) for key, value in told.items() if value is not None})
    for target, count in sorted((facts.get("links") or {}).items()):
        device = seen["devices"].get(target)
        klass = device["class"] if device and device["class"] else NVSWITCH
        node.children.append(Node("nvlink", {"target": target, "count": str(count), "tclass": klass}))
    return node


def _net(port: t.Mapping[str, t.Any]) -> Node:
    told = {"name": port["name"], "port": port["port"], "speed": port["mbps"], "guid": port["guid"]}
    return Node("net", {key: str(value) for key, value in told.items() if value is not None})
