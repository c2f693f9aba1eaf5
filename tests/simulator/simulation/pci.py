# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""sysfs' PCI tree of a simulated machine: GPUs, NVSwitches, InfiniBand adapters, and the bridges above them."""

from __future__ import annotations

import re
import struct
import typing as t
from pathlib import Path

from simulation.hardware import product_of, switch_addresses
from simulation.scenario import Values, first_step, gpus

SPEEDS = {"1": "2.5", "2": "5.0", "3": "8.0", "4": "16.0", "5": "32.0", "6": "64.0"}
NVIDIA, MELLANOX = "0x10de", "0x15b3"


class Device(t.NamedTuple):
    """A PCI function; `parents` are the bridges above it, the one next to the root first."""

    address: str
    parents: tuple[str, ...]
    attributes: dict[str, str]
    driver: str = ""
    bridge: bool = False
    acs: int = 0
    iommu: str = "none"


def present(values: Values) -> list[int]:
    """GPUs that the PCI bus shows: all but those which fell off it for good."""
    return [gpu for gpu in range(gpus(values)) if first_step(values[f"gpu/{gpu}/sim/device"]) != "@gone"]


def address_of(values: Values, gpu: int) -> str:
    return "{:04x}:{:02x}:{:02x}.{:x}".format(*_parts(first_step(values[f"gpu/{gpu}/pci/pci_bus_id"])))


def _parts(address: str) -> tuple[int, int, int, int]:
    match = re.fullmatch(r"(?:([0-9A-Fa-f]+):)?([0-9A-Fa-f]+):([0-9A-Fa-f]+)\.([0-9A-Fa-f])", address)
    if match is None:
        return 0, 0, 0, 0
    domain, bus, slot, function = match.groups()
    return int(domain or "0", 16), int(bus, 16), int(slot, 16), int(function, 16)


def write(values: Values, sys: Path) -> None:
    """Writes the tree below SYS."""
    (sys / "bus/pci/devices").mkdir(parents=True)
    found = list(_leaves(values))
    bridges: dict[str, Device] = {}
    for device in found:
        for depth, bridge in enumerate(device.parents):
            bridges.setdefault(bridge, _bridge(bridge, device, depth))
    for device in (*found, *bridges.values()):
        _write_device(sys, device)
    for nic in range(nics(values)):
        _write_infiniband(values, sys, nic)


def nics(values: Values) -> int:
    return int(values.get("sim/nics", "0"))


# ---- what there is ----


def _leaves(values: Values) -> t.Iterator[Device]:
    """All but bridges. Of one PCIe switch are: GPUs and adapters that say so, and the NVSwitches."""
    loaded = values["sim/driver_loaded"] == "Yes"
    here = [(address_of(values, gpu), values.get(f"gpu/{gpu}/sim/pcie_switch")) for gpu in range(gpus(values))]
    here += [
        (values[f"sim/nic/{nic}/address"], values.get(f"sim/nic/{nic}/pcie_switch")) for nic in range(nics(values))
    ]
    product = product_of(values, 0) if gpus(values) > 1 else None
    ids = product.switches if product else ()
    switches = switch_addresses(values, len(ids))
    groups = dict([*here, *((address, "nvswitch") for address in switches)])
    for gpu in present(values):
        device = _gpu(values, gpu, loaded)
        yield device._replace(parents=_parents(groups, device.address))
    for device_id, address in zip(ids, switches):
        yield _nvswitch(device_id, address, loaded)._replace(parents=_parents(groups, address))
    for nic in range(nics(values)):
        device = _nic(values, nic)
        yield device._replace(parents=_parents(groups, device.address))


def _parents(groups: t.Mapping[str, str | None], address: str) -> tuple[str, ...]:
    """The bridges of a device: two ports of a switch that it shares with its group, or one port of the root."""
    domain, bus, _slot, _function = _parts(address)
    group = groups[address]
    if group is None:
        return () if bus == 0 else (f"{domain:04x}:{bus - 1:02x}:00.0",)
    members = sorted(member for member, its in groups.items() if its == group)
    first = min(_parts(member)[1] for member in members)
    return (
        f"{domain:04x}:{first - 3:02x}:01.0",
        f"{domain:04x}:{first - 2:02x}:00.0",
        f"{domain:04x}:{first - 1:02x}:{members.index(address):02x}.0",
    )


def _gpu(values: Values, gpu: int, loaded: bool) -> Device:
    prefix = f"gpu/{gpu}"
    address = address_of(values, gpu)
    ids = [values.get(f"{prefix}/pci/{name}", "00000000").lower().removeprefix("0x").zfill(8)
           for name in ("pci_device_id", "pci_sub_system_id")]  # fmt: skip
    classes = [int(values.get(f"{prefix}/pci/{name}", default), 16)
               for name, default in (("pci_base_class", "3"), ("pci_sub_class", "2"))]  # fmt: skip
    attributes = {
        "vendor": f"0x{ids[0][4:]}",
        "device": f"0x{ids[0][:4]}",
        "subsystem_vendor": f"0x{ids[1][4:]}",
        "subsystem_device": f"0x{ids[1][:4]}",
        "class": f"0x{classes[0]:02x}{classes[1]:02x}00",
        "revision": "0xa1",
        **_place(values[f"{prefix}/sim/numa_node"], values[f"{prefix}/sim/cpus"]),
        **_link(values, prefix),
    }
    acs = int(values[f"{prefix}/sim/acs"], 0)
    return Device(address, (), attributes, "nvidia" if loaded else "", acs=acs, iommu=values[f"{prefix}/sim/iommu"])


def _place(node: str, cpus: str) -> dict[str, str]:
    return {"numa_node": node, "local_cpulist": cpus}


def _link(values: Values, prefix: str) -> dict[str, str]:
    link = f"{prefix}/pci/pci_gpu_link_info"
    found = {}
    for name, speed, width in (("current", "current_link_gen", "current_link_width"),
                               ("max", "max_device_link_gen", "max_link_width")):  # fmt: skip
        generation = first_step(values.get(f"{link}/pcie_gen/{speed}", values.get(f"{link}/pcie_gen/max_link_gen", "")))
        lanes = first_step(values.get(f"{link}/link_widths/{width}", "")).rstrip("x")
        # A link that is down reads so.
        found[f"{name}_link_speed"] = f"{SPEEDS[generation]} GT/s PCIe" if generation in SPEEDS else "Unknown"
        found[f"{name}_link_width"] = lanes if lanes.isdigit() else "63"
    return found


def _nvswitch(device_id: str, address: str, loaded: bool) -> Device:
    attributes = {"vendor": NVIDIA, "device": f"0x{device_id}", "class": "0x068000", "revision": "0xa1",
                  "subsystem_vendor": NVIDIA, "subsystem_device": "0x0000", **_place("0", "0-31"),
                  **dict.fromkeys(("current_link_speed", "max_link_speed"), "16.0 GT/s PCIe"),
                  **dict.fromkeys(("current_link_width", "max_link_width"), "2")}  # fmt: skip
    return Device(address, (), attributes, "nvidia-nvswitch" if loaded else "")


def _nic(values: Values, nic: int) -> Device:
    prefix = f"sim/nic/{nic}"
    speed = f"{SPEEDS[values[f'{prefix}/link_gen']]} GT/s PCIe"
    attributes = {"vendor": MELLANOX, "device": f"0x{values[f'{prefix}/device']}", "class": "0x020700",
                  "revision": "0x00", "subsystem_vendor": MELLANOX, "subsystem_device": "0x0041",
                  **_place(values[f"{prefix}/numa_node"], values[f"{prefix}/cpus"]),
                  **dict.fromkeys(("current_link_speed", "max_link_speed"), speed),
                  **dict.fromkeys(("current_link_width", "max_link_width"), "16")}  # fmt: skip
    # Its port of the switch is set as that of the GPU beside it.
    acs = int(values.get(f"gpu/{nic}/sim/acs", "0"), 0)
    return Device(values[f"{prefix}/address"], (), attributes, "mlx5_core", acs=acs)


def _bridge(address: str, below: Device, depth: int) -> Device:
    kept = ("numa_node", "local_cpulist", "current_link_speed", "current_link_width", "max_link_speed",
            "max_link_width")  # fmt: skip
    attributes = {name: value for name, value in below.attributes.items() if name in kept}
    # Intel's root port, then the ports of a Broadcom PEX890xx switch.
    vendor, device = ("0x8086", "0x352a") if depth == 0 else ("0x1000", "0xc030")
    attributes |= {"vendor": vendor, "device": device, "class": "0x060400", "revision": "0xb0",
                   "subsystem_vendor": vendor, "subsystem_device": "0x0000"}  # fmt: skip
    return Device(address, below.parents[:depth], attributes, "pcieport", bridge=True, acs=below.acs)


def _write_device(sys: Path, device: Device) -> None:
    root = _root_of((*device.parents, device.address)[0])
    below = ["devices", root, *device.parents, device.address]
    path = sys.joinpath(*below)
    path.mkdir(parents=True, exist_ok=True)
    for name, value in {**device.attributes, "enable": "1", "irq": "0"}.items():
        (path / name).write_text(value + "\n")
    ids = [device.attributes[name][2:].upper() for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
    (path / "uevent").write_text(
        (f"DRIVER={device.driver}\n" if device.driver else "")
        + f"PCI_CLASS={device.attributes['class'][2:].upper().lstrip('0')}\nPCI_ID={ids[0]}:{ids[1]}\n"
        + f"PCI_SUBSYS_ID={ids[2]}:{ids[3]}\nPCI_SLOT_NAME={device.address}\n"
    )
    (path / "resource").write_text("0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13)
    (path / "config").write_bytes(_config(device))
    if device.iommu != "none":
        (path / "iommu_group").mkdir()
        (path / "iommu_group/type").write_text(device.iommu + "\n")
    up = "../" * len(below)
    for name in ("correctable", "nonfatal", "fatal"):
        (path / f"aer_dev_{name}").write_text(f"TOTAL_ERR_{'COR' if name == 'correctable' else name.upper()} 0\n")
    link(path / "subsystem", f"{up}bus/pci")
    link(sys / "bus/pci/devices" / device.address, "../../../" + "/".join(below))
    if device.driver:
        driver = sys / "bus/pci/drivers" / device.driver
        driver.mkdir(parents=True, exist_ok=True)
        link(path / "driver", f"{up}bus/pci/drivers/{device.driver}")
        link(driver / device.address, "../../../../" + "/".join(below))
    # NCCL finds a device through its bus: /sys/class/pci_bus/DDDD:BB/../../DDDD:BB:DD.F
    bus = device.address[:7]
    place = [*below[:-1], "pci_bus", bus]
    sys.joinpath(*place).mkdir(parents=True, exist_ok=True)
    (sys / "class/pci_bus").mkdir(parents=True, exist_ok=True)
    link(sys / "class/pci_bus" / bus, "../../" + "/".join(place))


def _root_of(address: str) -> str:
    """The host bridge above the first device of a path, as Linux names its folder."""
    return f"pci{address[:7]}"


def link(path: Path, target: str) -> None:
    if not path.is_symlink():
        path.symlink_to(target)


def _config(device: Device) -> bytes:
    """Configuration space with what lspci and setpci read of us: ids, PCI Express, access control services."""
    number = {name: int(device.attributes[name], 16) for name in ("vendor", "device", "class", "revision",
                                                                  "subsystem_vendor", "subsystem_device")}  # fmt: skip
    space = bytearray(4096)
    struct.pack_into("<HHHH", space, 0, number["vendor"], number["device"], 0x0406, 0x0010)
    struct.pack_into("<I", space, 8, number["class"] << 8 | number["revision"])
    space[14] = 1 if device.bridge else 0
    space[0x34] = 0x40
    if not device.bridge:
        struct.pack_into("<HH", space, 0x2C, number["subsystem_vendor"], number["subsystem_device"])
    kind = 0 if not device.bridge else 4 if not device.parents else 5 if len(device.parents) == 1 else 6
    struct.pack_into("<BBH", space, 0x40, 0x10, 0, 0x0002 | kind << 4)
    for offset, when in ((0x4C, "max"), (0x52, "current")):
        speed = next((generation for generation, text in SPEEDS.items()
                      if device.attributes.get(f"{when}_link_speed", "").startswith(text)), "0")  # fmt: skip
        width = int(device.attributes.get(f"{when}_link_width", "0"))
        struct.pack_into("<I" if when == "max" else "<H", space, offset, int(speed) | (width & 0x3F) << 4)
    if device.bridge:
        struct.pack_into("<IHH", space, 0x100, 0x0001000D, 0x001F, device.acs)
    return bytes(space)


# ---- InfiniBand ----


def _write_infiniband(values: Values, sys: Path, nic: int) -> None:
    prefix, name = f"sim/nic/{nic}", f"mlx5_{nic}"
    device = (sys / "bus/pci/devices" / values[f"{prefix}/address"]).resolve()
    path = device / "infiniband" / name
    port = path / "ports/1"
    (port / "counters").mkdir(parents=True)
    guid = f"a088:c203:00{nic:02x}:0001"
    for file, text in {"node_guid": guid, "sys_image_guid": guid, "fw_ver": "28.43.1014", "hca_type": "MT4129",
                       "ports/1/state": values[f"{prefix}/state"], "ports/1/phys_state": values[f"{prefix}/phys_state"],
                       "ports/1/rate": values[f"{prefix}/rate"], "ports/1/link_layer": "InfiniBand",
                       "ports/1/lid": f"{nic + 1:#x}"}.items():  # fmt: skip
        (path / file).write_text(first_step(text) + "\n")
    for counter in ("symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards"):
        (port / "counters" / counter).write_text("0\n")
    link(path / "device", "../../../" + device.name)
    (sys / "class/infiniband").mkdir(parents=True, exist_ok=True)
    link(sys / "class/infiniband" / name, "../../" + str(path.relative_to(sys.resolve())))
