# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of one GPU that only health needs, beside those of facts.py: gpu_drift does not carry them."""

from __future__ import annotations

import ctypes
import itertools
import types
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.facts import (
    ABSENT,
    NOT_SUPPORTED,
    Gpu,
    Part,
    Tree,
    text,
    watts,
)

_CORRUPT = 14
MIB = 1 << 20

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
}
#: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, named as nvidia-smi prints them.
RECOVERY_ACTIONS = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
#: Bits of nvmlDeviceGetCurrentClocksEventReasons.
CLOCK_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}
#: nvmlDeviceGetP2PStatus.
P2P = {
    0: "ok",
    1: "chipset_not_supported",
    2: "gpu_not_supported",
    3: "topology_not_supported",
    4: "disabled_by_regkey",
    5: NOT_SUPPORTED,
}
VIRTUALIZATION_MODES = {0: "none", 1: "pass_through", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
FABRIC_STATES = {0: NOT_SUPPORTED, 1: "not_started", 2: "in_progress", 3: "completed"}
#: Fields of the fabric's health mask: shift, width in bits.
FABRIC_HEALTH = {
    "degraded_bandwidth": (0, 2),
    "route_recovery": (2, 2),
    "route_unhealthy": (4, 2),
    "access_timeout_recovery": (6, 2),
}
FABRIC_MISCONFIGURED = {
    0: NOT_SUPPORTED,
    1: "none",
    2: "incorrect_system_guid",
    3: "incorrect_chassis_serial",
    4: "no_partition",
    5: "insufficient_nvlinks",
    6: "incompatible_gpu_firmware",
    7: "invalid_location",
    8: "gpu_state_invalid",
}
FABRIC_SUMMARY = {0: NOT_SUPPORTED, 1: "healthy", 2: "unhealthy", 3: "limited_capacity"}


def p2p(nvml: types.ModuleType, count: int) -> t.List[t.List[t.Optional[str]]]:
    """Whether one GPU reads another's memory: a square of words by index, None on its diagonal and where unknown."""
    square: t.List[t.List[t.Optional[str]]] = [[None] * count for _row in range(count)]
    handles: t.List[t.Any] = []
    for index in range(count):
        try:
            handles.append(nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError:
            handles.append(None)
    for first, second in itertools.combinations(range(count), 2):
        if handles[first] is None or handles[second] is None:
            continue
        try:
            code = nvml.nvmlDeviceGetP2PStatus(handles[first], handles[second], 0)
        except nvml.NVMLError:
            continue
        square[first][second] = square[second][first] = P2P.get(code)
    return square


def _model(one: Gpu) -> None:
    one.put("board_part_number", one.ask("BoardPartNumber"), text)
    one.put("minor_number", one.ask("MinorNumber"))
    one.put("architecture", one.ask("Architecture"), lambda code: ARCHITECTURES.get(code, f"architecture {code}"))
    one.put("compute_capability", one.ask("CudaComputeCapability"), lambda pair: f"{pair[0]}.{pair[1]}")
    one.put("inforom_valid", _inforom(one))
    one.put(
        "virtualization_mode",
        one.ask("VirtualizationMode"),
        lambda code: VIRTUALIZATION_MODES.get(code, f"mode {code}"),
    )
    one.put("vgpu_license", one.ask("GridLicensableFeatures_v4"), _license)


def _inforom(one: Gpu) -> t.Any:
    """Whether the checksum of the infoROM is right."""
    validate = getattr(one.nvml, "nvmlDeviceValidateInforom", None)
    if validate is None:
        return ABSENT

    def call() -> bool:
        try:
            validate(one.handle)
        except one.nvml.NVMLError as error:
            if error.value == _CORRUPT:
                return False
            raise
        return True

    return one.answer(call)


def _state(one: Gpu) -> None:
    one.put("persistence", one.ask("PersistenceMode"), bool)
    one.put("compute_mode", one.ask("ComputeMode"), lambda code: COMPUTE_MODES.get(code, f"mode {code}"))
    one.put(
        "recovery_action",
        one.fields(action=230)["action"],
        lambda code: RECOVERY_ACTIONS.get(code, f"action {code}"),
    )


def _memory(one: Gpu) -> None:
    # The second version leaves out what the driver keeps for itself; "total" is the same in both.
    memory = one.ask("MemoryInfo")
    one.put("memory_mib", memory, lambda info: info.total // MIB)
    bar1 = one.ask("BAR1MemoryInfo")
    one.put("bar1_mib", bar1, lambda info: info.bar1Total // MIB)


def _errors(one: Gpu) -> None:
    # nvmlDeviceGetMemoryErrorCounter: type 0 corrected, 1 uncorrected; counter 0 volatile, 1 aggregate;
    # location 2 DRAM, 7 SRAM.
    for kind, counter in (("volatile", 0), ("aggregate", 1)):
        for memory, location in (("sram", 7), ("dram", 2)):
            for name, code in (("corrected", 0), ("uncorrected", 1)):
                one.put(f"ecc.{kind}.{memory}_{name}", one.ask("MemoryErrorCounter", code, counter, location))
    build = getattr(one.nvml, "c_nvmlEccSramErrorStatus_v1_t", None)
    if build is not None:
        status = build()
        told = one.ask("SramEccErrorStatus", ctypes.byref(status))
        one.put("ecc.sram_threshold_exceeded", told, lambda _success: bool(status.bThresholdExceeded))
    repair = one.ask("RepairStatus")
    one.put("ecc.channel_repair_pending", repair, lambda pair: bool(pair[0]))
    one.put("ecc.tpc_repair_pending", repair, lambda pair: bool(pair[1]))
    _unrepairable(one)
    rows = one.ask("RemappedRows")
    for place, name in enumerate(("corrected", "uncorrected")):
        one.put(f"remapped_rows.{name}", rows, lambda found, place=place: found[place])  # type: ignore[misc]
    for place, name in ((2, "pending"), (3, "failure")):
        one.put(f"remapped_rows.{name}", rows, lambda found, place=place: bool(found[place]))  # type: ignore[misc]
    banks = one.ask("RowRemapperHistogram")
    for name in ("max", "high", "partial", "low", "none"):
        one.put(f"remapped_rows.banks.{name}", banks, lambda found, name=name: getattr(found, name))  # type: ignore[misc]
    for name, cause in (("single_bit", 0), ("double_bit", 1)):
        one.put(f"retired_pages.{name}", one.ask("RetiredPages", cause), len)
    one.put("retired_pages.pending", one.ask("RetiredPagesPendingStatus"), bool)


def _unrepairable(one: Gpu) -> None:
    """pynvml's record has a version before the flag, nvml.h's has none: then the flag lies where the version was."""
    build = getattr(one.nvml, "c_nvmlUnrepairableMemory_v1_t", None)
    if build is None:
        return
    status = build()
    version = status.version

    def call() -> int:
        function = one.nvml._nvmlGetFunctionPointer("nvmlDeviceGetUnrepairableMemoryFlag_v1")
        one.nvml._nvmlCheckReturn(function(one.handle, ctypes.byref(status)))
        return int(status.unrepairableMemory if status.version == version else status.version)

    one.put("ecc.unrepairable_memory", one.answer(call), bool)


def _pcie(one: Gpu) -> None:
    for name, call in (
        ("generation", "CurrPcieLinkGeneration"),
        ("generation_max", "MaxPcieLinkGeneration"),
        ("width_max", "MaxPcieLinkWidth"),
        ("replay_count", "PcieReplayCounter"),
    ):
        one.put(f"pcie.{name}", one.ask(call))


def _thermal(one: Gpu) -> None:
    one.put("temperature.gpu_c", one.ask("Temperature", 0))
    one.put("temperature.margin_c", one.ask("MarginTemperature"))
    values = one.fields(
        memory_c=82, shutdown_tlimit_c=193, slowdown_tlimit_c=194, memory_max_tlimit_c=195, max_operating_tlimit_c=196
    )
    for name, value in values.items():
        one.put(f"temperature.{name}", value)
    # A driver gives either temperatures or offsets to the limit (T.Limit, negative); never one in place of the other.
    for name, code in (("shutdown", 0), ("slowdown", 1), ("memory_max", 2), ("max_operating", 3)):
        one.put(f"temperature.{name}_c", one.ask("TemperatureThreshold", code))


def _power(one: Gpu) -> None:
    one.put("power.requested_w", one.ask("PowerManagementLimit"), watts)
    one.put("power.default_w", one.ask("PowerManagementDefaultLimit"), watts)
    limits = one.ask("PowerManagementLimitConstraints")
    one.put("power.min_w", limits, lambda pair: watts(pair[0]))
    one.put("power.max_w", limits, lambda pair: watts(pair[1]))
    for name, value in one.fields(average_w=185, instant_w=186).items():
        one.put(f"power.{name}", value, watts)
    one.put("power.draw_w", one.ask("PowerUsage"), watts)


def _clocks(one: Gpu) -> None:
    one.put("performance_state", one.ask("PerformanceState"), lambda code: f"P{code}" if code < 32 else None)
    for name, code in (("sm", 1), ("memory", 2)):
        one.put(f"clocks.{name}_mhz", one.ask("ClockInfo", code))
        one.put(f"clocks.{name}_max_mhz", one.ask("MaxClockInfo", code))
    reasons = one.ask("CurrentClocksEventReasons")
    if reasons is ABSENT:
        reasons = one.ask("CurrentClocksThrottleReasons")
    one.put("clocks_event_reasons", reasons, lambda mask: [name for bit, name in CLOCK_REASONS.items() if mask & bit])
    counters = one.fields(
        sw_power_cap=74, sync_boost=76, sw_thermal_slowdown=269, hw_thermal_slowdown=270, hw_power_brake_slowdown=271
    )
    for name, value in counters.items():
        one.put(f"clocks_event_counters_us.{name}", value, lambda nanoseconds: nanoseconds // 1000)


def _fabric(one: Gpu) -> None:
    info: t.Any = ABSENT
    for kind in ("v3", "v2"):
        build = getattr(one.nvml, f"c_nvmlGpuFabricInfo_{kind}_t", None)
        if build is None:
            continue
        info = build()
        told = one.ask("GpuFabricInfoV", ctypes.byref(info))
        if told is ABSENT:
            info = ABSENT
            continue
        if told is None or told == NOT_SUPPORTED:
            one.put("fabric.state", told)
            return
        break
    if info is ABSENT:
        return
    one.tree["fabric"] = fabric_record(
        info.state,
        info.status,
        info.cliqueId,
        bytes(info.clusterUuid),
        info.healthMask,
        getattr(info, "healthSummary", None),
    )


def fabric_record(state: int, status: int, clique: int, cluster: bytes, mask: int, summary: t.Optional[int]) -> Tree:
    """The ``fabric`` part, with the health mask decoded field by field (each field is its own little number)."""
    name = FABRIC_STATES.get(state, f"state {state}")
    if name == NOT_SUPPORTED:
        return {"state": NOT_SUPPORTED}
    health: Tree = {}
    for field, (shift, width) in FABRIC_HEALTH.items():
        value = mask >> shift & ((1 << width) - 1)
        health[field] = {0: NOT_SUPPORTED, 1: True, 2: False}.get(value)
    code = mask >> 8 & 0xF
    health["incorrect_configuration"] = FABRIC_MISCONFIGURED.get(code, f"code {code}")
    if summary is not None:
        health["summary"] = FABRIC_SUMMARY.get(summary, f"summary {summary}")
    digits = cluster.hex()
    return {
        "state": name,
        "status": "success" if status == 0 else f"error {status}",
        "clique_id": clique,
        "cluster_uuid": "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
        "health": health,
    }


def _license(features: t.Any) -> str:
    """Whether a vGPU has its licence; a GPU that needs none says "not supported"."""
    if not features.isGridLicenseSupported:
        return NOT_SUPPORTED
    listed = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return "licensed" if any(feature.featureState for feature in listed) else "unlicensed"


def _processes(one: Gpu) -> None:
    found: t.Any = []
    for kind, call in (("compute", "ComputeRunningProcesses"), ("graphics", "GraphicsRunningProcesses")):
        listed = one.ask(call)
        if isinstance(listed, list):
            found += [
                {
                    "pid": entry.pid,
                    "kind": kind,
                    "memory_mib": entry.usedGpuMemory // MIB if entry.usedGpuMemory else None,
                }
                for entry in listed
            ]
        elif kind == "compute":
            found = listed
            break
    one.put("processes", found)


PARTS: t.Tuple[Part, ...] = (_model, _state, _memory, _errors, _pcie, _thermal, _power, _clocks, _fabric, _processes)
