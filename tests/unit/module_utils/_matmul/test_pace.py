# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rates against the model and the PCIe link, with what the counters say."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.expected import (
    achieved,
    bus_bandwidth,
    peak_tflops,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.pace import copies, pace, rates
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device

LINK = {"pcie_generation": 5, "pcie_width": 16, "max_pcie_generation": 5, "max_pcie_width": 16}


def gpu(tflops=780.0, name="NVIDIA H100 80GB HBM3", counters=None, link=None, key="GPU-a", gbs=55.0):
    size = {"dtype": "bfloat16", "m": 8192, "n": 8192, "k": 8192}
    events = [
        {"event": "rate", **size, "state": "ok", "round": turn, "tflops": tflops, "counters": counters or {}}
        for turn in range(2)
    ] + [
        {"event": "copy", "way": way, "mib": 256, "round": turn, "gbs": speed, "counters": link or LINK}
        for turn in range(2)
        for way, speed in (("memory", 2900.0), ("host_to_device", gbs))
    ]
    return Device("cuda", key, name, "done", events, capability="9.0", multiprocessors=132)


def found(device, *siblings):
    return {item.check: item for item in pace(device, siblings)}


@pytest.mark.parametrize(
    "tflops, name, state",
    [
        (780.0, "NVIDIA H100 80GB HBM3", "ok"),
        (676.0, "NVIDIA H100 80GB HBM3", "ok"),
        (675.0, "NVIDIA H100 80GB HBM3", "fail"),  # 85 % of 794.5 is 675.3
        (200.0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "ok"),  # nobody published a slice
        (100.0, "NVIDIA H100 NVL", "ok"),
        (230.0, "NVIDIA A100-SXM4-80GB", "fail"),
        (230.0, "NVIDIA A100 80GB PCIe", "ok"),
    ],
)
def test_the_rate_of_the_model(tflops, name, state):
    assert found(gpu(tflops, name))["matmul-rate"].state == state


@pytest.mark.parametrize(
    "counters, action, reason",
    [
        ({}, "drain and inspect", ""),
        ({"event_reasons": 0x40}, "ask facility", "held back by its temperature (hardware)"),
        (
            {"event_reasons": 0x4, "power_limit_w": 500.0, "default_limit_w": 700.0},
            "ask facility",
            "held back by its power cap (500 W, 700 W by default)",
        ),
        ({"event_reasons": 0x84, "power_limit_w": 700.0, "default_limit_w": 700.0}, "ask facility",
         "held back by its power cap and the power brake of the chassis"),
    ],
)  # fmt: skip
def test_a_slow_gpu_is_named_with_its_reason(counters, action, reason):
    item = found(gpu(400.0, counters=counters))["matmul-rate"]
    assert (item.state, item.action, item.reason) == ("fail", action, reason)


@pytest.mark.parametrize(
    "link, state, text",
    [
        (LINK, "ok", "generation 5 x16 under load"),
        ({**LINK, "pcie_width": 8}, "warn", "generation 5 x8 under load"),
        ({**LINK, "pcie_generation": 1}, "warn", "generation 1 x16 under load"),
    ],
)
def test_the_link_under_load(link, state, text):
    item = found(gpu(link=link))["pcie-link"]
    assert (item.state, item.found) == (state, text)


def test_a_slow_copy_is_named_against_its_siblings():
    siblings = [gpu(key=f"GPU-{number}") for number in range(3)]
    item = found(gpu(gbs=12.0), *siblings)["memory-rate"]
    assert item.state == "fail" and "host to device 78%" in item.found


def test_the_proof_tells_the_share_of_the_peak_at_the_clock_it_ran_at():
    (row,) = rates(gpu(780.0, counters={"sm_mhz": 1600}))
    assert row["tflops"] == 780.0 and row["rounds"] == [780.0, 780.0]
    assert row["of_peak_at_clock"] == pytest.approx(780 / 865.1, abs=0.001)
    assert copies(gpu()) == [{"way": "memory", "gbs": 2900.0}, {"way": "host_to_device", "gbs": 55.0}]


@pytest.mark.parametrize(
    "tflops, sm_mhz, state",
    [
        (780.0, 1600, "ok"),
        (520.0, 1600, "ok"),  # 60 % of 865
        (518.0, 1600, "warn"),
        (400.0, 800, "ok"),  # slow for its clock, which is another matter
        (100.0, 0, "ok"),  # no clock is known
    ],
)
def test_the_peak_at_the_clock_judges_models_without_published_rates(tflops, sm_mhz, state):
    item = found(gpu(tflops, "NVIDIA H100 NVL", counters={"sm_mhz": sm_mhz}))["matmul-rate"]
    assert item.state == state
    if state == "warn":
        assert item.found.startswith("60% of what its tensor cores do") and "suspect the library" in item.reason


def test_a_slow_cpu_keeps_its_digits():
    size = {"event": "rate", "dtype": "float32", "m": 512, "n": 512, "k": 512, "state": "ok", "tflops": 0.0000123456}
    assert rates(Device("cpu", "0", "CPU", "done", [size]))[0]["rounds"] == [0.000012346]


@pytest.mark.parametrize(
    "name, bf16",
    [
        ("NVIDIA H200", 794.5),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA GH200 480GB", 828.6),
        ("NVIDIA B200", 1745.0),
        ("NVIDIA GB200", 1822.0),
        ("NVIDIA A100-SXM4-40GB", 271.2),
        ("NVIDIA A100-PCIE-40GB", 252.9),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_achieved_rates_by_name(name, bf16):
    assert achieved(name).get("bfloat16") == bf16


def test_published_figures():
    assert peak_tflops("9.0", 132, 1830) == pytest.approx(989.4, abs=0.1)
    assert peak_tflops("8.0", 108, 1410) == pytest.approx(311.9, abs=0.1)
    assert peak_tflops("7.5", 40, 1590) is None
    assert bus_bandwidth("8 x NVIDIA H100 80GB HBM3", 8) == 460.0
    assert bus_bandwidth("4 x NVIDIA H100 80GB HBM3", 4) is None
