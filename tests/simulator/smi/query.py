# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi --query-gpu, -L, and the table without arguments."""

import re
import time
from typing import Dict, List, Tuple

from smi.simulation import NOT_SUPPORTED, Simulation, Stop, print_lost

ECC = {"corrected": ("sram_correctable", "dram_correctable"),
       "uncorrected": ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded",
                       "dram_uncorrectable")}  # fmt: skip
FIELDS = {
    "name": "product_name",
    "gpu_name": "product_name",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "serial": "serial",
    "gpu_serial": "serial",
    "vbios_version": "vbios_version",
    "pci.bus_id": "pci/pci_bus_id",
    "gpu_bus_id": "pci/pci_bus_id",
    "pci.device_id": "pci/pci_device_id",
    "pci.sub_device_id": "pci/pci_sub_system_id",
    "pcie.link.gen.current": "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
    "pcie.link.gen.gpucurrent": "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen",
    "pcie.link.gen.max": "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pcie.link.gen.gpumax": "pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",
    "pcie.link.gen.hostmax": "pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",
    "pcie.link.width.current": "pci/pci_gpu_link_info/link_widths/current_link_width",
    "pcie.link.width.max": "pci/pci_gpu_link_info/link_widths/max_link_width",
    "display_active": "display_active",
    "display_mode": "display_mode",
    "persistence_mode": "persistence_mode",
    "addressing_mode": "addressing_mode",
    "accounting.mode": "accounting_mode",
    "compute_mode": "compute_mode",
    "compute_cap": "sim/compute_capability",
    "pstate": "performance_state",
    "fan.speed": "fan_speed",
    "memory.total": "fb_memory_usage/total",
    "memory.reserved": "fb_memory_usage/reserved",
    "memory.used": "fb_memory_usage/used",
    "memory.free": "fb_memory_usage/free",
    "utilization.gpu": "utilization/gpu_util",
    "utilization.memory": "utilization/memory_util",
    "ecc.mode.current": "ecc_mode/current_ecc",
    "ecc.mode.pending": "ecc_mode/pending_ecc",
    "mig.mode.current": "mig_mode/current_mig",
    "mig.mode.pending": "mig_mode/pending_mig",
    "temperature.gpu": "temperature/gpu_temp",
    "temperature.gpu.tlimit": "temperature/gpu_temp_tlimit",
    "temperature.memory": "temperature/memory_temp",
    "power.draw": "gpu_power_readings/average_power_draw|gpu_power_readings/instant_power_draw|"
    "gpu_power_readings/power_draw|power_readings/power_draw",
    "power.draw.average": "gpu_power_readings/average_power_draw",
    "power.draw.instant": "gpu_power_readings/instant_power_draw",
    "power.limit": "gpu_power_readings/requested_power_limit|power_readings/power_limit",
    "enforced.power.limit": "gpu_power_readings/current_power_limit|power_readings/enforced_power_limit",
    "power.default_limit": "gpu_power_readings/default_power_limit|power_readings/default_power_limit",
    "power.min_limit": "gpu_power_readings/min_power_limit|power_readings/min_power_limit",
    "power.max_limit": "gpu_power_readings/max_power_limit|power_readings/max_power_limit",
    "clocks.gr": "clocks/graphics_clock",
    "clocks.current.graphics": "clocks/graphics_clock",
    "clocks.sm": "clocks/sm_clock",
    "clocks.current.sm": "clocks/sm_clock",
    "clocks.mem": "clocks/mem_clock",
    "clocks.current.memory": "clocks/mem_clock",
    "clocks.applications.graphics": "applications_clocks/graphics_clock",
    "clocks.applications.memory": "applications_clocks/mem_clock",
    "clocks.default_applications.graphics": "default_applications_clocks/graphics_clock",
    "clocks.default_applications.memory": "default_applications_clocks/mem_clock",
    "clocks.max.gr": "max_clocks/graphics_clock",
    "clocks.max.graphics": "max_clocks/graphics_clock",
    "clocks.max.sm": "max_clocks/sm_clock",
    "clocks.max.mem": "max_clocks/mem_clock",
    "clocks.max.memory": "max_clocks/mem_clock",
    "retired_pages.single_bit_ecc.count": "retired_pages/multiple_single_bit_retirement/retired_count",
    "retired_pages.double_bit.count": "retired_pages/double_bit_retirement/retired_count",
    "retired_pages.pending": "retired_pages/pending_retirement",
    "remapped_rows.correctable": "remapped_rows/remapped_row_corr",
    "remapped_rows.uncorrectable": "remapped_rows/remapped_row_unc",
    "remapped_rows.pending": "remapped_rows/remapped_row_pending",
    "remapped_rows.failure": "remapped_rows/remapped_row_failure",
    "gsp.mode.current": "sim/gsp_mode",
    "inforom.img": "inforom_version/img_version",
    "inforom.ecc": "inforom_version/ecc_object",
    "gpu_recovery_action": "gpu_recovery_action",
    "fabric.state": "fabric/state",
    "fabric.status": "fabric/status",
    "fabric.clusterUuid": "fabric/clusterUuid",
    "fabric.cliqueId": "fabric/cliqueId",
    "module_id": "platformInfo/module_id",
    "platform.module_id": "platformInfo/module_id",
}
REASONS = {"gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8,
           "sync_boost": 0x10, "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40,
           "hw_power_brake_slowdown": 0x80, "display_clocks_setting": 0x100}  # fmt: skip


def query_value(sim: Simulation, gpu: int, index: int, field: str) -> str:
    """One cell; raises KeyError for a field that there is not."""
    if field in ("index", "count", "driver_version", "timestamp"):
        return {
            "index": str(index),
            "count": str(len(sim.gpus)),
            "driver_version": sim.raw("driver_version"),
            "timestamp": time.strftime("%Y/%m/%d %H:%M:%S.000"),
        }[field]
    match = re.match(r"clocks_(?:event|throttle)_reasons\.(\w+)$", field)
    if match:
        return _reason(sim, gpu, match.group(1))
    match = re.match(r"ecc\.errors\.(\w+)\.(volatile|aggregate)\.(\w+)$", field)
    if match:
        return _ecc(sim, gpu, *match.groups())
    text, code = "", NOT_SUPPORTED
    for path in FIELDS[field].split("|"):
        if code == NOT_SUPPORTED:
            text, code = sim.text(gpu, path)
    if field.startswith("pci.") and field.endswith("_id") and field != "pci.bus_id" and not code:
        return f"0x{text[2:] if text[:2] in ('0x', '0X') else text}"
    if field == "pcie.link.width.current" or field == "pcie.link.width.max":
        text = text.rstrip("x")
    return f"[{text}]" if code else text


def _reason(sim: Simulation, gpu: int, name: str) -> str:
    def read(reason: str) -> Tuple[str, int]:
        text, code = sim.text(gpu, f"clocks_event_reasons/clocks_event_reason_{reason}")
        return sim.text(gpu, f"clocks_throttle_reasons/clocks_throttle_reason_{reason}") if code else (text, code)

    if name == "active":
        answers = {bit: read(reason) for reason, bit in REASONS.items()}
        if all(code for _text, code in answers.values()):
            return "[N/A]"
        return f"0x{sum(bit for bit, (text, _code) in answers.items() if text == 'Active'):016X}"
    if name not in REASONS:
        raise KeyError(name)
    text, code = read(name)
    return f"[{text}]" if code else text


def _ecc(sim: Simulation, gpu: int, kind: str, counter: str, place: str) -> str:
    names = [name for name in ECC[kind] if place == "total" or name.startswith(place + "_")]
    answers = [sim.text(gpu, f"ecc_errors/{counter}/{name}") for name in names]
    worst = [text for text, code in answers if code not in (0, NOT_SUPPORTED)]
    if worst:
        return f"[{worst[0]}]"
    numbers = [int(text) for text, code in answers if code == 0]
    return str(sum(numbers)) if numbers else "[N/A]"


def print_query(sim: Simulation, chosen: List[int], fields: List[str], layout: List[str]) -> int:
    unknown = [field for field in fields if not _known(field)]
    if unknown:
        raise Stop(f'Field "{unknown[0]}" is not a valid field to query.\n', 2)
    units = {"memory": "MiB", "power": "W", "enforced": "W", "clocks": "MHz", "utilization": "%", "fan": "%"}
    if "noheader" not in layout:
        print(", ".join(f"{field} [{unit}]" if (unit := _unit(field, units)) else field for field in fields))
    status = 0
    for index, gpu in enumerate(sim.gpus):
        if gpu not in chosen:
            continue
        lost = sim.lost(gpu)
        if lost:
            status = print_lost(sim, gpu, lost)
            continue
        cells = [query_value(sim, gpu, index, field) for field in fields]
        if "nounits" in layout:
            cells = [re.sub(r"^(-?[\d.]+) (MiB|W|MHz|%|C)$", r"\1", cell) for cell in cells]
        # Temperatures never carry a unit here.
        cells = [re.sub(r" C$", "", cell) if field.startswith("temperature") else cell
                 for field, cell in zip(fields, cells)]  # fmt: skip
        print(", ".join(cells))
    return status


def _unit(field: str, units: Dict[str, str]) -> str:
    if "reasons" in field or field.startswith(("mode", "memory_")):
        return ""
    return units.get(field.split(".")[0], "")


def _known(field: str) -> bool:
    match = re.match(r"clocks_(?:event|throttle)_reasons\.(\w+)$", field)
    if match:
        return match.group(1) in REASONS or match.group(1) == "active"
    pattern = r"ecc\.errors\.(corrected|uncorrected)\.(volatile|aggregate)\.(sram|dram|total)$"
    return (
        field in FIELDS or field in ("index", "count", "driver_version", "timestamp") or bool(re.match(pattern, field))
    )


def print_processes(sim: Simulation, chosen: List[int], fields: List[str], layout: List[str]) -> int:
    """--query-compute-apps."""
    names = {"pid": "pid", "process_name": "process_name", "name": "process_name", "used_memory": "used_memory",
             "used_gpu_memory": "used_memory"}  # fmt: skip
    of_gpu = {"gpu_uuid": "uuid", "gpu_bus_id": "pci/pci_bus_id", "gpu_name": "product_name", "gpu_serial": "serial"}
    unknown = [field for field in fields if field not in names and field not in of_gpu]
    if unknown:
        raise Stop(f'Field "{unknown[0]}" is not a valid field to query.\n', 2)
    if "noheader" not in layout:
        print(", ".join(f"{field} [MiB]" if field.startswith("used") else field for field in fields))
    for gpu in chosen:
        prefix = f"gpu/{gpu}/processes/process_info["
        numbers = sorted({int(key[len(prefix) :].split("]")[0]) for key, _value in sim.keys if key.startswith(prefix)})
        for number in numbers:
            if "C" not in sim.text(gpu, f"processes/process_info[{number}]/type")[0]:
                continue
            cells = [
                sim.text(gpu, of_gpu[field] if field in of_gpu else f"processes/process_info[{number}]/{names[field]}")[
                    0
                ]
                for field in fields
            ]
            print(", ".join(re.sub(r" MiB$", "", cell) if "nounits" in layout else cell for cell in cells))
    return 0


def print_list(sim: Simulation, chosen: List[int]) -> int:
    status = 0
    for index, gpu in enumerate(sim.gpus):
        if gpu not in chosen:
            continue
        lost = sim.lost(gpu)
        if lost:
            status = print_lost(sim, gpu, lost)
        else:
            print(f"GPU {index}: {sim.text(gpu, 'product_name')[0]} (UUID: {sim.text(gpu, 'uuid')[0]})")
    return status


def print_table(sim: Simulation) -> int:
    """What a person sees without arguments, in its essentials."""
    line = "+-----------------------------------------------------------------------------------------+"
    print(time.strftime("%a %b %e %H:%M:%S %Y"))
    driver = sim.raw("driver_version")
    print(line)
    print(f"| {f'NVIDIA-SMI {driver}':<35}Driver Version: {driver:<17}CUDA Version: {sim.raw('cuda_version'):<5}|")
    print(line)
    for index, gpu in enumerate(sim.gpus):
        lost = sim.lost(gpu)
        if lost:
            return print_lost(sim, gpu, lost)
        cells = [query_value(sim, gpu, index, field).strip("[]")
                 for field in ("name", "pci.bus_id", "temperature.gpu", "pstate", "power.draw", "power.limit",
                               "memory.used", "memory.total", "utilization.gpu")]  # fmt: skip
        first, rest = f"{index:>3}  {cells[0]:<40}", f"{cells[1]:>18}"
        print(f"| {first}{rest:<43}|")
        detail = f"{cells[2]:>6}  {cells[3]:<4} {cells[4]} / {cells[5]}  {cells[6]} / {cells[7]}  {cells[8]}"
        print(f"| {detail:<88}|")
    print(line)
    return 0
