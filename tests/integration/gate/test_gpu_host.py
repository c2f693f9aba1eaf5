# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate on a simulated host of eight H100s: what changes, what breaks, what hangs."""

from __future__ import annotations

import time

import pytest

pytestmark = [pytest.mark.container, pytest.mark.needs("gcc")]


def test_eight_gpus_as_recorded_are_ready(gpu_host):
    code, verdict = gpu_host.gate("--fresh")
    assert code == 0, verdict
    assert ("drift", "ok") in verdict["found"]
    assert verdict["found"]["gpu-count", "ok"]["found"] == "8 GPUs"
    assert len(str(verdict)) < 100_000


@pytest.fixture
def change(gpu_host):
    """Sets a value of the simulation and puts the old one back."""
    done = []

    def apply(key, value, healthy):
        gpu_host.ok("gpusim-set", f"{key}={value}")
        done.append((key, healthy))

    yield apply
    for key, healthy in done:
        gpu_host.ok("gpusim-set", f"{key}={healthy}")
    assert gpu_host.gate("--fresh")[0] == 0


LINK = "pci.pci_gpu_link_info.link_widths.current_link_width"
#: Element, value, the healthy value, exit status, what is found.
CHANGES = [
    ("vbios_version", "97.00.00.00.01", "96.00.99.00.01", 0, {("drift-vbios", "warn"), ("proof-due", "warn")}),
    ("gpu_power_readings.current_power_limit", "500.00 W", "700.00 W", 0, {("drift-power-limit", "warn")}),
    (LINK, "8x", "16x", 1, {("drift-pcie-width", "fail"), ("pcie-width", "fail")}),
    ("ecc_mode.current_ecc", "Disabled", "Enabled", 1, {("drift-ecc", "fail")}),
    ("gsp_firmware_version", "580.1", "580.105.08", 0, {("drift-gsp-firmware", "warn")}),
    ("uuid", "GPU-new", "GPU-00000003-5a17-4e00-8000-000000006100", 0, {("drift-gpu-swapped", "warn")}),
]


@pytest.mark.parametrize(("key", "value", "healthy", "code", "found"), CHANGES, ids=[row[0] for row in CHANGES])
def test_one_value_changes(gpu_host, change, key, value, healthy, code, found):
    change(f"gpu.3.{key}", value, healthy)
    seen, verdict = gpu_host.gate("--fresh")
    assert seen == code, verdict
    assert found <= set(verdict["found"]), set(verdict["found"])


def test_a_driver_that_hangs_is_unknown_in_time_for_everybody(gpu_host):
    gpu_host.ok("gpusim-set", "gpu.3.temperature.gpu_temp=@stuck")
    for _turn in range(2):
        began = time.monotonic()
        code, verdict = gpu_host.gate("--fresh")
        assert code == 2 and time.monotonic() - began < 30, verdict
        assert ("drift-gpu-missing", "unknown") in verdict["found"], "what does not answer is not gone"
        assert not [key for key in verdict["found"] if key[1] == "fail"]
    began = time.monotonic()
    assert gpu_host.gate()[0] == 2
    assert time.monotonic() - began < 5, "who only reads is not held"
