# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts of one GPU through pynvml. Nothing is invented: three absences are kept apart.

``not_supported`` is what the driver calls so, None is what it could not tell,
and a field whose call this driver or this pynvml does not have is absent.
Codes and field ids are those of nvml.h, which never change; pynvml's names for
them came and went.
"""

from __future__ import annotations

import ctypes
import itertools
import types
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.pci import normalise_address

NOT_SUPPORTED = "not_supported"
#: nvml.h: invalid argument, not supported, function not found, lost, reset required, vGPU ECC, version, deprecated.
_NOT_SUPPORTED = (3, 22, 26)
_NOT_THERE = (13, 25)
_LOST = 15
_RESET = 16
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

_ABSENT = object()
Tree = t.Dict[str, t.Any]


class Lost(Exception):
    """The GPU is gone for the driver (``lost``) or answers nothing before a reset (``reset_required``)."""


class _Gpu:
    """Asks for one fact after the other and files the answers."""

    def __init__(self, nvml: types.ModuleType, handle: t.Any, index: int) -> None:
        self.nvml = nvml
        self.handle = handle
        self.tree: Tree = {"index": index}

    def ask(self, name: str, *arguments: t.Any) -> t.Any:
        """The raw answer, ``not_supported``, None for unknown, or _ABSENT where there is no such call."""
        call = getattr(self.nvml, f"nvmlDeviceGet{name}", None)
        return _ABSENT if call is None else self.answer(lambda: call(self.handle, *arguments))

    def answer(self, call: t.Callable[[], t.Any]) -> t.Any:
        """The same of a call that is there."""
        try:
            return call()
        except self.nvml.NVMLError as error:
            if error.value in (_LOST, _RESET):
                raise Lost("lost" if error.value == _LOST else "reset_required") from None
            if error.value in _NOT_THERE:
                return _ABSENT
            return NOT_SUPPORTED if error.value in _NOT_SUPPORTED else None
        except UnicodeDecodeError as error:
            return error.object.decode("utf-8", "replace")

    def put(self, path: str, value: t.Any, use: t.Callable[[t.Any], t.Any] = lambda value: value) -> None:
        """File an answer under ``group.name``."""
        if value is _ABSENT:
            return
        group, _dot, name = path.rpartition(".")
        place = self.tree
        for part in group.split(".") if group else ():
            place = place.setdefault(part, {})
        place[name] = value if value is None or value == NOT_SUPPORTED else use(value)

    def fields(self, **ids: int) -> t.Dict[str, t.Any]:
        """Values of nvmlDeviceGetFieldValues by name."""
        answers = self.ask("FieldValues", list(ids.values()))
        if answers is None or answers is _ABSENT or answers == NOT_SUPPORTED:
            return dict.fromkeys(ids, answers)
        found = {}
        for name, field in zip(ids, answers):
            code = field.nvmlReturn
            if code == 0:
                kind = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[field.valueType]
                found[name] = getattr(field.value, kind)
            elif code in (_LOST, _RESET):
                raise Lost("lost" if code == _LOST else "reset_required")
            else:
                # An older driver answers an id that it does not know with "invalid argument".
                found[name] = (
                    NOT_SUPPORTED if code in _NOT_SUPPORTED else _ABSENT if code in _NOT_THERE + (2,) else None
                )
        return found


def system(nvml: types.ModuleType) -> Tree:
    """Versions, and ``count``."""
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    return {
        "driver_version": nvml.nvmlSystemGetDriverVersion(),
        "cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "count": nvml.nvmlDeviceGetCount(),
    }


def gpu(nvml: types.ModuleType, index: int) -> Tree:
    """All facts of one GPU; a lost one has what was read before, and its ``state`` says so."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        state = {_LOST: "lost", _RESET: "reset_required"}.get(error.value, "error")
        return {"index": index, "uuid": None, "pci_address": None, "state": state, "error": str(error)}
    one = _Gpu(nvml, handle, index)
    one.tree.update({"uuid": None, "pci_address": None, "state": "ok"})
    for part in (_identity, _modes, _memory, _errors, _pcie, _thermal, _power, _clocks, _nvlink, _fabric, _processes):
        try:
            part(one)
        except Lost as lost:
            # The other parts may still be held by the library: what identifies the GPU is wanted most.
            one.tree["state"] = str(lost)
    return one.tree


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


def _identity(one: _Gpu) -> None:
    pci = one.ask("PciInfo")
    one.put("pci_address", pci, lambda info: normalise_address(_text(info.busId)))
    for path, name in (
        ("uuid", "UUID"),
        ("name", "Name"),
        ("serial", "Serial"),
        ("board_part_number", "BoardPartNumber"),
        ("vbios", "VbiosVersion"),
        ("minor_number", "MinorNumber"),
    ):
        one.put(path, one.ask(name), lambda value: value if isinstance(value, int) else _text(value))
    one.put("architecture", one.ask("Architecture"), lambda code: ARCHITECTURES.get(code, f"architecture {code}"))
    one.put("compute_capability", one.ask("CudaComputeCapability"), lambda pair: f"{pair[0]}.{pair[1]}")
    one.put("gsp_firmware", one.ask("GspFirmwareVersion"), _text)
    one.put("inforom_valid", _inforom(one))
    one.put(
        "virtualization_mode",
        one.ask("VirtualizationMode"),
        lambda code: VIRTUALIZATION_MODES.get(code, f"mode {code}"),
    )
    one.put("vgpu_license", one.ask("GridLicensableFeatures_v4"), _license)


def _inforom(one: _Gpu) -> t.Any:
    """Whether the checksum of the infoROM is right."""
    validate = getattr(one.nvml, "nvmlDeviceValidateInforom", None)
    if validate is None:
        return _ABSENT

    def call() -> bool:
        try:
            validate(one.handle)
        except one.nvml.NVMLError as error:
            if error.value == _CORRUPT:
                return False
            raise
        return True

    return one.answer(call)


def _modes(one: _Gpu) -> None:
    one.put("persistence", one.ask("PersistenceMode"), bool)
    one.put("compute_mode", one.ask("ComputeMode"), lambda code: COMPUTE_MODES.get(code, f"mode {code}"))
    mig = one.ask("MigMode")
    ecc = one.ask("EccMode")
    for place, name in enumerate(("current", "pending")):
        one.put(f"mig.{name}", mig, lambda pair, place=place: bool(pair[place]))  # type: ignore[misc]
        one.put(f"ecc.{name}", ecc, lambda pair, place=place: bool(pair[place]))  # type: ignore[misc]
    one.put(
        "recovery_action",
        one.fields(action=230)["action"],
        lambda code: RECOVERY_ACTIONS.get(code, f"action {code}"),
    )


def _memory(one: _Gpu) -> None:
    # The second version leaves out what the driver keeps for itself; "total" is the same in both.
    memory = one.ask("MemoryInfo")
    one.put("memory_mib", memory, lambda info: info.total // MIB)
    bar1 = one.ask("BAR1MemoryInfo")
    one.put("bar1_mib", bar1, lambda info: info.bar1Total // MIB)


def _errors(one: _Gpu) -> None:
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


def _unrepairable(one: _Gpu) -> None:
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


def _pcie(one: _Gpu) -> None:
    for name, call in (
        ("generation", "CurrPcieLinkGeneration"),
        ("generation_max", "MaxPcieLinkGeneration"),
        ("width", "CurrPcieLinkWidth"),
        ("width_max", "MaxPcieLinkWidth"),
        ("replay_count", "PcieReplayCounter"),
    ):
        one.put(f"pcie.{name}", one.ask(call))


def _thermal(one: _Gpu) -> None:
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


def _power(one: _Gpu) -> None:
    one.put("power.limit_w", one.ask("EnforcedPowerLimit"), _watts)
    one.put("power.requested_w", one.ask("PowerManagementLimit"), _watts)
    one.put("power.default_w", one.ask("PowerManagementDefaultLimit"), _watts)
    limits = one.ask("PowerManagementLimitConstraints")
    one.put("power.min_w", limits, lambda pair: _watts(pair[0]))
    one.put("power.max_w", limits, lambda pair: _watts(pair[1]))
    for name, value in one.fields(average_w=185, instant_w=186).items():
        one.put(f"power.{name}", value, _watts)
    one.put("power.draw_w", one.ask("PowerUsage"), _watts)


def _clocks(one: _Gpu) -> None:
    one.put("performance_state", one.ask("PerformanceState"), lambda code: f"P{code}" if code < 32 else None)
    for name, code in (("sm", 1), ("memory", 2)):
        one.put(f"clocks.{name}_mhz", one.ask("ClockInfo", code))
        one.put(f"clocks.{name}_max_mhz", one.ask("MaxClockInfo", code))
    reasons = one.ask("CurrentClocksEventReasons")
    if reasons is _ABSENT:
        reasons = one.ask("CurrentClocksThrottleReasons")
    one.put("clocks_event_reasons", reasons, lambda mask: [name for bit, name in CLOCK_REASONS.items() if mask & bit])
    counters = one.fields(
        sw_power_cap=74, sync_boost=76, sw_thermal_slowdown=269, hw_thermal_slowdown=270, hw_power_brake_slowdown=271
    )
    for name, value in counters.items():
        one.put(f"clocks_event_counters_us.{name}", value, lambda nanoseconds: nanoseconds // 1000)


def _fabric(one: _Gpu) -> None:
    info: t.Any = _ABSENT
    for kind in ("v3", "v2"):
        build = getattr(one.nvml, f"c_nvmlGpuFabricInfo_{kind}_t", None)
        if build is None:
            continue
        info = build()
        told = one.ask("GpuFabricInfoV", ctypes.byref(info))
        if told is _ABSENT:
            info = _ABSENT
            continue
        if told is None or told == NOT_SUPPORTED:
            one.put("fabric.state", told)
            return
        break
    if info is _ABSENT:
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
    text = cluster.hex()
    return {
        "state": name,
        "status": "success" if status == 0 else f"error {status}",
        "clique_id": clique,
        "cluster_uuid": "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])),
        "health": health,
    }


def _nvlink(one: _Gpu) -> None:
    """Links that the GPU has and that are up, their speed, and errors of all links since the driver was loaded."""
    values = one.fields(count=91, speed_mbps=90, replay=52, recovery=59, crc_flit=38, crc_data=45)
    count = values.pop("count")
    if not isinstance(count, int) or count == 0:
        one.put("nvlink.count", count)
        return
    one.put("nvlink.count", count)
    states = [one.ask("NvLinkState", link) for link in range(count)]
    one.put("nvlink.active", None if None in states else sum(1 for state in states if state == 1))
    one.put("nvlink.inactive_links", [link for link, state in enumerate(states) if state == 0])
    one.put("nvlink.speed_mbps", values.pop("speed_mbps"))
    for name, value in values.items():
        one.put(f"nvlink.errors.{name}", value)


def _license(features: t.Any) -> str:
    """Whether a vGPU has its licence; a GPU that needs none says "not supported"."""
    if not features.isGridLicenseSupported:
        return NOT_SUPPORTED
    listed = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return "licensed" if any(feature.featureState for feature in listed) else "unlicensed"


def _processes(one: _Gpu) -> None:
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


def _watts(milliwatts: int) -> float:
    return round(milliwatts / 1000, 2)


def _text(value: t.Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
