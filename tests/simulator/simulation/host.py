# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of the kernel on a simulated machine: /proc/driver/nvidia, sysfs' PCI tree, /dev/nvidia*.

All is written below one folder, as the real paths: FOLDER/sys/bus/pci/devices/..., FOLDER/proc/driver/nvidia/...
"""

from __future__ import annotations

import re
import struct
import typing as t
from pathlib import Path

from simulation.hardware import product_of, switch_addresses
from simulation.scenario import Values, first_step, gpus

SPEEDS = {"1": "2.5", "2": "5.0", "3": "8.0", "4": "16.0", "5": "32.0", "6": "64.0"}
VENDOR, MODULE_NAMES = "0x10de", ("nvidia", "nvidia_uvm", "nvidia_modeset")


class Device(t.NamedTuple):
    """A PCI function; `parents` are the bridges above it, the one next to the root first."""

    address: str
    parents: tuple[str, ...]
    attributes: dict[str, str]
    driver: str = ""
    bridge: bool = False
    acs: int = 0


def write(values: Values, folder: Path, kernel_log: str | None = None) -> None:
    """Writes all files that the scenario's kernel shows."""
    devices = list(_devices(values))
    (folder / "sys/bus/pci/devices").mkdir(parents=True)
    (folder / "sys/gpusim").touch()
    for device in devices:
        _write_device(folder / "sys", device)
    (folder / "proc/driver").mkdir(parents=True)
    (folder / "dev").mkdir()
    if values["sim/driver_loaded"] == "Yes":
        _write_driver(values, folder)
    if kernel_log is not None:
        (folder / "dev/kmsg").write_text(to_kmsg(kernel_log))
        (folder / "kernel.log").write_text(kernel_log)


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


# ---- PCI ----


def _devices(values: Values) -> t.Iterator[Device]:
    loaded = values["sim/driver_loaded"] == "Yes"
    bridges: dict[str, Device] = {}
    for gpu in present(values):
        device = _gpu(values, gpu, loaded)
        for depth, bridge in enumerate(device.parents):
            bridges.setdefault(bridge, _bridge(bridge, device, depth))
        yield device
    product = product_of(values, 0) if gpus(values) > 1 else None
    ids = product.switches if product else ()
    for device_id, address in zip(ids, switch_addresses(values, len(ids))):
        device = _switch(device_id, address, loaded)
        for depth, bridge in enumerate(device.parents):
            bridges.setdefault(bridge, _bridge(bridge, device, depth))
        yield device
    yield from bridges.values()


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
    return Device(address, _parents(values, gpu, address), attributes, "nvidia" if loaded else "", acs=acs)


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


def _parents(values: Values, gpu: int, address: str) -> tuple[str, ...]:
    """The bridges of a GPU: two ports of a switch that it shares with its group, or one port of the root."""
    domain, bus, _slot, _function = _parts(address)
    group = values.get(f"gpu/{gpu}/sim/pcie_switch")
    if group is None:
        return () if bus == 0 else (f"{domain:04x}:{bus - 1:02x}:00.0",)
    members = [number for number in range(gpus(values)) if values.get(f"gpu/{number}/sim/pcie_switch") == group]
    first = min(_parts(address_of(values, number))[1] for number in members)
    port = members.index(gpu)
    return (
        f"{domain:04x}:{first - 3:02x}:01.0",
        f"{domain:04x}:{first - 2:02x}:00.0",
        f"{domain:04x}:{first - 1:02x}:{port:02x}.0",
    )


def _switch(device_id: str, address: str, loaded: bool) -> Device:
    domain, bus, _slot, _function = _parts(address)
    attributes = {"vendor": VENDOR, "device": f"0x{device_id}", "class": "0x068000", "revision": "0xa1",
                  "subsystem_vendor": VENDOR, "subsystem_device": "0x0000", **_place("0", "0-31"),
                  **dict.fromkeys(("current_link_speed", "max_link_speed"), "16.0 GT/s PCIe"),
                  **dict.fromkeys(("current_link_width", "max_link_width"), "2")}  # fmt: skip
    return Device(address, (f"{domain:04x}:{bus - 1:02x}:00.0",), attributes, "nvidia-nvswitch" if loaded else "")


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


# ---- the driver ----


def _write_driver(values: Values, folder: Path) -> None:
    version = first_step(values["driver_version"])
    machine = "aarch64" if "GB200" in values.get("gpu/0/product_name", "") else "x86_64"
    kind = (f"NVIDIA UNIX Open Kernel Module for {machine}" if values["sim/kernel_module"] == "open"
            else f"NVIDIA UNIX {machine} Kernel Module")  # fmt: skip
    proc = folder / "proc/driver/nvidia"
    (proc / "gpus").mkdir(parents=True)
    (proc / "version").write_text(
        f"NVRM version: {kind}  {version}  Release Build  (builder@host)  Mon Jun  1 00:00:00 UTC 2026\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    )
    (proc / "params").write_text("EnableGpuFirmware: 18\nNvLinkDisable: 0\nPreserveVideoMemoryAllocations: 0\n")
    for gpu in present(values):
        _write_information(values, proc / "gpus" / address_of(values, gpu), gpu)
    for name in MODULE_NAMES:
        module = folder / "sys/module" / name
        module.mkdir(parents=True)
        (module / "refcnt").write_text("0\n")
        (module / "initstate").write_text("live\n")
        if name == "nvidia":
            (module / "version").write_text(version + "\n")
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        (folder / "dev" / name).touch()
    for gpu in present(values):
        minor = values.get(f"gpu/{gpu}/minor_number", str(gpu))
        if minor.isdigit():
            (folder / "dev" / f"nvidia{minor}").touch()


def _write_information(values: Values, path: Path, gpu: int) -> None:
    def said(name: str) -> str:
        return first_step(values.get(f"gpu/{gpu}/{name}", "N/A"))

    path.mkdir()
    (path / "information").write_text(
        f"Model: \t\t {said('product_name')}\nIRQ:   \t\t {100 + gpu}\nGPU UUID: \t {said('uuid')}\n"
        f"Video BIOS: \t {said('vbios_version')}\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"
        f"DMA Mask: \t 0xfffffffffffff\nBus Location: \t {address_of(values, gpu)}\n"
        f"Device Minor: \t {said('minor_number')}\nGPU Firmware: \t {said('gsp_firmware_version')}\n"
        "GPU Excluded:\t No\n"
    )


# ---- the kernel log ----


def to_kmsg(text: str) -> str:
    """Lines of dmesg, of journalctl or of /dev/kmsg itself as records of /dev/kmsg."""
    records = []
    for number, line in enumerate(text.splitlines()):
        if re.match(r"\d+,\d+,\d+,\S*;", line):
            records.append(line)
            continue
        match = re.match(r"\[\s*(\d+)\.(\d+)\]\s?(.*)", line)
        seconds, fraction, message = match.groups() if match else (str(number), "0", line)
        message = re.sub(r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} .*?\]\s?", "", message)
        records.append(f"6,{number},{int(seconds) * 1000000 + int(fraction.ljust(6, chr(48))[:6])},-;{message}")
    return "".join(record + "\n" for record in records)
