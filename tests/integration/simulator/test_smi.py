# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the simulated nvidia-smi prints, and its exit codes."""

from __future__ import annotations

import re
import typing as t

import pytest

pytestmark = pytest.mark.needs("gcc")


@pytest.mark.parametrize(
    ("values", "arguments", "code", "said"),
    [
        ([], ["-L"], 0, r"GPU 7: NVIDIA H100 80GB HBM3 \(UUID: GPU-00000007-5a17-4e00-8000-00000000df00\)\n$"),
        ([], [], 0, r"NVIDIA-SMI 580.105.08 +Driver Version: 580.105.08 +CUDA Version: 13.0"),
        ([], ["topo", "-m"], 0, r"\nGPU4(\tNV18){4}\t X (\tNV18){3}.*\tPXB(\tNODE){3}\t56-111,168-223\t1\t\tN/A\n"),
        (["gpu.0.nvlink.2.state=Inactive"], ["topo", "-m"], 0, r"\nGPU0\t X \tNV17"),
        ([], ["topo", "-p2p", "r"], 0, r"\n GPU0\tX\tOK\tOK"),
        ([], ["nvlink", "--status", "-i", "0"], 0, r"\n\t Link 17: 26.562 GB/s\n$"),
        (["gpu.0.nvlink.2.state=Inactive"], ["nvlink", "-s", "-i", "0"], 0, r"Link 2: <inactive>\n\t Link 3: 26.5"),
        (["gpu.0.nvlink.2.recovery=4"], ["nvlink", "-e"], 0, r"Link 2: Recovery Errors: 4\n"),
        ([], ["--query-gpu=index,name,pci.bus_id,power.draw,memory.total,mig.mode.current,fan.speed", "--format=csv"],
         0,
         r"index, name, pci.bus_id, power.draw \[W\], memory.total \[MiB\], mig.mode.current, fan.speed \[%\]\n"
         r"0, NVIDIA H100 80GB HBM3, 00000000:1B:00.0, 68.57 W, 81559 MiB, Disabled, \[N/A\]\n"),
        ([], ["--query-gpu=ecc.errors.uncorrected.volatile.total,clocks_event_reasons.active,compute_cap",
              "--format=csv,noheader"], 0, r"^0, 0x0000000000000001, 9.0\n"),
        (["ecc_errors=Unknown Error"], ["--query-gpu=ecc.errors.corrected.aggregate.total", "--format=csv,noheader"], 0,
         r"^\[Unknown Error\]\n"),
        ([], ["--query-remapped-rows=gpu_bus_id,remapped_rows.failure", "--format=csv,noheader", "-i", "1"], 0,
         r"^00000000:43:00.0, No\n$"),
        ([], ["--query-gpu=no_such_field", "--format=csv"], 2, r'Field "no_such_field" is not a valid field to query'),
        ([], ["--no-such-option"], 2, r"Invalid combination"),
        ([], ["-i", "9", "-L"], 6, r"No devices were found"),
        (["devices=0"], ["-L"], 0, r"^No devices were found\n$"),
        (["driver_loaded=No"], [], 9, r"couldn't communicate with the NVIDIA driver"),
        (["library_version=580.178.01"], [], 18, r"Driver/library version mismatch\nNVML library version: 580.178\n"),
        (["gpu.3=@lost"], ["-q", "-x"], 15, r"^Unable to determine the device handle for GPU0000:61:00.0: GPU is lost"),
        (["gpu.3=@unknown"], ["-q", "-x"], 255, r"device handle for GPU0000:61:00.0: Unknown Error\n$"),
        ([], ["-pl", "90000"], 2, r"Invalid Argument"),
    ],
)  # fmt: skip
def test_nvidia_smi_answers(simulator: t.Any, values: list[str], arguments: list[str], code: int, said: str) -> None:
    status, printed = simulator.smi("h100-sxm", *arguments, values=values)
    assert status == code, printed
    assert re.search(said, printed), printed
