# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine's PCI tree, NUMA nodes and CPU model from sysfs and /proc: what NCCL looks at, and what it does not.

NCCL reads the highest speed and width of a link (xml.cc); a link that was trained to less is invisible in its topology
and in its dump. Here both are read: ``link`` has the current state beside the maximum.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import pci
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

NODES = "/sys/devices/system/node"
INFINIBAND = "/sys/class/infiniband"
#: What NCCL's own topology reader and the daemon of NVIDIA's virtual DGX leave for it.
VIRTUAL_TOPOLOGY = "/var/run/nvidia-topologyd/virtualTopology.xml"

_ADDRESS = re.compile(r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")
_LINK = (
    ("speed", "current_link_speed"),
    ("width", "current_link_width"),
    ("speed_max", "max_link_speed"),
    ("width_max", "max_link_width"),
)

Device = t.Dict[str, t.Any]


def read(runner: Runner) -> t.Dict[str, t.Any]:
    """``{devices, nodes, cpu, vendor, product}``, JSON only; what the machine does not tell is None.

    devices
        By address: ``{kind, class, vendor, device, subsystem_vendor, subsystem_device, numa_node, parents, link,
        names}``. ``kind`` is gpu, nic, nvswitch or bridge; ``parents`` are the bridges above it, the outermost first.
        ``class`` and ids have the leading 0x of sysfs. A link's ``speed`` is text, its ``width`` a number.
    nodes
        NUMA nodes by number: ``{cpumap, cpulist}``.
    """
    found: t.Dict[str, Device] = {}
    names = _networks(runner)
    for address in runner.listdir(pci.DEVICES):
        kind = _kind(runner, address, names)
        if kind is not None:
            found[address] = _device(runner, address, kind, names.get(address, []))
    for device in list(found.values()):
        for parent in device["parents"]:
            if parent not in found:
                found[parent] = _device(runner, parent, "bridge", [])
    return {
        "devices": {address: found[address] for address in sorted(found)},
        "nodes": _nodes(runner),
        "online": runner.read("/sys/devices/system/cpu/online"),
        "cpu": cpu(runner.read("/proc/cpuinfo", 1 << 14) or ""),
        "vendor": runner.read("/sys/class/dmi/id/sys_vendor") or "",
        "product": runner.read("/sys/class/dmi/id/product_name") or "",
        "virtual_topology": runner.exists(VIRTUAL_TOPOLOGY),
    }


def of_kind(seen: t.Mapping[str, t.Any], kind: str) -> t.List[str]:
    """Addresses of the devices of a kind, sorted."""
    return [address for address, device in seen["devices"].items() if device["kind"] == kind]


def _kind(runner: Runner, address: str, names: t.Mapping[str, t.Any]) -> t.Optional[str]:
    folder = f"{pci.DEVICES}/{address}"
    klass, vendor, device = (
        (runner.read(f"{folder}/{name}") or "").lower()[2:] for name in ("class", "vendor", "device")
    )
    role = pci.role_of(vendor, device, klass[:4])
    if role in ("gpu", "nvswitch"):
        return role
    # What NCCL's transports use: an adapter with RDMA, or one of InfiniBand whose driver is not there yet.
    return "nic" if address in names or klass[:4] == "0207" else None


def _device(runner: Runner, address: str, kind: str, names: t.List[t.Dict[str, t.Any]]) -> Device:
    folder = f"{pci.DEVICES}/{address}"
    told = {name: (runner.read(f"{folder}/{name}") or "").lower() or None for name in
            ("class", "vendor", "device", "subsystem_vendor", "subsystem_device")}  # fmt: skip
    node = runner.read(f"{folder}/numa_node") or ""
    link: t.Dict[str, t.Any] = {}
    for name, file in _LINK:
        text = runner.read(f"{folder}/{file}")
        link[name] = text if name.startswith("speed") else int(text) if text and text.isdigit() else None
    parts = runner.realpath(folder).split("/")[:-1]
    return {
        "kind": kind,
        **told,
        "numa_node": int(node) if node.isdigit() else None,
        "parents": [part for part in parts if _ADDRESS.match(part)],
        "link": link,
        "names": names,
    }


def _networks(runner: Runner) -> t.Dict[str, t.List[t.Dict[str, t.Any]]]:
    """RDMA devices by PCI address: ``[{name, port, mbps, guid, state}]``, one a port."""
    found: t.Dict[str, t.List[t.Dict[str, t.Any]]] = {}
    for name in runner.listdir(INFINIBAND):
        address = runner.realpath(f"{INFINIBAND}/{name}/device").rsplit("/", 1)[-1]
        guid = (runner.read(f"{INFINIBAND}/{name}/node_guid") or "").replace(":", "")
        for port in runner.listdir(f"{INFINIBAND}/{name}/ports"):
            rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", runner.read(f"{INFINIBAND}/{name}/ports/{port}/rate") or "")
            found.setdefault(address, []).append({
                "name": name,
                "port": int(port) if port.isdigit() else None,
                "mbps": int(float(rate[1]) * 1000) if rate else None,
                "guid": f"0x{guid}" if guid else None,
            })  # fmt: skip
    return found


def _nodes(runner: Runner) -> t.Dict[str, t.Dict[str, t.Any]]:
    found = {}
    for name in runner.listdir(NODES):
        match = re.fullmatch(r"node(\d+)", name)
        if match:
            told = {file: runner.read(f"{NODES}/{name}/{file}") for file in ("cpumap", "cpulist")}
            if told["cpulist"]:  # a node of memory alone, such as a GPU's, has no CPU
                found[match[1]] = told
    return found


def cpu(text: str) -> t.Dict[str, t.Optional[str]]:
    """``{vendor, familyid, modelid}`` of /proc/cpuinfo, as NCCL's own CPUID arithmetic gives them; None on other CPUs.

    The kernel adds the extended family to the family; NCCL shifts it by four bits (xml.cc), so that family 25 is 175.
    """
    told: t.Dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            told.setdefault(name.strip(), value.strip())
    family = told.get("cpu family", "")
    if family.isdigit():
        family = str(int(family) if int(family) < 16 else 15 + ((int(family) - 15) << 4))
    return {
        "vendor": told.get("vendor_id") or None,
        "familyid": family or None,
        "modelid": told.get("model") or None,
    }
