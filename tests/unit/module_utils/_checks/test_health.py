# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The health checks on healthy GPUs with one fact changed: the machine, what is changed, what must come out."""

from __future__ import annotations

import copy
import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import gpu, registry
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import HostCheck
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import smi_health

NA = "not_supported"
GONE = object()
Facts = t.Dict[str, t.Any]

#: Facts of healthy GPUs as NVML gives them: an H100 SXM on R580, a T4 in a cloud, a GeForce.
H100: Facts = {
    "name": "NVIDIA H100 80GB HBM3",
    "vbios": "96.00.99.00.01",
    "gsp_firmware": "580.105.08",
    "virtualization_mode": "none",
    "vgpu_license": NA,
    "persistence": True,
    "compute_mode": "default",
    "recovery_action": "none",
    "mig": {"current": False, "pending": False},
    "ecc": {
        "current": True,
        "pending": True,
        "volatile": {"sram_corrected": 0, "sram_uncorrected": 0, "dram_corrected": 0, "dram_uncorrected": 0},
        "aggregate": {"sram_corrected": 0, "sram_uncorrected": 0, "dram_corrected": 3, "dram_uncorrected": 0},
        "sram_threshold_exceeded": False,
        "channel_repair_pending": False,
        "tpc_repair_pending": False,
    },
    "remapped_rows": {
        "corrected": 0,
        "uncorrected": 0,
        "pending": False,
        "failure": False,
        "banks": {"max": 2560, "high": 0, "partial": 0, "low": 0, "none": 0},
    },
    "retired_pages": {"single_bit": NA, "double_bit": NA, "pending": NA},
    "pcie": {"generation": 5, "generation_max": 5, "width": 16, "width_max": 16, "replay_count": 150},
    "temperature": {
        "gpu_c": 29,
        "margin_c": 58,
        "memory_c": 37,
        "shutdown_tlimit_c": -8,
        "slowdown_tlimit_c": -2,
        "max_operating_tlimit_c": 0,
        "memory_max_tlimit_c": 0,
        "shutdown_c": NA,
        "slowdown_c": NA,
        "max_operating_c": NA,
        "memory_max_c": NA,
    },
    "power": {"limit_w": 700.0, "requested_w": 700.0, "default_w": 700.0, "max_w": 700.0, "draw_w": 68.57},
    "performance_state": "P0",
    "clocks_event_reasons": ["gpu_idle"],
    "nvlink": {
        "count": 18,
        "active": 18,
        "inactive_links": [],
        "speed_mbps": 26562,
        "errors": {"replay": 0, "recovery": 0, "crc_flit": 0, "crc_data": 0},
    },
    "fabric": {
        "state": "completed",
        "status": "success",
        "clique_id": 0,
        "cluster_uuid": "00000000-0000-0000-0000-000000000000",
        "health": {
            "degraded_bandwidth": NA,
            "route_recovery": NA,
            "route_unhealthy": NA,
            "access_timeout_recovery": NA,
            "incorrect_configuration": NA,
            "summary": NA,
        },
    },
}
T4: Facts = {
    **H100,
    "name": "Tesla T4",
    "vbios": "90.04.96.00.02",
    "virtualization_mode": "pass_through",
    "mig": {"current": NA, "pending": NA},
    "ecc": {
        **H100["ecc"],
        "sram_threshold_exceeded": NA,
        "channel_repair_pending": NA,
        "tpc_repair_pending": NA,
        "unrepairable_memory": NA,
    },
    "remapped_rows": {"corrected": NA, "uncorrected": NA, "pending": NA, "failure": NA},
    "retired_pages": {"single_bit": 0, "double_bit": 0, "pending": False},
    "pcie": {"generation": 3, "generation_max": 3, "width": 8, "width_max": 16, "replay_count": 0},
    "temperature": {
        "gpu_c": 33,
        "margin_c": NA,
        "memory_c": NA,
        "slowdown_tlimit_c": NA,
        "max_operating_tlimit_c": NA,
        "shutdown_c": 96,
        "slowdown_c": 93,
        "max_operating_c": 85,
        "memory_max_c": NA,
    },
    "power": {"limit_w": 70.0, "requested_w": 70.0, "default_w": 70.0, "max_w": 70.0, "draw_w": 33.51},
    "nvlink": {"count": NA},
    "fabric": {"state": NA},
}
GEFORCE: Facts = {
    **T4,
    "name": "NVIDIA GeForce RTX 4090",
    "virtualization_mode": "none",
    "ecc": {"current": False, "pending": False, "volatile": dict.fromkeys(H100["ecc"]["volatile"], NA)},
    "retired_pages": H100["retired_pages"],
    "pcie": {"generation": 1, "generation_max": 4, "width": 16, "width_max": 16, "replay_count": 0},
    "temperature": {**H100["temperature"], "memory_c": NA, "memory_max_tlimit_c": NA},
    "performance_state": "P8",
    "persistence": False,
}
#: Pairs of cards with a bridge; two GPUs of a board that a virtual machine was given.
BRIDGED: Facts = {
    **H100,
    "name": "NVIDIA H100 NVL",
    "nvlink": {**H100["nvlink"], "active": 12, "inactive_links": [12, 13, 14, 15, 16, 17]},
    "fabric": {"state": NA},
}
PART: Facts = {**H100, "virtualization_mode": "pass_through"}
MACHINES: t.Dict[str, t.Tuple[Facts, int]] = {
    "8x H100": (H100, 8),
    "T4": (T4, 1),
    "GeForce": (GEFORCE, 2),
    "bridged cards": (BRIDGED, 4),
    "part of a board": (PART, 2),
}


def host(machine: str, *changes: t.Tuple[str, t.Any]) -> Facts:
    """An Observation of a machine. A change is ``path`` for every GPU or ``2.path`` for one, and its value."""
    facts, count = MACHINES[machine]
    gpus = []
    for index in range(count):
        one = copy.deepcopy(facts)
        one.update(index=index, uuid=f"GPU-{index}", pci_address=f"0000:{index + 16:02x}:00.0", state="ok")
        gpus.append(one)
    switched = machine == "8x H100"
    observed = {
        "host": {"virtualization": "kvm" if machine == "part of a board" else "none"},
        "pci": [{"role": "gpu", "address": one["pci_address"]} for one in gpus]
        + ([{"role": "nvswitch", "address": "0000:05:00.0"}] * 4 if switched else []),
        "driver": {"version": "580.105.08"},
        "nvml": {"state": "ok", "driver_version": "580.105.08"},
        "gpus": gpus,
    }
    for path, value in changes:
        if path.startswith("host."):
            observed["host"][path[5:]] = value  # type: ignore[index]
            continue
        if path == "nvml.p2p_read":
            observed["nvml"][path[5:]] = [[value] * count for _row in gpus]
            continue
        number, _dot, rest = path.partition(".")
        for one in [gpus[int(number)]] if number.isdigit() else gpus:
            place = one
            *folders, name = (rest if number.isdigit() else path).split(".")
            for folder in folders:
                place = place.setdefault(folder, {})
            if value is GONE:
                place.pop(name, None)
            else:
                place[name] = value
    return observed


def states(observed: Facts) -> t.Dict[str, str]:
    """The worst state of each check."""
    order = ("not_applicable", "ok", "warn", "unknown", "fail")
    worst: t.Dict[str, str] = {}
    for finding in registry.judge(observed):
        worst[finding.check] = max(worst.get(finding.check, order[0]), finding.state, key=order.index)
    return worst


LAPTOP = "NVIDIA GeForce RTX 4090 Laptop GPU"
#: machine, changes, check, state, action
CASES: t.List[t.Tuple[str, t.List[t.Tuple[str, t.Any]], str, str, str]] = [
    # Memory.
    ("8x H100", [("3.ecc.volatile.dram_uncorrected", 1)], "ecc-uncorrected", "fail", "reset GPU"),
    ("8x H100", [("3.ecc.volatile.sram_uncorrected", 1)], "ecc-uncorrected", "fail", "reset GPU"),
    ("8x H100", [("ecc.volatile.dram_corrected", 9999)], "ecc-uncorrected", "ok", "none"),
    ("8x H100", [("3.ecc.volatile.dram_uncorrected", None)], "ecc-uncorrected", "unknown", "reset GPU"),
    (
        "8x H100",
        [("3.ecc.volatile", dict.fromkeys(H100["ecc"]["volatile"], NA))],
        "ecc-uncorrected",
        "unknown",
        "reset GPU",
    ),
    ("8x H100", [("3.ecc.volatile", {}), ("3.ecc.current", None)], "ecc-uncorrected", "unknown", "reset GPU"),
    ("8x H100", [("ecc", {})], "ecc-uncorrected", "not_applicable", "none"),
    ("GeForce", [], "ecc-uncorrected", "not_applicable", "none"),
    ("8x H100", [("1.ecc.volatile.dram_corrected", 20_000_001)], "ecc-corrected", "warn", "none"),
    ("8x H100", [("1.ecc.volatile.sram_corrected", 10_001)], "ecc-corrected", "warn", "none"),
    ("8x H100", [("1.ecc.volatile.dram_corrected", 20_000_000)], "ecc-corrected", "ok", "none"),
    ("8x H100", [("1.ecc.aggregate.sram_uncorrected", 5)], "ecc-sram-lifetime", "warn", "none"),
    ("8x H100", [("1.ecc.aggregate.sram_uncorrected", 4)], "ecc-sram-lifetime", "ok", "none"),
    ("8x H100", [("1.ecc.sram_threshold_exceeded", True)], "ecc-sram-threshold", "fail", "replace"),
    ("T4", [], "ecc-sram-threshold", "not_applicable", "none"),
    ("T4", [("ecc.sram_threshold_exceeded", None)], "ecc-sram-threshold", "unknown", "drain and inspect"),
    ("8x H100", [("1.ecc.unrepairable_memory", True)], "memory-unrepairable", "fail", "replace"),
    ("8x H100", [], "memory-unrepairable", "not_applicable", "none"),
    ("8x H100", [("1.ecc.channel_repair_pending", True)], "memory-repair-pending", "fail", "reset GPU"),
    ("8x H100", [("1.ecc.tpc_repair_pending", True)], "memory-repair-pending", "fail", "reset GPU"),
    ("8x H100", [("1.ecc.tpc_repair_pending", None)], "memory-repair-pending", "unknown", "drain and inspect"),
    ("8x H100", [("1.ecc.current", False), ("1.ecc.pending", False)], "ecc-mode", "fail", "fix configuration"),
    ("8x H100", [("1.ecc.current", False)], "ecc-mode", "fail", "reset GPU"),
    ("8x H100", [("1.ecc.pending", False)], "ecc-mode", "warn", "fix configuration"),
    ("8x H100", [("1.ecc.current", None)], "ecc-mode", "unknown", "drain and inspect"),
    ("GeForce", [], "ecc-mode", "not_applicable", "none"),
    ("T4", [("virtualization_mode", "vgpu"), ("ecc.current", False)], "ecc-mode", "not_applicable", "none"),
    ("8x H100", [("1.remapped_rows.pending", True)], "row-remap-pending", "fail", "reset GPU"),
    ("8x H100", [("1.remapped_rows.pending", None)], "row-remap-pending", "unknown", "drain and inspect"),
    ("T4", [], "row-remap-pending", "not_applicable", "none"),
    ("8x H100", [("1.remapped_rows.failure", True)], "row-remap-failure", "fail", "replace"),
    ("8x H100", [("1.remapped_rows.uncorrected", 512)], "row-remap-count", "fail", "replace"),
    ("8x H100", [("1.remapped_rows.uncorrected", 511)], "row-remap-count", "ok", "none"),
    ("8x H100", [("1.remapped_rows.banks.low", 1)], "row-remap-banks", "warn", "none"),
    ("8x H100", [("1.remapped_rows.banks.none", 1)], "row-remap-banks", "warn", "none"),
    ("8x H100", [("1.remapped_rows.banks.partial", 9)], "row-remap-banks", "ok", "none"),
    ("T4", [], "row-remap-banks", "not_applicable", "none"),
    ("T4", [("retired_pages.pending", True)], "retired-pages-pending", "fail", "reset GPU"),
    (
        "T4",
        [("retired_pages.single_bit", 40), ("retired_pages.double_bit", 23)],
        "retired-pages-count",
        "fail",
        "replace",
    ),
    ("T4", [("retired_pages.double_bit", 16)], "retired-pages-count", "warn", "none"),
    ("T4", [("retired_pages.single_bit", 62)], "retired-pages-count", "ok", "none"),
    ("8x H100", [], "retired-pages-count", "not_applicable", "none"),
    ("8x H100", [("1.recovery_action", "reset")], "gpu-recovery-action", "fail", "reset GPU"),
    ("8x H100", [("1.recovery_action", "reboot")], "gpu-recovery-action", "fail", "reboot"),
    ("8x H100", [("1.recovery_action", "drain_p2p")], "gpu-recovery-action", "fail", "drain and inspect"),
    ("8x H100", [("1.recovery_action", "action 12")], "gpu-recovery-action", "fail", "drain and inspect"),
    ("T4", [("recovery_action", GONE)], "gpu-recovery-action", "not_applicable", "none"),
    # PCIe.
    ("8x H100", [("2.pcie.width", 8)], "pcie-width", "fail", "drain and inspect"),
    ("8x H100", [("2.pcie.width", 63)], "pcie-width", "fail", "drain and inspect"),
    ("8x H100", [("2.pcie.width", None)], "pcie-width", "unknown", "drain and inspect"),
    ("8x H100", [("pcie.width", 8)], "pcie-width", "ok", "none"),
    ("T4", [], "pcie-width", "ok", "none"),
    ("T4", [("virtualization_mode", "none")], "pcie-width", "warn", "none"),
    ("T4", [("virtualization_mode", "none"), ("host.virtualization", "kvm")], "pcie-width", "ok", "none"),
    ("GeForce", [], "pcie-generation", "ok", "none"),
    (
        "GeForce",
        [("0.clocks_event_reasons", []), ("0.performance_state", "P2")],
        "pcie-generation",
        "warn",
        "drain and inspect",
    ),
    ("GeForce", [("0.clocks_event_reasons", [])], "pcie-generation", "ok", "none"),
    ("GeForce", [("clocks_event_reasons", NA)], "pcie-generation", "ok", "none"),
    # NVLink.
    ("8x H100", [("2.nvlink.active", 17), ("2.nvlink.inactive_links", [5])], "nvlink-links", "fail", ""),
    ("8x H100", [("nvlink.active", 15), ("nvlink.inactive_links", [1, 2, 3])], "nvlink-links", "fail", ""),
    ("8x H100", [("nvlink.active", 0)], "nvlink-links", "fail", "drain and inspect"),
    ("8x H100", [("2.nvlink.active", None)], "nvlink-links", "unknown", "drain and inspect"),
    ("8x H100", [("name", "NVIDIA H800"), ("nvlink.active", 8)], "nvlink-links", "ok", "none"),
    ("8x H100", [("name", "NVIDIA H800"), ("nvlink.active", 8), ("1.nvlink.active", 7)], "nvlink-links", "fail", ""),
    ("T4", [], "nvlink-links", "not_applicable", "none"),
    ("bridged cards", [], "nvlink-links", "ok", "none"),
    ("bridged cards", [("nvlink.active", 0)], "nvlink-links", "not_applicable", "none"),
    ("bridged cards", [("0.nvlink.active", 0), ("1.nvlink.active", 0)], "nvlink-links", "ok", "none"),
    ("bridged cards", [("0.nvlink.active", 11), ("1.nvlink.active", 11)], "nvlink-links", "warn", ""),
    ("part of a board", [("nvlink.active", 6)], "nvlink-links", "ok", "none"),
    ("part of a board", [("0.nvlink.active", 5)], "nvlink-links", "warn", "drain and inspect"),
    ("8x H100", [("2.nvlink.speed_mbps", 20000)], "nvlink-speed", "fail", "drain and inspect"),
    ("bridged cards", [("0.nvlink.speed_mbps", 0), ("0.nvlink.active", 0)], "nvlink-speed", "ok", "none"),
    ("T4", [], "nvlink-speed", "not_applicable", "none"),
    ("8x H100", [("2.nvlink.errors.recovery", 1)], "nvlink-errors", "warn", "none"),
    ("8x H100", [("2.nvlink.errors.replay", 1)], "nvlink-errors", "warn", "none"),
    ("8x H100", [("2.nvlink.errors.crc_flit", 7)], "nvlink-errors", "ok", "none"),
    ("8x H100", [("2.nvlink.errors.replay", None)], "nvlink-errors", "unknown", "drain and inspect"),
    ("8x H100", [("nvlink.errors", {"replay": NA, "recovery": NA})], "nvlink-errors", "not_applicable", "none"),
    ("8x H100", [("nvml.p2p_read", "ok")], "peer-access", "ok", "none"),
    ("8x H100", [("nvml.p2p_read", "chipset_not_supported")], "peer-access", "fail", "drain and inspect"),
    ("bridged cards", [("nvml.p2p_read", "disabled_by_regkey")], "peer-access", "not_applicable", "none"),
    ("8x H100", [("nvml.p2p_read", None)], "peer-access", "unknown", "drain and inspect"),
    ("8x H100", [], "peer-access", "not_applicable", "none"),
    ("GeForce", [("nvml.p2p_read", "chipset_not_supported")], "peer-access", "not_applicable", "none"),
    # The fabric.
    ("8x H100", [("2.fabric.state", "not_started")], "fabric-state", "fail", "fix configuration"),
    ("8x H100", [("2.fabric.state", "in_progress")], "fabric-state", "unknown", "fix configuration"),
    ("8x H100", [("2.fabric.status", "error 999")], "fabric-state", "fail", "fix configuration"),
    ("8x H100", [("2.fabric.status", None)], "fabric-state", "unknown", "drain and inspect"),
    ("8x H100", [("fabric", {"state": None})], "fabric-state", "unknown", "drain and inspect"),
    ("T4", [("fabric", {"state": "not_started"})], "fabric-state", "not_applicable", "none"),
    ("T4", [], "fabric-state", "not_applicable", "none"),
    ("8x H100", [], "fabric-health", "not_applicable", "none"),
    ("8x H100", [("fabric.health.degraded_bandwidth", False)], "fabric-health", "ok", "none"),
    ("8x H100", [("2.fabric.health.degraded_bandwidth", True)], "fabric-health", "fail", "drain and inspect"),
    ("8x H100", [("2.fabric.health.route_unhealthy", True)], "fabric-health", "fail", "drain and inspect"),
    ("8x H100", [("2.fabric.health.route_recovery", True)], "fabric-health", "unknown", "none"),
    ("8x H100", [("2.fabric.health.access_timeout_recovery", True)], "fabric-health", "unknown", "none"),
    (
        "8x H100",
        [("2.fabric.health.route_recovery", True), ("2.fabric.health.degraded_bandwidth", True)],
        "fabric-health",
        "fail",
        "drain and inspect",
    ),
    (
        "8x H100",
        [("2.fabric.health.incorrect_configuration", "no_partition")],
        "fabric-health",
        "fail",
        "fix configuration",
    ),
    ("8x H100", [("2.fabric.health.summary", "limited_capacity")], "fabric-health", "fail", "drain and inspect"),
    ("8x H100", [("2.fabric.health.summary", None)], "fabric-health", "unknown", "drain and inspect"),
    ("8x H100", [("2.fabric.clique_id", 7)], "fabric-clique", "fail", "fix configuration"),
    ("T4", [], "fabric-clique", "not_applicable", "none"),
    # Heat.
    ("8x H100", [("2.temperature.margin_c", -2)], "gpu-temperature", "fail", "ask facility"),
    ("8x H100", [("2.temperature.margin_c", 0)], "gpu-temperature", "warn", "ask facility"),
    ("8x H100", [("2.temperature.margin_c", 1)], "gpu-temperature", "ok", "none"),
    ("8x H100", [("2.temperature.margin_c", None)], "gpu-temperature", "unknown", "drain and inspect"),
    ("8x H100", [("temperature.margin_c", GONE)], "gpu-temperature", "not_applicable", "none"),
    ("T4", [("temperature.gpu_c", 93)], "gpu-temperature", "fail", "ask facility"),
    ("T4", [("temperature.gpu_c", 85)], "gpu-temperature", "warn", "ask facility"),
    ("T4", [("temperature.gpu_c", 84)], "gpu-temperature", "ok", "none"),
    ("T4", [("temperature.gpu_c", None)], "gpu-temperature", "unknown", "drain and inspect"),
    ("T4", [("temperature.slowdown_c", None)], "gpu-temperature", "unknown", "drain and inspect"),
    ("T4", [("temperature.slowdown_c", NA)], "gpu-temperature", "not_applicable", "none"),
    (
        "8x H100",
        [("2.temperature.memory_c", 96), ("temperature.memory_max_c", 95)],
        "memory-temperature",
        "fail",
        "ask facility",
    ),
    ("8x H100", [("temperature.memory_max_c", 95)], "memory-temperature", "ok", "none"),
    ("8x H100", [], "memory-temperature", "not_applicable", "none"),
    # Power.
    ("8x H100", [("power.limit_w", 600.0), ("power.requested_w", 600.0)], "power-limit", "warn", "fix configuration"),
    ("8x H100", [("2.power.limit_w", 600.0)], "power-limit", "warn", "ask facility"),
    ("8x H100", [("2.power.limit_w", None)], "power-limit", "unknown", "drain and inspect"),
    ("8x H100", [("power.limit_w", 699.5)], "power-limit", "ok", "none"),
    ("8x H100", [("2.clocks_event_reasons", ["hw_slowdown", "hw_power_brake_slowdown"])], "power-brake", "fail", ""),
    ("8x H100", [("2.power.draw_w", None)], "power-readable", "unknown", "drain and inspect"),
    ("8x H100", [("persistence", False)], "persistence", "warn", "fix configuration"),
    # Clocks.
    ("8x H100", [("2.clocks_event_reasons", ["hw_slowdown", "hw_thermal_slowdown"])], "clocks-thermal", "fail", ""),
    ("8x H100", [("2.clocks_event_reasons", ["sw_thermal_slowdown"])], "clocks-thermal", "warn", "ask facility"),
    ("8x H100", [("2.clocks_event_reasons", None)], "clocks-thermal", "unknown", "drain and inspect"),
    ("8x H100", [("2.clocks_event_reasons", ["hw_slowdown"])], "clocks-hw-slowdown", "fail", "drain and inspect"),
    ("8x H100", [("2.clocks_event_reasons", ["gpu_idle", "hw_slowdown"])], "clocks-hw-slowdown", "warn", "none"),
    ("8x H100", [("2.clocks_event_reasons", ["hw_slowdown", "hw_thermal_slowdown"])], "clocks-hw-slowdown", "ok", ""),
    ("8x H100", [("2.clocks_event_reasons", ["sync_boost"])], "clocks-sync-boost", "warn", "fix configuration"),
    ("8x H100", [("clocks_event_reasons", ["sw_power_cap"])], "clocks-hw-slowdown", "ok", "none"),
    ("8x H100", [("clocks_event_reasons", ["applications_clocks_setting"])], "clocks-thermal", "ok", "none"),
    ("GeForce", [("name", LAPTOP), ("clocks_event_reasons", ["hw_power_brake_slowdown"])], "power-brake", "warn", ""),
    ("GeForce", [("name", LAPTOP), ("clocks_event_reasons", ["hw_slowdown"])], "clocks-hw-slowdown", "warn", "none"),
    # Modes.
    ("T4", [("vgpu_license", "unlicensed"), ("virtualization_mode", "vgpu")], "vgpu-license", "fail", "ask facility"),
    ("T4", [("vgpu_license", "licensed"), ("virtualization_mode", "vgpu")], "vgpu-license", "ok", "none"),
    ("T4", [], "vgpu-license", "not_applicable", "none"),
    ("8x H100", [("2.compute_mode", "prohibited")], "compute-mode", "fail", "fix configuration"),
    ("8x H100", [("2.compute_mode", "exclusive_process")], "compute-mode", "warn", "fix configuration"),
    ("8x H100", [("2.mig", {"current": True, "pending": True})], "mig-mode", "fail", "fix configuration"),
    ("8x H100", [("mig", {"current": True, "pending": True})], "mig-mode", "warn", "fix configuration"),
    ("8x H100", [("2.mig.pending", True)], "mig-mode", "warn", "reset GPU"),
    ("8x H100", [("2.vbios", "96.00.89.00.01")], "vbios-alike", "warn", "fix configuration"),
    ("GeForce", [("1.vbios", "95.02.18.80.99")], "vbios-alike", "ok", "none"),
    ("8x H100", [("2.inforom_valid", False)], "inforom", "warn", "drain and inspect"),
    ("8x H100", [("inforom_valid", True)], "inforom", "ok", "none"),
    ("8x H100", [("2.inforom_valid", None)], "inforom", "unknown", "drain and inspect"),
    ("8x H100", [("2.gsp_firmware", "580.95.05")], "gsp-firmware", "warn", "reboot"),
    ("T4", [("gsp_firmware", NA)], "gsp-firmware", "not_applicable", "none"),
]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_healthy_machine_has_nothing_to_explain(machine: str) -> None:
    findings = registry.judge(host(machine))
    assert {finding.check for finding in findings} == {check.name for check in registry.CHECKS}
    loud = {finding.check for finding in findings if finding.state not in ("ok", "not_applicable")}
    # Consumer cards come without the daemon that keeps the driver loaded: a warning that says what to do.
    assert loud == ({"persistence"} if machine == "GeForce" else set())
    assert _finding.fold(findings) == _finding.READY


@pytest.mark.parametrize(("machine", "changes", "check", "state", "action"), CASES)
def test_case(machine: str, changes: t.List[t.Tuple[str, t.Any]], check: str, state: str, action: str) -> None:
    observed = host(machine, *changes)
    assert states(observed).get(check) == state
    if action:
        assert {one.action for one in registry.judge(observed) if one.check == check} == {action}


def test_every_check_has_its_cases() -> None:
    assert {check for _machine, _changes, check, _state, _action in CASES} >= {
        one.name for one in registry.CHECKS if isinstance(one, gpu.Check)
    }


def test_a_finding_names_the_gpu_and_what_was_read() -> None:
    observed = host("8x H100", ("3.remapped_rows.pending", True), ("3.serial", "165"))
    (finding,) = (one for one in registry.judge(observed) if one.check == "row-remap-pending")
    assert finding.id == "row-remap-pending/gpu/GPU-3"
    assert finding.found == "GPU 3 at 0000:13:00.0: row remap pending"
    (seen,) = finding.evidence["gpus"]
    assert (seen["serial"], seen["pci_address"], seen["remapped_rows.pending"]) == ("165", "0000:13:00.0", True)


def test_what_all_gpus_of_a_host_say_alike_is_said_once() -> None:
    observed = host("8x H100", ("persistence", False))
    (finding,) = (one for one in registry.judge(observed) if one.check == "persistence")
    assert (finding.id, finding.found) == ("persistence/host", "all 8 GPUs: persistence is off")
    assert [seen["uuid"] for seen in finding.evidence["gpus"]] == [f"GPU-{index}" for index in range(8)]
    some = host("8x H100", *((f"{index}.persistence", False) for index in range(7)))
    assert len([one for one in registry.judge(some) if one.check == "persistence"]) == 7


def test_a_gpu_that_does_not_answer_is_left_to_gpu_count() -> None:
    observed = host("8x H100", ("3.state", "lost"), ("3.remapped_rows.pending", True))
    assert states(observed)["row-remap-pending"] == "ok"
    assert {type(check) for check in registry.CHECKS if check.findings({**observed, "gpus": []})} == {HostCheck}


@pytest.mark.parametrize("check", registry.CHECKS, ids=lambda check: str(check.name))
def test_what_is_not_told_is_never_ok(check: gpu.Check) -> None:
    """Of a GPU that tells nothing, and of one that tells only errors."""
    nothing = {"index": 0, "uuid": "GPU-0", "pci_address": "0000:1b:00.0", "state": "ok"}
    frame = {"host": {"virtualization": "none"}, "pci": [], "nvml": {}, "driver": {}}
    blank = {key: _blank(value) for key, value in H100.items()}
    for facts in (nothing, {**blank, **nothing}):
        (finding,) = check.findings({**frame, "gpus": [facts]})
        assert finding.state in ("not_applicable", "unknown")


def _blank(value: t.Any) -> t.Any:
    return {key: _blank(inner) for key, inner in value.items()} if isinstance(value, dict) else None


@pytest.mark.parametrize("check", registry.CHECKS, ids=lambda check: str(check.name))
def test_every_check_says_what_it_means(check: gpu.Check) -> None:
    assert check.judge.__doc__ and len(check.judge.__doc__) > 40
    assert check.policy in _finding.POLICIES


#: Captures of real machines; see tests/unit/module_utils/_probe/test_smi.py.
SAMPLES = Path(os.environ.get("GPUFLEET_SAMPLES") or Path(__file__).resolve().parents[5] / "shared" / "samples")


@pytest.mark.parametrize("name", ["a100.xml", "h100.xml", "t4.xml"])
def test_a_healthy_capture(name: str) -> None:
    path = SAMPLES / "nvidia-smi-xml" / name
    if not path.exists():
        pytest.skip(f"{path} is not there (GPUFLEET_SAMPLES names the folder)")
    seen = smi_health.parse(path.read_text(encoding="utf-8"))
    observed = {"host": {"virtualization": "none"}, "pci": [], "driver": {}, **seen}
    assert {one.check for one in registry.judge(observed) if one.state not in ("ok", "not_applicable")} == set()


def test_a_capture_with_errors() -> None:
    path = SAMPLES / "nvidia-smi-xml" / "mock-gb200-ecc-injected.xml"
    if not path.exists():
        pytest.skip(f"{path} is not there (GPUFLEET_SAMPLES names the folder)")
    seen = smi_health.parse(path.read_text(encoding="utf-8"))
    found = states({"host": {"virtualization": "none"}, "pci": [], "driver": {}, **seen})
    assert (found["ecc-uncorrected"], found["row-remap-failure"]) == ("fail", "fail")
