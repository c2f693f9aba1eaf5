# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known machines whose topology file somebody published, because the virtual machine hides its PCIe switches.

Facts of the public files, as places of devices; the sentences and comments of those files are not here. A machine is
recognised by its vendor and product in DMI, and where the vendor does not tell the product by its devices' addresses.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import sysfs
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.tree import Node

BRIDGE = "0x060400"


class Cpu(t.NamedTuple):
    """A NUMA node: ``groups`` are lines of ``BRIDGE DEVICE ...``, a device as ``gpu@ADDRESS`` or ``nic@ADDRESS``.

    A bridge ``-`` is none: the devices hang on the CPU itself.
    """

    numaid: str
    affinity: str
    groups: t.Tuple[str, ...]


class Shape(t.NamedTuple):
    """A known machine."""

    name: str
    source: str
    #: Beginning of sys_vendor and product_name in DMI; a product "" is told by the addresses.
    vendor: str
    product: str
    #: PCI device ids of its GPUs.
    gpus: t.Tuple[str, ...]
    #: vendor, familyid, modelid as the file has them; none where it leaves them to NCCL.
    cpu: t.Tuple[str, ...]
    #: link_speed of every device and its class of network adapter; "" where the file leaves them to NCCL.
    speed: str
    nic_class: str
    cpus: t.Tuple[Cpu, ...]
    #: Further attributes, by kind: gpu, nic, bridge.
    ids: t.Mapping[str, t.Mapping[str, str]] = {}
    environment: t.Mapping[str, str] = {}
    #: Whether the machine hides its switches; a shape that does not is used only where the user names it.
    hides: bool = True


def _ids(vendor: str, device: str, subsystem_vendor: str, subsystem_device: str) -> t.Dict[str, str]:
    names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
    return dict(zip(names, (vendor, device, subsystem_vendor, subsystem_device)))


INTEL = ("GenuineIntel", "6")
AZURE = "https://github.com/Azure/azhpc-images/blob/master/topology/"
AWS = "https://github.com/aws/aws-ofi-nccl/blob/master/topology/"
#: Public advice for these machines: Azure/azhpc-images, and NVIDIA's NCCL documentation on relaxed ordering in VMs.
AZURE_ENVIRONMENT = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "NCCL_IB_PCI_RELAXED_ORDERING": "1",
    "NCCL_SOCKET_IFNAME": "eth0",
}
EFA = _ids("0x1d0f", "0xefa0", "0x1d0f", "0xefa0")
INVENTED = _ids("0xffff", "0xffff", "0xffff", "0xffff")


def _p4(product: str, device: str, subsystem: str) -> Shape:
    groups = [f"ffff:ff:0{number}.0 gpu@0000:{bus}:1c.0 gpu@0000:{bus}:1d.0 nic@0000:{bus}:1b.0"
              for number, bus in enumerate(("10", "20", "90", "a0"), 1)]  # fmt: skip
    return Shape(
        name=f"aws-{product.replace('.', '-')}",
        source=f"{AWS}{product.replace('.24xlarge', '-24xl')}-topo.xml",
        vendor="Amazon EC2",
        product=product,
        gpus=(device,),
        cpu=(*INTEL, "85"),
        speed="8 GT/s",
        nic_class="0x020000",
        cpus=(
            Cpu("0", "000000ff,ffff0000,00ffffff", tuple(groups[:2])),
            Cpu("1", "ffffff00,0000ffff,ff000000", tuple(groups[2:])),
        ),
        ids={"gpu": _ids("0x10de", f"0x{device}", "0x10de", subsystem), "nic": EFA, "bridge": INVENTED},
    )


SHAPES: t.Tuple[Shape, ...] = (
    _p4("p4d.24xlarge", "20b0", "0x134f"),
    _p4("p4de.24xlarge", "20b2", "0x1463"),
    Shape(
        name="aws-g5-48xlarge",
        source=f"{AWS}g5.48xl-topo.xml",
        vendor="Amazon EC2",
        product="g5.48xlarge",
        gpus=("2237",),
        cpu=(),
        speed="",
        nic_class="",
        cpus=(
            Cpu("0", "", ("- gpu@0000:00:16.0 gpu@0000:00:17.0 gpu@0000:00:18.0 gpu@0000:00:19.0",)),
            Cpu(
                "1",
                "",
                ("- gpu@0000:00:1a.0 gpu@0000:00:1b.0 gpu@0000:00:1c.0 gpu@0000:00:1d.0 nic@0000:00:15.0",),
            ),
        ),
    ),
    Shape(
        name="azure-nd-v2",
        source=f"{AZURE}ndv2-topo.xml",
        vendor="Microsoft Corporation",
        product="",
        gpus=("1db5", "1db8"),
        cpu=(*INTEL, "85"),
        speed="16 GT/s",
        nic_class="0x020700",
        cpus=(
            Cpu(
                "0",
                "00000000,000fffff",
                ("- gpu@0001:00:00.0 gpu@0002:00:00.0 gpu@0003:00:00.0 gpu@0004:00:00.0 nic@0101:00:00.0",),
            ),
            Cpu("1", "000000ff,fff00000", ("- gpu@0005:00:00.0 gpu@0006:00:00.0 gpu@0007:00:00.0 gpu@0008:00:00.0",)),
        ),
        environment=AZURE_ENVIRONMENT,
    ),
    Shape(
        name="azure-nd-a100-v4",
        source=f"{AZURE}ndv4-topo.xml",
        vendor="Microsoft Corporation",
        product="",
        gpus=("20b0", "20b2"),
        cpu=("AuthenticAMD", "23", "49"),
        speed="16 GT/s",
        nic_class="0x020700",
        cpus=tuple(
            Cpu(
                str(node),
                affinity,
                (
                    f"ffff:ff:0{node + 1}.0 gpu@{gpus[0]}:00:00.0 nic@{nics[0]}:00:00.0"
                    f" gpu@{gpus[1]}:00:00.0 nic@{nics[1]}:00:00.0",
                ),
            )
            for node, affinity, gpus, nics in (
                (0, "00000000,00000000,00ffffff", ("0003", "0004"), ("0103", "0104")),
                (1, "00000000,0000ffff,ff000000", ("0001", "0002"), ("0101", "0102")),
                (2, "000000ff,ffff0000,00000000", ("000d", "000e"), ("0107", "0108")),
                (3, "ffffff00,00000000,00000000", ("000b", "000c"), ("0105", "0106")),
            )
        ),
        environment=AZURE_ENVIRONMENT,
    ),
    Shape(
        name="azure-nd-h100-v5",
        source=f"{AZURE}ndv5-topo.xml",
        vendor="Microsoft Corporation",
        product="",
        gpus=("2330", "2335"),
        cpu=(*INTEL, "143"),
        speed="32.0 GT/s PCIe",
        nic_class="0x020700",
        cpus=tuple(
            Cpu(
                str(node),
                affinity,
                tuple(
                    f"ffff:ff:0{number}.0 gpu@{gpu}:00:00.0 nic@010{number}:00:00.0"
                    for number, gpu in enumerate(gpus, 4 * node + 1)
                ),
            )
            for node, affinity, gpus in (
                (0, "00000000,0000ffff,ffffffff", ("0001", "0002", "0003", "0008")),
                (1, "ffffffff,ffff0000,00000000", ("0009", "000a", "000b", "000c")),
            )
        ),
        ids={"bridge": _ids("0x0000", "0x0000", "0x0000", "0x0000")},
        environment=AZURE_ENVIRONMENT,
    ),
    # Bare metal: sysfs tells all, and nothing is written by itself. The published file makes the three layers of
    # switches below a socket into one, for jobs that are better off so.
    Shape(
        name="oci-bm-gpu-b4-8",
        source="https://github.com/oracle-quickstart/oci-hpc/blob/master/samples/gpu/topo-flattened-b4.xml",
        vendor="",
        product="",
        gpus=("20b0", "20b2"),
        cpu=("AuthenticAMD", "175", "1"),
        speed="16 GT/s",
        nic_class="0x020000",
        cpus=(
            Cpu(
                "3",
                "00000000,00000000,ffff0000,00000000,00000000,00000000,ffff0000,00000000",
                ("0000:01:00.0 gpu@0000:0f:00.0 nic@0000:0c:00.0 gpu@0000:15:00.0 nic@0000:16:00.0",),
            ),
            Cpu(
                "1",
                "00000000,00000000,00000000,ffff0000,00000000,00000000,00000000,ffff0000",
                ("0000:3f:00.0 gpu@0000:50:00.0 gpu@0000:53:00.0 nic@0000:47:00.0 nic@0000:4b:00.0",),
            ),
            Cpu(
                "7",
                # The public file lacks a digit of the first word, and with it CPUs 252 to 255 of this node.
                "ffff0000,00000000,00000000,00000000,ffff0000,00000000,00000000,00000000",
                ("0000:7e:00.0 gpu@0000:8c:00.0 nic@0000:89:00.0 gpu@0000:91:00.0 nic@0000:93:00.0",),
            ),
            Cpu(
                "5",
                "00000000,ffff0000,00000000,00000000,00000000,ffff0000,00000000,00000000",
                ("0000:bb:00.0 gpu@0000:d6:00.0 gpu@0000:da:00.0 nic@0000:c3:00.0 nic@0000:d1:00.0",),
            ),
        ),
        hides=False,
    ),
)
BY_NAME = {shape.name: shape for shape in SHAPES}


def devices(shape: Shape, kind: str) -> t.Set[str]:
    """Addresses of its devices of a kind."""
    words = [word for cpu in shape.cpus for group in cpu.groups for word in group.split()[1:]]
    return {word.split("@", 1)[1] for word in words if word.startswith(f"{kind}@")}


def recognise(seen: t.Mapping[str, t.Any]) -> t.Optional[Shape]:
    """The shape that this virtual machine is, None where it is none of ours."""
    gpus = sysfs.of_kind(seen, "gpu")
    ids = {str(seen["devices"][address]["device"])[2:] for address in gpus}
    for shape in SHAPES:
        if not shape.hides or not seen["vendor"].startswith(shape.vendor) or not ids or not ids <= set(shape.gpus):
            continue
        if seen["product"] == shape.product if shape.product else set(gpus) == devices(shape, "gpu"):
            return shape
    return None


def build(shape: Shape) -> Node:
    """The shape's file."""
    system = Node("system", {"version": "1"})
    names = ("vendor", "familyid", "modelid")
    for cpu in shape.cpus:
        told = {"numaid": cpu.numaid, "affinity": cpu.affinity}
        if shape.cpu:
            told.update(arch="x86_64", **dict(zip(names, shape.cpu)))
        node = Node("cpu", {key: value for key, value in told.items() if value})
        system.children.append(node)
        for group in cpu.groups:
            bridge, *words = group.split()
            parent = node
            if bridge != "-":
                parent = _pci(shape, "bridge", bridge)
                node.children.append(parent)
            parent.children += [_pci(shape, *word.split("@", 1)) for word in words]
    return system


def _pci(shape: Shape, kind: str, address: str) -> Node:
    told = {"busid": address}
    if shape.speed:
        told["class"] = {"gpu": "0x030200", "nic": shape.nic_class, "bridge": BRIDGE}[kind]
        told.update(shape.ids.get(kind, {}))
        told.update(link_speed=shape.speed, link_width="16")
    return Node("pci", told)
