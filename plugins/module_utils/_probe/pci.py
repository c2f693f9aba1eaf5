# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs, accelerators and display adapters of every vendor, from sysfs: needs no driver and no lspci."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.address import normalise_address
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

DEVICES = "/sys/bus/pci/devices"
NVIDIA = "10de"

#: Accelerators that call themselves something else than 3D controller (0302) or processing accelerator (12xx).
#: Sources: pci.ids (https://pci-ids.ucw.cz), Linux drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c and
#: include/drm/intel/pciids.h for the ids with class 0380, aws-neuron-driver's neuron_pci.h.
OTHERWISE_CLASSED = {
    "1002": frozenset(("7388", "738c", "738e", "7390", "7408", "740c", "740f", "7410")),  # AMD Instinct MI100, MI200
    "8086": frozenset(  # Intel Data Center GPU Max (Ponte Vecchio) and Flex
        ("0bd0", "0bd4", "0bd5", "0bd6", "0bd7", "0bd8", "0bd9", "0bda", "0bdb", "0b69", "0b6e", "56c0", "56c1", "56c2")
    ),
    "1d0f": frozenset(("7064", "7065", "7066", "7067", "7164", "7264", "7364")),  # AWS Inferentia, Trainium
    "1ae0": frozenset(("0027", "005e", "0056", "0062", "0063", "006f")),  # Google TPU
}


def role_of(vendor: str, device: str, klass: str) -> t.Optional[str]:
    """What a PCI function is to us, None where it is nothing of ours. All three as four hex digits in lower case."""
    if vendor == NVIDIA:
        if klass[:2] in ("03", "12"):
            return "gpu"
        return "nvswitch" if klass == "0680" else None
    if klass == "0302" or klass[:2] == "12" or device in OTHERWISE_CLASSED.get(vendor, ()):
        return "accelerator"
    return "display" if klass[:2] == "03" else None


def probe(runner: Runner) -> t.List[t.Dict[str, t.Any]]:
    """The ``pci`` part of an Observation."""
    found = []
    for address in runner.listdir(DEVICES):
        folder = f"{DEVICES}/{address}"
        klass, vendor, device = (_hex(runner, folder, name) for name in ("class", "vendor", "device"))
        klass = klass[:4]
        role = role_of(vendor, device, klass)
        if role is not None:
            found.append(_device(runner, address, vendor, device, klass, role))
    return found


def _device(runner: Runner, address: str, vendor: str, device: str, klass: str, role: str) -> t.Dict[str, t.Any]:
    folder = f"{DEVICES}/{address}"
    node = runner.read(f"{folder}/numa_node")
    subsystem = [_hex(runner, folder, f"subsystem_{name}") for name in ("vendor", "device")]
    return {
        "address": normalise_address(address),
        "vendor": vendor,
        "device": device,
        "class": klass,
        "subsystem": ":".join(subsystem) if all(subsystem) else None,
        "driver": runner.link(f"{folder}/driver"),
        # The firmware that names no node says -1: that is "unknown".
        "numa_node": int(node) if node and node.isdigit() else None,
        "virtual_function": runner.exists(f"{folder}/physfn"),
        "role": role,
    }


def _hex(runner: Runner, folder: str, name: str) -> str:
    text = (runner.read(f"{folder}/{name}") or "").lower()
    return text[2:] if text.startswith("0x") else text
