# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines laid out as sysfs shows them: the places of published shapes, and what goes wrong with such trees."""

from __future__ import annotations

import struct
import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import shapes, tree
from ansible_collections.gpufleet.pytorch.tests.unit.module_utils._probe.conftest import Machine

LINK = {"current_link_speed": "16.0 GT/s PCIe", "current_link_width": "16",
        "max_link_speed": "16.0 GT/s PCIe", "max_link_width": "16"}  # fmt: skip


class Host:
    """A machine under a folder, by the path of each device: ``0000:17:01.0/0000:18:00.0/0000:1b:00.0``."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def device(
        self, path: str, klass: str, ids: str, numa: str = "0", acs: t.Optional[int] = None, **link: t.Optional[str]
    ) -> None:
        """One PCI function; a value None leaves its file out."""
        address = path.rsplit("/", 1)[-1]
        root = f"pci{path[:7]}"
        folder = f"/sys/devices/{root}/{path}"
        vendor, device = ids.split(":")
        values: t.Dict[str, t.Optional[str]] = {
            "class": f"0x{klass}", "vendor": f"0x{vendor}", "device": f"0x{device}", "numa_node": numa,
            "subsystem_vendor": f"0x{vendor}", "subsystem_device": "0x0001", **LINK, **link,
        }  # fmt: skip
        for name, value in values.items():
            if value is not None:
                self.machine.file(f"{folder}/{name}", value + "\n")
        if acs is not None:
            self.machine.file(f"{folder}/config", config(acs))
        self.machine.link(f"/sys/bus/pci/devices/{address}", f"../../../devices/{root}/{path}")

    def gpu(self, path: str, device: str = "2330", **more: t.Any) -> None:
        self.device(path, "030200", f"10de:{device}", **more)

    def bridge(self, path: str, **more: t.Any) -> None:
        self.device(path, "060400", "1000:c030", **more)

    def nic(self, path: str, name: str, klass: str = "020700", ids: str = "15b3:1021", **more: t.Any) -> None:
        self.device(path, klass, ids, **more)
        folder = f"devices/pci{path[:7]}/{path}"
        self.machine.file(f"/sys/{folder}/infiniband/{name}/ports/1/rate", "400 Gb/sec (4X NDR)\n")
        self.machine.link(f"/sys/class/infiniband/{name}", f"../../{folder}/infiniband/{name}")
        self.machine.link(f"/sys/{folder}/infiniband/{name}/device", f"../../../{path.rsplit('/', 1)[-1]}")

    def nodes(self, *maps: str) -> None:
        """NUMA nodes with these CPUs (the mask of words)."""
        union = 0
        for number, text in enumerate(maps):
            union |= tree.mask(text) or 0
            self.machine.file(f"/sys/devices/system/node/node{number}/cpumap", text + "\n")
            self.machine.file(f"/sys/devices/system/node/node{number}/cpulist", "0\n")
        self.machine.file("/sys/devices/system/cpu/online", f"0-{union.bit_length() - 1}\n")

    def dmi(self, vendor: str, product: str) -> None:
        self.machine.file("/sys/class/dmi/id/sys_vendor", vendor + "\n")
        self.machine.file("/sys/class/dmi/id/product_name", product + "\n")

    def shape(self, shape: shapes.Shape) -> None:
        """The machine of a published shape as a guest sees it: every device on the CPU, no switch."""
        self.dmi(shape.vendor or "Oracle", shape.product or "Virtual Machine")
        self.nodes(*(cpu.affinity or "ff" for cpu in shape.cpus))
        number = 0
        for cpu in shape.cpus:
            for word in (word for group in cpu.groups for word in group.split()[1:]):
                kind, address = word.split("@", 1)
                if kind == "gpu":
                    self.gpu(address, shape.gpus[0], numa=cpu.numaid)
                else:
                    self.nic(address, f"rdma{number}", (shape.nic_class or "0x020000")[2:], numa=cpu.numaid)
                    number += 1

    def hgx(self, width: t.Optional[str] = "16") -> None:
        """Two GPUs, each with an adapter behind one switch."""
        self.nodes("000000ff", "0000ff00")
        for number, (bus, node) in enumerate((("1", "0"), ("9", "1"))):
            root, up = f"0000:{bus}7:01.0", f"0000:{bus}8:00.0"
            self.bridge(root, numa=node, acs=-1)
            self.bridge(f"{root}/{up}", numa=node, acs=-1, current_link_width=width)
            for slot in ("00", "01"):
                self.bridge(f"{root}/{up}/0000:{bus}9:{slot}.0", numa=node, acs=0x1D)
            self.gpu(f"{root}/{up}/0000:{bus}9:00.0/0000:{bus}a:00.0", numa=node)
            self.nic(f"{root}/{up}/0000:{bus}9:01.0/0000:{bus}b:00.0", f"mlx5_{number}", numa=node)


def config(control: int) -> bytes:
    """Configuration space with an ACS capability behind another; without one for -1."""
    space = bytearray(4096)
    if control < 0:
        return bytes(space)
    struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | 0x150 << 20)
    struct.pack_into("<IHH", space, 0x150, 0x000D | 1 << 16, 0x001F, control)
    return bytes(space)


@pytest.fixture
def host(tmp_path: t.Any) -> Host:
    return Host(Machine(tmp_path))
