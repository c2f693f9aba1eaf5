# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `nvidia-smi -q -x` does not say of a machine, under `sim/`: compute capability, NVLink, topology, place.

A capture gets what follows from its product; a profile says more. Sources: PCI ids and compute capabilities from
NVIDIA's open-gpu-kernel-modules README (595.45.04) and CUDA's list of GPUs; NVLink counts and speeds from the
datasheets and from `nvidia-smi nvlink --status` of real machines.
"""

from __future__ import annotations

import time
import typing as t

from simulation.scenario import Values, gpus


class Product(t.NamedTuple):
    compute_capability: str
    links: int = 0
    link_version: str = ""
    link_mbps: int = 0
    #: PCI ids of the NVSwitches on an 8-GPU board, one a switch; NVLink 5 switches are no PCI devices of the host.
    switches: tuple[str, ...] = ()
    peer: str = "OK"


A100 = Product("8.0", 12, "3.0", 25000, ("1af1",) * 6)
H100 = Product("9.0", 18, "4.0", 26562, ("22a3",) * 4)
B200 = Product("10.0", 18, "5.0", 53125)

PRODUCTS = {
    "1eb8": Product("7.5"),  # T4
    "1db5": Product("7.0", 6, "2.0", 25781),  # V100 SXM2 32 GB
    "2236": Product("8.6"),  # A10
    "26b9": Product("8.9"),  # L40S
    "27b8": Product("8.9"),  # L4
    "2684": Product("8.9", peer="NS"),  # GeForce RTX 4090: its driver offers no peer access
    "2b85": Product("12.0", peer="NS"),  # GeForce RTX 5090
    "20b0": A100,
    "20b2": A100,
    "2330": H100,
    "2335": H100,  # H200
    "2901": B200,
    "2941": B200,  # GB200
}
CAPABILITIES = {"Volta": "7.0", "Turing": "7.5", "Ampere": "8.6", "Ada Lovelace": "8.9", "Hopper": "9.0",
                "Blackwell": "12.0"}  # fmt: skip
#: Counters of a link that older and newer NVLinks have.
LINK_COUNTERS = ("replay", "recovery", "crc_flit", "crc_data", "ecc_data")
LINK5_COUNTERS = ("malformed_packets", "buffer_overruns", "receive_errors", "integrity_errors", "recoveries_successful",
                  "recoveries_failed", "recoveries", "effective_errors", "effective_ber", "symbol_errors",
                  "symbol_ber")  # fmt: skip


def complete(values: Values) -> None:
    """Adds every missing `sim/` key. What is there already stays."""
    count = gpus(values)
    driver = values.get("driver_version", "")
    open_module = driver.split(".")[0].isdigit() and int(driver.split(".")[0]) >= 560
    _add(values, "sim", {
        "library_version": driver,
        "driver_loaded": "Yes",
        "kernel_module": "open" if open_module else "proprietary",
        "init": "ok",
        "devices": "256",
        "start": f"{time.time():.3f}",
    })  # fmt: skip
    products = [product_of(values, gpu) for gpu in range(count)]
    # One GPU alone on an SXM board: a capture does not say what became of its links.
    linked = count > 1
    for gpu in range(count):
        product = products[gpu]
        node = values.get(f"gpu/{gpu}/sim/numa_node") or str(gpu * 2 // count if count > 2 else 0)
        _add(values, f"gpu/{gpu}/sim", {
            "device": "ok",
            "compute_capability": product.compute_capability,
            "numa_node": node,
            "gpu_numa_node": "N/A",
            "cpus": {"0": "0-31", "1": "32-63"}.get(node, "0-63"),
            "fans": "0" if values.get(f"gpu/{gpu}/fan_speed", "N/A") == "N/A" else "1",
            "energy": str(1_000_000 * (gpu + 1)),
            "inforom_valid": "Yes",
            "locked_clocks": "N/A",
            "pcie/correctable_errors": "0",
            "pcie/non_fatal_errors": "0",
            "pcie/fatal_errors": "0",
            "acs": "0",
            "iommu": "none",
        })  # fmt: skip
        _links(values, gpu, product if linked else product._replace(links=0))
    for gpu in range(count):
        for other in range(count):
            if other != gpu:
                _pair(values, gpu, other, products[gpu], linked)
        for nic in range(int(values.get("sim/nics", "0"))):
            level = _level(values, f"gpu/{gpu}/sim", f"sim/nic/{nic}")
            values.setdefault(f"gpu/{gpu}/sim/nic_topology/{nic}", level)


def product_of(values: Values, gpu: int) -> Product:
    prefix = f"gpu/{gpu}"
    device = values.get(f"{prefix}/pci/pci_device_id", "").lower().removeprefix("0x")[:4]
    if device in PRODUCTS:
        return PRODUCTS[device]
    if "GB200" in values.get(f"{prefix}/product_name", ""):
        return B200
    architecture = values.get(f"{prefix}/product_architecture", "")
    return Product(values.get(f"{prefix}/sim/compute_capability") or CAPABILITIES.get(architecture, "N/A"))


def _add(values: Values, prefix: str, more: Values) -> None:
    for key, value in more.items():
        values.setdefault(f"{prefix}/{key}", value)


def _links(values: Values, gpu: int, product: Product) -> None:
    prefix = f"gpu/{gpu}/sim/nvlink"
    if not product.links:
        values.setdefault(f"{prefix}/count", "N/A")
        return
    _add(
        values, prefix, {"count": str(product.links), "version": product.link_version, "speed": str(product.link_mbps)}
    )
    names = LINK_COUNTERS if product.link_version != "5.0" else LINK5_COUNTERS
    switches = switch_addresses(values, len(product.switches))
    for link in range(product.links):
        remote = switches[link % len(switches)] if switches else "-"
        _add(values, f"{prefix}/{link}", {"state": "Active", "speed": str(product.link_mbps),
                                          "remote": f"switch {remote}"})  # fmt: skip
        _add(values, f"{prefix}/{link}", dict.fromkeys(names, "0"))


def switch_addresses(values: Values, count: int) -> list[str]:
    """NVSwitches sit on buses of their own, above those of the GPUs."""
    given = values.get("sim/switches")
    return given.split() if given else [f"0000:{0xC4 + number:02x}:00.0" for number in range(count)]


def _pair(values: Values, gpu: int, other: int, product: Product, linked: bool) -> None:
    by_nvlink = linked and product.links > 0
    _add(values, f"gpu/{gpu}/sim", {
        f"topology/{other}": _level(values, f"gpu/{gpu}/sim", f"gpu/{other}/sim"),
        f"p2p/{other}": product.peer,
        f"p2p_nvlink/{other}": "OK" if by_nvlink else "NS",
    })  # fmt: skip


def _level(values: Values, one: str, other: str) -> str:
    """How two devices meet, as `nvidia-smi topo` names it."""
    groups = [values.get(f"{prefix}/pcie_switch") for prefix in (one, other)]
    if groups[0] is not None and groups[0] == groups[1]:
        return "PXB"
    return "NODE" if values[f"{one}/numa_node"] == values[f"{other}/numa_node"] else "SYS"


def clone_gpus(values: Values, count: int) -> None:
    """Makes COUNT GPUs of those there are: the first ones, or copies of the last with an identity of their own."""
    have = gpus(values)
    for key in [key for key in values if key.startswith("gpu/") and int(key.split("/")[1]) >= count]:
        del values[key]
    source = {key.split("/", 2)[2]: value for key, value in values.items() if key.startswith(f"gpu/{have - 1}/")}
    for gpu in range(have, count):
        bus = int(source["pci/pci_bus"], 16) + gpu - have + 1
        domain = int(source["pci/pci_domain"], 16) + bus // 256
        address = f"{domain:08X}:{bus % 256:02X}:{source['pci/pci_device']}.0"
        own = {
            "uuid": f"GPU-{gpu:08x}-0000-0000-0000-000000000000",
            "serial": str(1650000001000 + gpu) if source["serial"] != "N/A" else "N/A",
            "minor_number": str(gpu),
            "sim/id": address,
            "pci/pci_bus_id": address,
            "pci/pci_bus": f"{bus % 256:02X}",
            "pci/pci_domain": f"{domain:04X}",
        }
        for key, value in source.items():
            values[f"gpu/{gpu}/{key}"] = own.get(key, value)
    values["sim/gpus"] = values["attached_gpus"] = str(count)
