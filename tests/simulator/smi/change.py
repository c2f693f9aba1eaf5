# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi's setters, through NVML with its check of permission, and the reset of a GPU."""

import ctypes
import os
from typing import List

from smi.simulation import Simulation, print_lost


def change(sim: Simulation, chosen: List[int], option: str, value: str) -> int:
    """-pl -pm -e -mig -c -lgc -r: through NVML, with its permission check."""
    status = 0
    for gpu in chosen:
        lost = sim.lost(gpu)
        if lost:
            return print_lost(sim, gpu, lost)
        code = _change_one(sim, gpu, option, value)
        name = sim.address(gpu)
        if code == 0:
            print(f"{_DONE[option].format(value=value)} for GPU {name}.")
        elif code == 4:
            print(f"Unable to change {_NAMES[option]} for GPU {name}: Insufficient Permissions")
        else:
            print(f"{_NAMES[option].capitalize()} cannot be changed for GPU {name}: {sim.error(code)}")
        status = status or (code if code < 256 else 255)
    if status == 0:
        print("All done.")
    return status


_NAMES = {"-pl": "power management limit", "-pm": "persistence mode", "-e": "ECC support", "-mig": "MIG mode",
          "-c": "compute mode", "-lgc": "GPU clocks", "-r": "GPU reset"}  # fmt: skip
_DONE = {"-pl": "Power limit was set to {value} W", "-pm": "Persistence mode was set to {value}",
         "-e": "ECC support was set to {value}", "-mig": "MIG mode was set to {value}",
         "-c": "Compute mode was set to {value}", "-lgc": "GPU clocks set to {value}",
         "-r": "GPU was reset"}  # fmt: skip


def _change_one(sim: Simulation, gpu: int, option: str, value: str) -> int:
    handle, nvml = sim.handle(gpu), sim.nvml
    if option == "-r":
        return _reset(sim, gpu)
    try:
        if option == "-pl":
            return nvml.nvmlDeviceSetPowerManagementLimit(handle, round(float(value) * 1000))
        if option == "-lgc":
            lowest, comma, highest = value.partition(",")
            return nvml.nvmlDeviceSetGpuLockedClocks(handle, int(lowest), int(highest if comma else lowest))
        number = int(value)
    except ValueError:
        return 2
    if option == "-mig":
        return nvml.nvmlDeviceSetMigMode(handle, number, ctypes.byref(ctypes.c_int()))
    setter = {"-pm": "PersistenceMode", "-e": "EccMode", "-c": "ComputeMode"}[option]
    return getattr(nvml, f"nvmlDeviceSet{setter}")(handle, number)


def _reset(sim: Simulation, gpu: int) -> int:
    """A reset makes pending modes current and clears what lives until then."""
    if os.geteuid() != 0:
        return 4
    values = dict(sim.keys)
    for pending, current in (("mig_mode/pending_mig", "mig_mode/current_mig"),
                             ("ecc_mode/pending_ecc", "ecc_mode/current_ecc")):  # fmt: skip
        sim.set(gpu, current, values[f"gpu/{gpu}/{pending}"])
    for key in values:
        path = key.split("/", 2)[2] if key.startswith(f"gpu/{gpu}/") else ""
        if path.startswith("ecc_errors/volatile/") and values[key].isdigit():
            sim.set(gpu, path, "0")
        elif path in ("remapped_rows/remapped_row_pending",) and values[key] == "Yes":
            sim.set(gpu, path, "No")
        elif path == "gpu_recovery_action" and values[key] == "Reset":
            sim.set(gpu, path, "None")
    return 0
