# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The worker's own reading of NVML, on a simulated library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GPUSIM = [sys.executable, str(ROOT / "tests/simulator/gpusim"), "--profile", "h100-sxm", "--gpus", "2"]
UUID = "GPU-00000000-5a17-4e00-8000-000000001b00"
READ = """
import json, sys
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.counters import Counters
counters = Counters(sys.argv[1])
print(json.dumps([counters.problem, counters.read(), counters.users()]))
"""
LIMIT = "gpu.0.gpu_power_readings.current_power_limit=500.00 W"
CAPPED = "gpu.0.clocks_event_reasons.clocks_event_reason_sw_power_cap=Active"

pytestmark = pytest.mark.needs("gcc")


def read(uuid, *options):
    code = f"import sys\nsys.path[:] = {sys.path!r}\n{READ}"
    command = [*GPUSIM, *options, "--", sys.executable, "-c", code, uuid]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 125:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "options, expected",
    [
        ([], {"sm_mhz": 345, "max_sm_mhz": 1980, "power_limit_w": 700.0, "default_limit_w": 700.0, "event_reasons": 1}),
        (["--set", LIMIT, "--set", CAPPED], {"power_limit_w": 500.0, "default_limit_w": 700.0, "event_reasons": 5}),
        (
            ["--set", "gpu.0.pci.pci_gpu_link_info.pcie_gen.current_link_gen=3"],
            {"pcie_generation": 3, "max_pcie_generation": 5, "pcie_width": 16, "max_pcie_width": 16},
        ),
    ],
)
def test_readings_are_those_of_this_gpu(options, expected):
    problem, readings, users = read(UUID, *options)
    assert problem == "" and users == {"used_mib": 0, "pids": []}
    assert {name: readings.get(name) for name in expected} == expected


def test_what_the_driver_does_not_give_is_absent():
    _problem, readings, users = read(
        UUID, "--without", "nvmlDeviceGetMemoryInfo_v2", "--without", "nvmlDeviceGetPowerUsage"
    )
    assert users == {"pids": []} and "power_w" not in readings and readings["temperature_c"] == 29


@pytest.mark.parametrize(
    "uuid, options, says",
    [("GPU-nope", [], "NVML answers 6"), ("", [], "no UUID"), (UUID, ["--set", "gpu.0=@lost"], "NVML answers 15")],
)
def test_without_an_answer_there_are_no_readings(uuid, options, says):
    assert read(uuid, *options) == [says, {}, {}]
