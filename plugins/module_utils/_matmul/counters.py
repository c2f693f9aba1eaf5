# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clocks, power, temperature and users of one GPU, from NVML: torch's own readings need a package that few have.

Runs in the environment's interpreter, inside the worker of that GPU: where
NVML hangs, this GPU's worker does. Every reading that the driver refuses is
absent. Signatures and constants are those of nvml.h.
"""

from __future__ import annotations

import ctypes
import os
import typing as t

_TEMPERATURE_GPU, _CLOCK_SM, _CLOCK_MEMORY = 0, 1, 2
_ROOM = 64  # processes listed


class _Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class Counters:
    """The readings of the GPU, or MIG instance, with this UUID; none without one."""

    def __init__(self, uuid: str) -> None:
        self._handle = ctypes.c_void_p()
        self.problem = ""
        if not uuid:
            self.problem = "no UUID"
            return
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            self.problem = str(error)
            return
        code = self._nvml.nvmlInit_v2()
        code = code or self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._handle))
        if code:
            self.problem = f"NVML answers {code}"

    def _call(self, name: str, *arguments: t.Any) -> bool:
        function = getattr(self._nvml, name, None)
        return function is not None and function(self._handle, *arguments) == 0

    def _number(self, name: str, *arguments: t.Any, wide: bool = False) -> t.Optional[int]:
        value = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        return value.value if self._call(name, *arguments, ctypes.byref(value)) else None

    def read(self) -> t.Dict[str, t.Any]:
        """Clocks in MHz, power and its limits in W, temperature in C, event reasons as bits, the PCIe link."""
        if self.problem:
            return {}
        milliwatts = {
            "power_w": self._number("nvmlDeviceGetPowerUsage"),
            "power_limit_w": self._number("nvmlDeviceGetEnforcedPowerLimit"),
            "default_limit_w": self._number("nvmlDeviceGetPowerManagementDefaultLimit"),
        }
        readings = {
            "sm_mhz": self._number("nvmlDeviceGetClockInfo", _CLOCK_SM),
            "max_sm_mhz": self._number("nvmlDeviceGetMaxClockInfo", _CLOCK_SM),
            "memory_mhz": self._number("nvmlDeviceGetClockInfo", _CLOCK_MEMORY),
            "temperature_c": self._number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
            # Renamed in driver 535; the old name stays.
            "event_reasons": self._number("nvmlDeviceGetCurrentClocksThrottleReasons", wide=True),
            "pcie_generation": self._number("nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_width": self._number("nvmlDeviceGetCurrPcieLinkWidth"),
            "max_pcie_generation": self._number("nvmlDeviceGetMaxPcieLinkGeneration"),
            "max_pcie_width": self._number("nvmlDeviceGetMaxPcieLinkWidth"),
            **{name: None if value is None else value / 1000 for name, value in milliwatts.items()},
        }
        return {name: value for name, value in readings.items() if value is not None}

    def users(self) -> t.Dict[str, t.Any]:
        """Who computes on it: process ids, and MiB in use by anybody."""
        if self.problem:
            return {}
        found: t.Dict[str, t.Any] = {}
        memory = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
        if self._call("nvmlDeviceGetMemoryInfo_v2", ctypes.byref(memory)):
            found["used_mib"] = memory.used >> 20
        count, listed = ctypes.c_uint(_ROOM), (_Process * _ROOM)()
        if self._call("nvmlDeviceGetComputeRunningProcesses_v3", ctypes.byref(count), listed):
            found["pids"] = [item.pid for item in listed[: count.value] if item.pid != os.getpid()]
        return found
