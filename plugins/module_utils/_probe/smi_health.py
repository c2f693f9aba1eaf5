# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only health needs of ``nvidia-smi -q -x``, beside what smi.py reads: gpu_drift does not carry it. Pure."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import smi
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.address import normalise_address
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.smi import (
    NOT_SUPPORTED,
    Fields,
    Gpu,
    Tree,
    flag,
    integer,
    watts,
    word,
)


def parse(text: str) -> Tree:
    """As smi.parse, with all facts."""
    return smi.parse(text, _more)


def _more(one: Gpu, output: str) -> None:
    one.file(_FIELDS)
    # Where an infoROM is corrupt, a line beside the document says so.
    corrupt = {normalise_address(address) for address in re.findall(r"infoROM is corrupted at gpu (\S+)", output)}
    one.tree["inforom_valid"] = one.tree["pci_address"] not in corrupt
    _draw(one)
    _sram(one)
    _reasons(one)
    _fabric(one)
    _processes(one)


def add_compute_capability(gpus: t.Sequence[Tree], csv: str) -> None:
    """Put in what ``--query-gpu=uuid,compute_cap`` printed; a line that is no such pair is passed over."""
    pairs = dict(re.findall(r"^(\S+), *(\d+\.\d+)\s*$", csv, re.MULTILINE))
    for gpu in gpus:
        if gpu["uuid"] in pairs:
            gpu["compute_capability"] = pairs[gpu["uuid"]]


def _license(text: str) -> str:
    """``Licensed (Expiry: ...)`` or ``Unlicensed (Unrestricted)``."""
    return "licensed" if text.lower().startswith("licensed") else "unlicensed"


_FIELDS: Fields = (
    ("board_part_number", "board_part_number", str),
    ("minor_number", "minor_number", integer),
    ("architecture", "product_architecture", str),
    ("persistence", "persistence_mode", flag),
    ("compute_mode", "compute_mode", word),
    ("recovery_action", "gpu_recovery_action", word),
    ("ecc.volatile.sram_corrected", "ecc_errors/volatile/sram_correctable", integer),
    ("ecc.volatile.dram_corrected", "ecc_errors/volatile/dram_correctable", integer),
    ("ecc.volatile.dram_uncorrected", "ecc_errors/volatile/dram_uncorrectable", integer),
    ("ecc.aggregate.sram_corrected", "ecc_errors/aggregate/sram_correctable", integer),
    ("ecc.aggregate.dram_corrected", "ecc_errors/aggregate/dram_correctable", integer),
    ("ecc.aggregate.dram_uncorrected", "ecc_errors/aggregate/dram_uncorrectable", integer),
    ("ecc.sram_threshold_exceeded", "ecc_errors/aggregate/sram_threshold_exceeded", flag),
    ("ecc.channel_repair_pending", "ecc_errors/channel_repair_pending", flag),
    ("ecc.tpc_repair_pending", "ecc_errors/tpc_repair_pending", flag),
    ("ecc.unrepairable_memory", "ecc_errors/unrepairable_memory", flag),
    ("remapped_rows.corrected", "remapped_rows/remapped_row_corr", integer),
    ("remapped_rows.uncorrected", "remapped_rows/remapped_row_unc", integer),
    ("remapped_rows.pending", "remapped_rows/remapped_row_pending", flag),
    ("remapped_rows.failure", "remapped_rows/remapped_row_failure", flag),
    *(
        (f"remapped_rows.banks.{name}", f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}", integer)
        for name in ("max", "high", "partial", "low", "none")
    ),
    ("retired_pages.single_bit", "retired_pages/multiple_single_bit_retirement/retired_count", integer),
    ("retired_pages.double_bit", "retired_pages/double_bit_retirement/retired_count", integer),
    ("retired_pages.pending", "retired_pages/pending_retirement", flag),
    ("memory_mib", "fb_memory_usage/total", integer),
    ("bar1_mib", "bar1_memory_usage/total", integer),
    ("pcie.generation", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", integer),
    ("pcie.generation_max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", integer),
    ("pcie.width_max", "pci/pci_gpu_link_info/link_widths/max_link_width", integer),
    ("pcie.replay_count", "pci/replay_counter", integer),
    ("temperature.gpu_c", "temperature/gpu_temp", integer),
    ("temperature.memory_c", "temperature/memory_temp", integer),
    ("temperature.margin_c", "temperature/gpu_temp_tlimit", integer),
    ("temperature.shutdown_c", "temperature/gpu_temp_max_threshold", integer),
    ("temperature.slowdown_c", "temperature/gpu_temp_slow_threshold", integer),
    ("temperature.max_operating_c", "temperature/gpu_temp_max_gpu_threshold", integer),
    ("temperature.memory_max_c", "temperature/gpu_temp_max_mem_threshold", integer),
    ("temperature.shutdown_tlimit_c", "temperature/gpu_temp_max_tlimit_threshold", integer),
    ("temperature.slowdown_tlimit_c", "temperature/gpu_temp_slow_tlimit_threshold", integer),
    ("temperature.max_operating_tlimit_c", "temperature/gpu_temp_max_gpu_tlimit_threshold", integer),
    ("temperature.memory_max_tlimit_c", "temperature/gpu_temp_max_mem_tlimit_threshold", integer),
    # One element a driver: up to R525 the readings were "power_readings".
    ("power.requested_w", "gpu_power_readings/requested_power_limit", watts),
    ("power.requested_w", "power_readings/power_limit", watts),
    ("power.default_w", "gpu_power_readings/default_power_limit", watts),
    ("power.default_w", "power_readings/default_power_limit", watts),
    ("power.min_w", "gpu_power_readings/min_power_limit", watts),
    ("power.min_w", "power_readings/min_power_limit", watts),
    ("power.max_w", "gpu_power_readings/max_power_limit", watts),
    ("power.max_w", "power_readings/max_power_limit", watts),
    ("power.average_w", "gpu_power_readings/average_power_draw", watts),
    ("power.instant_w", "gpu_power_readings/instant_power_draw", watts),
    ("power.draw_w", "gpu_power_readings/power_draw", watts),
    ("power.draw_w", "power_readings/power_draw", watts),
    ("performance_state", "performance_state", str),
    ("clocks.sm_mhz", "clocks/sm_clock", integer),
    ("clocks.memory_mhz", "clocks/mem_clock", integer),
    ("clocks.sm_max_mhz", "max_clocks/sm_clock", integer),
    ("clocks.memory_max_mhz", "max_clocks/mem_clock", integer),
    ("virtualization_mode", "gpu_virtualization_mode/virtualization_mode", word),
    ("vgpu_license", "vgpu_software_licensed_product/license_status", _license),
)

#: Names that are shorter here than in nvml.h.
_FABRIC_WORDS = {"incorrect_sysguid": "incorrect_system_guid", "incorrect_chassis_s_n": "incorrect_chassis_serial"}
_COUNTERS = {"sw_therm_slowdown": "sw_thermal_slowdown", "hw_therm_slowdown": "hw_thermal_slowdown"}
_COUNTERS["hw_power_brake"] = "hw_power_brake_slowdown"


def _draw(one: Gpu) -> None:
    """One number for the draw, as NVML has it: the average where the GPU keeps one."""
    power = one.tree.get("power", {})
    numbers = [power[name] for name in ("average_w", "instant_w") if isinstance(power.get(name), float)]
    if numbers:
        power.setdefault("draw_w", numbers[0])


def _sram(one: Gpu) -> None:
    """Uncorrected SRAM errors: one element, or (since R535) parity and SEC-DED apart."""
    for kind in ("volatile", "aggregate"):
        folder = f"ecc_errors/{kind}/sram_uncorrectable"
        values = [
            one.value(text, integer)
            for text in (one.text(folder), one.text(f"{folder}_parity"), one.text(f"{folder}_secded"))
            if text is not None
        ]
        if not values:
            continue
        numbers = [value for value in values if isinstance(value, int)]
        total = sum(numbers) if len(numbers) == len(values) else None
        if all(value == NOT_SUPPORTED for value in values):
            total = NOT_SUPPORTED  # type: ignore[assignment]
        one.tree.setdefault("ecc", {}).setdefault(kind, {})["sram_uncorrected"] = total


def _reasons(one: Gpu) -> None:
    for kind in ("event", "throttle"):
        group = one.element.find(f"clocks_{kind}_reasons")
        if group is not None:
            prefix = f"clocks_{kind}_reason_"
            states = {child.tag[len(prefix) :]: one.value((child.text or "").strip(), flag) for child in group}
            one.tree["clocks_event_reasons"] = [name for name, active in states.items() if active is True]
            break
    group = one.element.find("clocks_event_reasons_counters")
    for child in group if group is not None else ():
        name = child.tag[len("clocks_event_reasons_counters_") :]
        one.put(f"clocks_event_counters_us.{_COUNTERS.get(name, name)}", (child.text or "").strip(), integer)


def _fabric(one: Gpu) -> None:
    state = one.text("fabric/state")
    if state is None:
        return
    name = one.value(state, word)
    if name == NOT_SUPPORTED or name is None:
        one.tree["fabric"] = {"state": name}
        return
    health: Tree = {}
    for field, source in (
        ("degraded_bandwidth", "bandwidth"),
        ("route_recovery", "route_recovery_in_progress"),
        ("route_unhealthy", "route_unhealthy"),
        ("access_timeout_recovery", "access_timeout_recovery"),
    ):
        text = one.text(f"fabric/health/{source}")
        if text is not None:
            health[field] = one.value(text, _degraded if source == "bandwidth" else flag)
    for field in ("incorrect_configuration", "summary"):
        text = one.text(f"fabric/health/{field}")
        if text is not None:
            health[field] = one.value(text, lambda text: _FABRIC_WORDS.get(word(text), word(text)))
    clique, cluster = one.text("fabric/cliqueId") or "", one.text("fabric/clusterUuid") or ""
    one.tree["fabric"] = {
        "state": name,
        "status": one.value(one.text("fabric/status") or "", word),
        "clique_id": one.value(clique, integer),
        "cluster_uuid": one.value(cluster, str),
        "health": health,
    }


def _degraded(text: str) -> bool:
    """``Full`` or ``Degraded``."""
    return {"full": False, "degraded": True}[text.lower()] if text.lower() in ("full", "degraded") else flag(text)


def _processes(one: Gpu) -> None:
    group = one.element.find("processes")
    if group is None:
        return
    text = (group.text or "").strip()
    if text and len(group) == 0:
        one.tree["processes"] = one.value(text, lambda _text: [])
        return
    kinds = {"C": "compute", "G": "graphics", "C+G": "compute", "M+C": "compute"}
    one.tree["processes"] = [
        {
            "pid": one.value(info.findtext("pid", ""), integer),
            "kind": kinds.get(info.findtext("type", "").strip(), "compute"),
            "memory_mib": _memory(one.value(info.findtext("used_memory", ""), integer)),
        }
        for info in group.findall("process_info")
    ]


def _memory(value: t.Any) -> t.Optional[int]:
    return value if isinstance(value, int) else None
