# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated NVML and its scenario, as nvidia-smi uses them. Runs on Python 3.8 and newer: containers have those."""

import ctypes
import os
from typing import List, Optional, Tuple

GLOBAL = -1
LOST, NOT_SUPPORTED, MISMATCH, NOT_LOADED = 15, 3, 18, 9

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n"
)


class Stop(Exception):
    """Ends with a text and an exit code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Simulation:
    """The library, and the scenario for its order of elements."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.join(folder, "lib")
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            raise Stop(
                "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA "
                "Display Driver is properly installed and present in your system.\nPlease also try adding directory "
                "that contains libnvidia-ml.so to your system PATH.\n",
                12,
            ) from None
        code = self.nvml.nvmlInit_v2()
        if code == NOT_LOADED:
            raise Stop(NO_DRIVER, code)
        if code == MISMATCH:
            version = self.raw("sim/library_version")
            raise Stop(
                "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: "
                f"{'.'.join(version.split('.')[:2])}\n",
                code,
            )
        if code:
            raise Stop(f"Failed to initialize NVML: {self.error(code)}\n", code if code < 256 else 255)
        self.keys = self._read_keys()
        self.gpus = self._shown()

    def _read_keys(self) -> List[Tuple[str, str]]:
        with open(os.path.join(self.folder, "scenario"), encoding="utf-8", errors="replace") as file:
            lines = file.read().split("\n")
        with open(os.path.join(self.folder, "state"), encoding="utf-8", errors="replace") as file:
            changed = dict(line.split("\t")[:2] for line in file.read().split("\n") if "\t" in line)
        found = [tuple(line.split("\t")[:2]) for line in lines if "\t" in line]
        known = {key for key, _value in found}
        found += [item for item in changed.items() if item[0] not in known]
        return [(key, changed.get(key, value)) for key, value in found]

    def _shown(self) -> List[int]:
        values = dict(self.keys)
        states = [self.first(values.get(f"gpu/{gpu}/sim/device", "ok")) for gpu in range(int(values["sim/gpus"]))]
        shown = [gpu for gpu, state in enumerate(states) if state not in ("@hidden", "@gone")]
        return shown[: int(values["sim/devices"])]

    @staticmethod
    def first(value: str) -> str:
        return value.split(" | ")[0]

    def raw(self, key: str) -> str:
        return self.text(GLOBAL, key)[0]

    def error(self, code: int) -> str:
        self.nvml.nvmlErrorString.restype = ctypes.c_char_p
        return (self.nvml.nvmlErrorString(code) or b"Unknown Error").decode()

    def text(self, gpu: int, path: str) -> Tuple[str, int]:
        """What is printed for an element, and NVML's code."""
        buffer = ctypes.create_string_buffer(1024)
        code = self.nvml.gpusim_text(gpu, path.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace"), code

    def set(self, gpu: int, path: str, value: str) -> None:
        self.nvml.gpusim_set(gpu, path.encode(), value.encode())

    def lost(self, gpu: int) -> Optional[Tuple[str, int]]:
        """Why a handle of this GPU cannot be had."""
        text, code = self.text(gpu, "sim/device")
        return (text, code) if code else None

    def address(self, gpu: int) -> str:
        return dict(self.keys)[f"gpu/{gpu}/pci/pci_bus_id"]

    def handle(self, gpu: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self.nvml.nvmlDeviceGetHandleByPciBusId_v2(self.address(gpu).encode(), ctypes.byref(handle))
        return handle


def handle_error(sim: Simulation, gpu: int, lost: Tuple[str, int]) -> Tuple[str, int]:
    """What is printed where no handle of a GPU can be had, and the exit code."""
    text, code = lost
    reason = "GPU is lost. Reboot the system to recover this GPU" if code == LOST else text
    address = sim.address(gpu)
    short = address[4:] if len(address) == 16 and address.startswith("0000") else address
    return f"Unable to determine the device handle for GPU{short}: {reason}\n", code if code < 256 else 255


def print_lost(sim: Simulation, gpu: int, lost: Tuple[str, int]) -> int:
    text, code = handle_error(sim, gpu, lost)
    print(text, end="")
    return code
