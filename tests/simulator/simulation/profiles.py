# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Named machines: profiles/NAME.toml over profiles/elements.tsv.

A profile says where its GPUs are (`buses`, `domains`, `numa`, ...) and, under [gpu], the elements which differ from the
defaults. Some elements follow from one entry: `link_gen`, `memory` (total, reserved), `bar1`, `power` (default, least,
most), `clocks`, `max_clocks` (graphics, memory, video), `application_clocks`, `ecc_counts`.
"""

from __future__ import annotations

import re
import tomllib
import typing as t
from pathlib import Path

from simulation.scenario import ScenarioError, Values

FOLDER = Path(__file__).resolve().parent.parent / "profiles"
Profile = dict[str, t.Any]


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Values:
    """The scenario of a profile."""
    if name not in names():
        raise ScenarioError(f"--profile {name}: there is none of this name; there are {', '.join(names())}")
    profile = _read(name)
    values: Values = {
        "sim/dtd": profile["dtd"],
        "timestamp": "",
        "driver_version": profile["driver_version"],
        "cuda_version": profile["cuda_version"],
        "attached_gpus": str(len(profile["buses"])),
        "sim/gpus": str(len(profile["buses"])),
    }
    if "switches" in profile:
        values["sim/switches"] = " ".join(address.lower() for address in profile["switches"])
    values |= {f"sim/dmi/{key}": text for key, text in zip(("sys_vendor", "product_name"), profile.get("dmi", ()))}
    values |= _fabric(profile)
    for gpu in range(len(profile["buses"])):
        given = _expand(profile["gpu"]) | _place(profile, gpu)
        values |= {f"gpu/{gpu}/{key}": value for key, value in _elements(given, int(profile["driver_version"][:3]))}
        values |= {f"gpu/{gpu}/{key}": value for key, value in given.items() if key.startswith("sim/")}
    return values


def _read(name: str) -> Profile:
    profile: Profile = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    if "base" not in profile:
        return profile
    base = _read(profile.pop("base"))
    if "buses" in profile:  # on buses of its own it shares no switch of the other machine's
        base.pop("pcie_switches", None)
    return {**base, **profile, "gpu": {**base["gpu"], **profile.get("gpu", {})}}


def _elements(given: Values, branch: int) -> t.Iterator[tuple[str, str]]:
    """Every element that this driver has, in its order."""
    replaced: set[str] = set()
    for line in (FOLDER / "elements.tsv").read_text().splitlines():
        if line.startswith("#"):
            continue
        key, default, *marks = line.split("\t")
        group = next((parent for parent in _parents(key) if parent in given), None)
        if group:
            if group not in replaced and given[group] != "-":
                yield group, given[group]
            replaced.add(group)
            continue
        if marks and not _has(marks[0], branch):
            continue
        value = given.get(key, default)
        if value == "?":
            raise ScenarioError(f"the profile lacks {key}")
        if key == "supported_clocks" and value != "N/A":
            yield from _supported(value)
        elif value != "-":
            yield key, value


def _parents(key: str) -> list[str]:
    parts = key.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _has(mark: str, branch: int) -> bool:
    match = re.fullmatch(r"(>=|<)(\d+)", mark)
    assert match, mark
    return branch >= int(match[2]) if match[1] == ">=" else branch < int(match[2])


def _supported(text: str) -> t.Iterator[tuple[str, str]]:
    """Of "memory most least": graphics clocks in steps of 15 MHz."""
    memory, most, least = map(int, text.split())
    prefix = "supported_clocks/supported_mem_clock[0]"
    yield f"{prefix}/value", f"{memory} MHz"
    for number, clock in enumerate(range(most, least - 1, -15)):
        yield f"{prefix}/supported_graphics_clock[{number}]", f"{clock} MHz"


def _place(profile: Profile, gpu: int) -> Values:
    """Where one GPU is, and what is its own."""
    domain, bus = profile.get("domains", ["0000"] * 64)[gpu], profile["buses"][gpu]
    slot = profile.get("slot", "00")
    address = f"0000{domain}:{bus}:{slot}.0"
    board = int(bus, 16) << 8 | int(slot, 16)
    place = {
        "minor_number": str(gpu),
        "uuid": f"GPU-{gpu:08x}-5a17-4e00-8000-{int(domain, 16):04x}{board:08x}",
        "pdi": f"0x{0x5A17000000000000 | board << 8 | gpu:016x}",
        "board_id": f"0x{board:x}",
        "gsp_firmware_version": profile["driver_version"],
        "pci/pci_domain": domain,
        "pci/pci_bus": bus,
        "pci/pci_device": slot,
        "pci/pci_bus_id": address,
        "sim/id": address,
        "sim/numa_node": str(profile["numa"][gpu]) if "numa" in profile else "0",
    }
    if "serial" not in profile["gpu"]:
        place["serial"] = str(1650000000001 + gpu)
    if "cpus" in profile:
        place["sim/cpus"] = profile["cpus"][profile["numa"][gpu]]
    if "gpu_numa" in profile:
        place["sim/gpu_numa_node"] = str(profile["gpu_numa"][gpu])
    if "module_ids" in profile:
        place["platformInfo/module_id"] = str(profile["module_ids"][gpu])
    if "pcie_switches" in profile:
        place["sim/pcie_switch"] = str(profile["pcie_switches"][gpu])
    return place


def _fabric(profile: Profile) -> Values:
    """InfiniBand adapters, one beside each GPU, and the NUMA nodes."""
    found: Values = {}
    for nic, place in enumerate(profile.get("nics", ())):
        domain, _colon, bus = place.rpartition(":")
        node = profile["numa"][nic]
        found |= {f"sim/nic/{nic}/{key}": value for key, value in {
            "address": f"{domain or '0000'}:{bus.lower()}:00.0",
            "device": profile["nic_device"],
            "rate": profile["nic_rate"],
            "link_gen": str(profile["gpu"]["link_gen"]),
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "numa_node": str(node),
            "cpus": profile["cpus"][node],
        }.items()}  # fmt: skip
        if "pcie_switches" in profile:
            found[f"sim/nic/{nic}/pcie_switch"] = str(profile["pcie_switches"][nic])
    found["sim/nics"] = str(len(profile.get("nics", ())))
    for node, cpus in enumerate(profile.get("cpus", ())):
        found[f"sim/node/{node}"] = cpus
    return found


def _expand(gpu: Profile) -> Values:
    """What follows from an entry goes before what is said one by one."""
    found: Values = {}
    link, power = "pci/pci_gpu_link_info/pcie_gen", "gpu_power_readings"
    for name in ("max_link_gen", "current_link_gen", "device_current_link_gen", "max_device_link_gen"):
        found[f"{link}/{name}"] = str(gpu["link_gen"])
    total, reserved = gpu["memory"]
    found |= {"fb_memory_usage/total": f"{total} MiB", "fb_memory_usage/reserved": f"{reserved} MiB",
              "fb_memory_usage/free": f"{total - reserved} MiB",
              "bar1_memory_usage/total": f"{gpu['bar1']} MiB", "bar1_memory_usage/used": "1 MiB",
              "bar1_memory_usage/free": f"{gpu['bar1'] - 1} MiB"}  # fmt: skip
    limit, least, most = gpu["power"]
    for name in ("current", "requested", "default"):
        found[f"{power}/{name}_power_limit"] = f"{limit}.00 W"
    found |= {f"{power}/min_power_limit": f"{least}.00 W", f"{power}/max_power_limit": f"{most}.00 W"}
    for group in ("clocks", "max_clocks"):
        graphics, memory, video = gpu[group]
        found |= {f"{group}/graphics_clock": f"{graphics} MHz", f"{group}/sm_clock": f"{graphics} MHz",
                  f"{group}/mem_clock": f"{memory} MHz", f"{group}/video_clock": f"{video} MHz"}  # fmt: skip
    graphics, memory, _video = gpu["max_clocks"]
    found["max_customer_boost_clocks/graphics_clock"] = f"{graphics} MHz"
    found["supported_clocks"] = f"{memory} {graphics} 210"
    for name, clock in zip(("graphics_clock", "mem_clock"), gpu.get("application_clocks", ())):
        for group in ("applications_clocks", "default_applications_clocks"):
            found[f"{group}/{name}"] = f"{clock} MHz" if isinstance(clock, int) else clock
    if "ecc_counts" in gpu:
        for line in (FOLDER / "elements.tsv").read_text().splitlines():
            if line.startswith("ecc_errors/") and "\t-" not in line:
                found[line.split("\t")[0]] = gpu["ecc_counts"]
    return found | {key: value for key, value in gpu.items() if isinstance(value, str) and key != "ecc_counts"}
