# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints what unchanged pynvml says of every element that NVML answers: JSON lines [gpu, path, answer].

An error is {"error": CODE}. A number is in NVML's unit.
"""

from __future__ import annotations

import ctypes
import json
import typing as t

import pynvml as n

Call = t.Callable[[t.Any], t.Any]


def field(number: int, scope: int = 0) -> Call:
    """A field value, by the type that it says it has."""

    def read(handle: t.Any) -> t.Any:
        value = n.nvmlDeviceGetFieldValues(handle, [(number, scope)])[0]
        if value.nvmlReturn != 0:
            raise n.NVMLError(value.nvmlReturn)
        kinds = {n.NVML_VALUE_TYPE_SIGNED_INT: "siVal", n.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal"}
        return getattr(value.value, kinds.get(value.valueType, "ullVal"))

    return read


def ecc(kind: int, counter: int, location: int) -> Call:
    return lambda h: n.nvmlDeviceGetMemoryErrorCounter(h, kind, counter, location)


def sram(name: str) -> Call:
    def read(handle: t.Any) -> t.Any:
        status = n.c_nvmlEccSramErrorStatus_v1_t()
        n.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
        return getattr(status, name)

    return read


def margin(handle: t.Any) -> int:
    found: int = n.nvmlDeviceGetMarginTemperature(handle)
    return found


def fabric(name: str) -> Call:
    def read(handle: t.Any) -> t.Any:
        info: t.Any = n.c_nvmlGpuFabricInfo_v3_t()
        try:
            n.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        except n.NVMLError_ArgumentVersionMismatch:  # an older driver
            info = n.c_nvmlGpuFabricInfo_v2_t()
            n.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
        value = getattr(info, name)
        return bytes(value).hex() if name == "clusterUuid" else value

    return read


def at(call: str, name: str, **more: t.Any) -> Call:
    """An attribute of what a call returns, or a place in it."""

    def read(handle: t.Any) -> t.Any:
        found = getattr(n, call)(handle, **more)
        return found[int(name)] if name.isdigit() else getattr(found, name)

    return read


LINK = "pci/pci_gpu_link_info"
POWER = "gpu_power_readings"
COUNTERS = "clocks_event_reasons_counters/clocks_event_reasons_counters"
HISTOGRAM = "remapped_rows/row_remapper_histogram/row_remapper_histogram"
VOLATILE, AGGREGATE, DRAM, SRAM = 0, 1, 2, 7
SHUTDOWN, SLOWDOWN, MEM_MAX, GPU_MAX = 0, 1, 2, 3

TABLE: tuple[tuple[str, Call], ...] = (
    ("product_name", n.nvmlDeviceGetName),
    ("product_brand", n.nvmlDeviceGetBrand),
    ("product_architecture", n.nvmlDeviceGetArchitecture),
    ("uuid", n.nvmlDeviceGetUUID),
    ("serial", n.nvmlDeviceGetSerial),
    ("vbios_version", n.nvmlDeviceGetVbiosVersion),
    ("board_id", n.nvmlDeviceGetBoardId),
    ("board_part_number", n.nvmlDeviceGetBoardPartNumber),
    ("minor_number", n.nvmlDeviceGetMinorNumber),
    ("multigpu_board", n.nvmlDeviceGetMultiGpuBoard),
    ("platformInfo/module_id", n.nvmlDeviceGetModuleId),
    ("inforom_version/img_version", n.nvmlDeviceGetInforomImageVersion),
    ("inforom_version/oem_object", lambda h: n.nvmlDeviceGetInforomVersion(h, n.NVML_INFOROM_OEM)),
    ("inforom_version/ecc_object", lambda h: n.nvmlDeviceGetInforomVersion(h, n.NVML_INFOROM_ECC)),
    ("inforom_version/pwr_object", lambda h: n.nvmlDeviceGetInforomVersion(h, n.NVML_INFOROM_POWER)),
    ("gsp_firmware_version", n.nvmlDeviceGetGspFirmwareVersion),
    ("persistence_mode", n.nvmlDeviceGetPersistenceMode),
    ("display_active", n.nvmlDeviceGetDisplayActive),
    ("compute_mode", n.nvmlDeviceGetComputeMode),
    ("mig_mode/current_mig", at("nvmlDeviceGetMigMode", "0")),
    ("mig_mode/pending_mig", at("nvmlDeviceGetMigMode", "1")),
    ("ecc_mode/current_ecc", n.nvmlDeviceGetCurrentEccMode),
    ("ecc_mode/pending_ecc", n.nvmlDeviceGetPendingEccMode),
    ("gpu_virtualization_mode/virtualization_mode", n.nvmlDeviceGetVirtualizationMode),
    ("gpu_recovery_action", field(n.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)),
    ("pci/pci_bus_id", at("nvmlDeviceGetPciInfo", "busId")),
    ("pci/pci_device_id", at("nvmlDeviceGetPciInfo", "pciDeviceId")),
    ("pci/pci_sub_system_id", at("nvmlDeviceGetPciInfo", "pciSubSystemId")),
    (f"{LINK}/pcie_gen/current_link_gen", n.nvmlDeviceGetCurrPcieLinkGeneration),
    (f"{LINK}/pcie_gen/max_link_gen", n.nvmlDeviceGetMaxPcieLinkGeneration),
    (f"{LINK}/pcie_gen/max_device_link_gen", n.nvmlDeviceGetGpuMaxPcieLinkGeneration),
    (f"{LINK}/link_widths/current_link_width", n.nvmlDeviceGetCurrPcieLinkWidth),
    (f"{LINK}/link_widths/max_link_width", n.nvmlDeviceGetMaxPcieLinkWidth),
    ("pci/replay_counter", n.nvmlDeviceGetPcieReplayCounter),
    ("pci/replay_counter", field(n.NVML_FI_DEV_PCIE_REPLAY_COUNTER)),
    ("pci/replay_rollover_counter", field(n.NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER)),
    ("fan_speed", n.nvmlDeviceGetFanSpeed),
    ("performance_state", n.nvmlDeviceGetPerformanceState),
    *(
        (f"{COUNTERS}_{name}", field(number))
        for name, number in (
            ("sw_power_cap", n.NVML_FI_DEV_PERF_POLICY_POWER),
            ("sync_boost", n.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST),
            ("sw_therm_slowdown", n.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN),
            ("hw_therm_slowdown", n.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN),
            ("hw_power_brake", n.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN),
        )
    ),
    ("fb_memory_usage/total", at("nvmlDeviceGetMemoryInfo", "total")),
    ("fb_memory_usage/free", at("nvmlDeviceGetMemoryInfo", "free")),
    ("fb_memory_usage/reserved", at("nvmlDeviceGetMemoryInfo", "reserved", version=n.nvmlMemory_v2)),
    ("fb_memory_usage/used", at("nvmlDeviceGetMemoryInfo", "used", version=n.nvmlMemory_v2)),
    ("bar1_memory_usage/total", at("nvmlDeviceGetBAR1MemoryInfo", "bar1Total")),
    ("utilization/gpu_util", at("nvmlDeviceGetUtilizationRates", "gpu")),
    ("utilization/memory_util", at("nvmlDeviceGetUtilizationRates", "memory")),
    ("ecc_errors/volatile/dram_correctable", ecc(0, VOLATILE, DRAM)),
    ("ecc_errors/volatile/dram_uncorrectable", ecc(1, VOLATILE, DRAM)),
    ("ecc_errors/aggregate/dram_correctable", ecc(0, AGGREGATE, DRAM)),
    ("ecc_errors/aggregate/dram_uncorrectable", ecc(1, AGGREGATE, DRAM)),
    ("ecc_errors/volatile/sram_correctable", ecc(0, VOLATILE, SRAM)),
    ("ecc_errors/aggregate/sram_correctable", ecc(0, AGGREGATE, SRAM)),
    ("ecc_errors/volatile/sram_uncorrectable_secded", sram("volatileUncSecDed")),
    ("ecc_errors/aggregate/sram_uncorrectable_parity", sram("aggregateUncParity")),
    ("ecc_errors/aggregate/sram_threshold_exceeded", sram("bThresholdExceeded")),
    ("retired_pages/multiple_single_bit_retirement/retired_count",
     lambda h: len(n.nvmlDeviceGetRetiredPages(h, n.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS))),
    ("retired_pages/double_bit_retirement/retired_count",
     lambda h: len(n.nvmlDeviceGetRetiredPages(h, n.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR))),
    ("retired_pages/pending_retirement", n.nvmlDeviceGetRetiredPagesPendingStatus),
    ("remapped_rows/remapped_row_corr", at("nvmlDeviceGetRemappedRows", "0")),
    ("remapped_rows/remapped_row_unc", at("nvmlDeviceGetRemappedRows", "1")),
    ("remapped_rows/remapped_row_pending", at("nvmlDeviceGetRemappedRows", "2")),
    ("remapped_rows/remapped_row_failure", at("nvmlDeviceGetRemappedRows", "3")),
    ("remapped_rows/remapped_row_failure", field(n.NVML_FI_DEV_REMAPPED_FAILURE)),
    (f"{HISTOGRAM}_max", at("nvmlDeviceGetRowRemapperHistogram", "max")),
    (f"{HISTOGRAM}_low", at("nvmlDeviceGetRowRemapperHistogram", "low")),
    ("temperature/gpu_temp", lambda h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU)),
    ("temperature/gpu_temp", lambda h: n.nvmlDeviceGetTemperatureV(h, n.NVML_TEMPERATURE_GPU)),
    ("temperature/gpu_temp_tlimit", margin),
    ("temperature/memory_temp", field(n.NVML_FI_DEV_MEMORY_TEMP)),
    *(
        (f"temperature/gpu_temp_{name}_threshold", lambda h, kind=kind: n.nvmlDeviceGetTemperatureThreshold(h, kind))
        for name, kind in (("max", SHUTDOWN), ("slow", SLOWDOWN), ("max_mem", MEM_MAX), ("max_gpu", GPU_MAX))
    ),
    *(
        (f"temperature/gpu_temp_{name}_tlimit_threshold", field(number))
        for name, number in (("max", 193), ("slow", 194), ("max_mem", 195), ("max_gpu", 196))
    ),
    (f"{POWER}/average_power_draw", field(n.NVML_FI_DEV_POWER_AVERAGE)),
    (f"{POWER}/instant_power_draw", field(n.NVML_FI_DEV_POWER_INSTANT)),
    (f"{POWER}/current_power_limit", n.nvmlDeviceGetEnforcedPowerLimit),
    (f"{POWER}/requested_power_limit", n.nvmlDeviceGetPowerManagementLimit),
    (f"{POWER}/default_power_limit", n.nvmlDeviceGetPowerManagementDefaultLimit),
    (f"{POWER}/min_power_limit", at("nvmlDeviceGetPowerManagementLimitConstraints", "0")),
    (f"{POWER}/max_power_limit", at("nvmlDeviceGetPowerManagementLimitConstraints", "1")),
    ("module_power_readings/instant_power_draw", field(n.NVML_FI_DEV_POWER_INSTANT, 1)),
    ("gpu_memory_power_readings/average_power_draw", field(n.NVML_FI_DEV_POWER_AVERAGE, 2)),
    *(
        (f"{group}/{name}", lambda h, call=call, kind=kind: getattr(n, call)(h, kind))
        for group, call in (
            ("clocks", "nvmlDeviceGetClockInfo"),
            ("max_clocks", "nvmlDeviceGetMaxClockInfo"),
            ("applications_clocks", "nvmlDeviceGetApplicationsClock"),
        )
        for kind, name in enumerate(("graphics_clock", "sm_clock", "mem_clock", "video_clock"))
        if group != "applications_clocks" or kind in (0, 2)
    ),
    ("fabric/state", fabric("state")),
    ("fabric/cliqueId", fabric("cliqueId")),
    ("fabric/clusterUuid", fabric("clusterUuid")),
    ("fabric/health/summary", fabric("healthSummary")),
)  # fmt: skip


def answer(call: Call, handle: t.Any) -> t.Any:
    try:
        found = call(handle)
    except n.NVMLError as error:
        return {"error": error.value}
    return found.decode() if isinstance(found, bytes) else found


def main() -> None:
    n.nvmlInit()
    for gpu in range(n.nvmlDeviceGetCount()):
        handle = n.nvmlDeviceGetHandleByIndex(gpu)
        for path, call in TABLE:
            print(json.dumps([gpu, path, answer(call, handle)]))


if __name__ == "__main__":
    main()
