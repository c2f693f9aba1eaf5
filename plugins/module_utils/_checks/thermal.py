# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Temperatures against the limits of the GPU itself.

A driver gives either temperatures (up to R570, and on older GPUs) or offsets to a limit (T.Limit): then the margin
falls as the GPU gets hot, slows it down at a small negative one (-2 on an H100) and shuts it down below (-8).
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    ABSENT,
    NOT_SUPPORTED,
    Check,
    Gpu,
    Judged,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)

COOLING = "look at fans, airflow, inlet temperature or coolant"


@check("gpu-temperature", "block")
def gpu_temperature(gpu: Gpu) -> Judged:
    """The hottest part of the GPU: at the slowdown threshold it is slowed down by hardware (fail), at its highest
    operating temperature (gpud) there is no reserve (warn). The thresholds are those that this driver gives."""
    margins = {name: gpu.known(f"temperature.{name}_tlimit_c") for name in ("slowdown", "max_operating")}
    limits = {name: gpu.known(f"temperature.{name}_c") for name in ("slowdown", "max_operating")}
    if margins["slowdown"] is not None and gpu["temperature.margin_c"] not in (ABSENT, NOT_SUPPORTED):
        return _against_margin(gpu, margins["slowdown"], margins["max_operating"])
    if limits["slowdown"] is not None:
        return _against_limit(gpu, limits["slowdown"], limits["max_operating"])
    if margins["slowdown"] is not None:
        return skip("this driver gives an offset to the temperature limit, and no margin (R560 and newer do)")
    told = [gpu[f"temperature.slowdown{kind}_c"] for kind in ("", "_tlimit")]
    if all(value in (ABSENT, NOT_SUPPORTED) for value in told):
        return skip("this driver gives no slowdown threshold of this GPU")
    return unknown("the slowdown threshold cannot be read", "a threshold", "drain and inspect")


def _against_margin(gpu: Gpu, slowdown: int, operating: t.Optional[int]) -> Judged:
    margin = gpu.known("temperature.margin_c")
    if margin is None:
        return unknown("the margin to the temperature limit cannot be read", "a margin", "drain and inspect")
    found = f"{margin} C to the limit"
    if margin <= slowdown:
        return fail(found, f"more than {slowdown} C, where it is slowed down", "ask facility", COOLING)
    if operating is not None and margin <= operating:
        return warn(found, f"more than {operating} C, its highest operating temperature", "ask facility", COOLING)
    return ok("below its limits")


def _against_limit(gpu: Gpu, slowdown: int, operating: t.Optional[int]) -> Judged:
    heat = gpu.known("temperature.gpu_c")
    if heat is None:
        return unknown("the temperature cannot be read", "a temperature", "drain and inspect")
    if heat >= slowdown:
        return fail(f"{heat} C", f"under {slowdown} C, where it is slowed down", "ask facility", COOLING)
    if operating is not None and heat >= operating:
        return warn(f"{heat} C", f"under {operating} C, its highest operating temperature", "ask facility", COOLING)
    return ok("below its limits")


@check("memory-temperature", "block", "temperature.memory_c", "temperature.memory_max_c")
def memory_temperature(gpu: Gpu) -> Judged:
    """The memory (HBM): above its highest operating temperature (gpud). A driver that gives an offset in place of it
    gives no margin of the memory; then gpu-temperature and clocks-thermal speak."""
    heat, most = gpu["temperature.memory_c"], gpu["temperature.memory_max_c"]
    if heat > most:
        return fail(f"{heat} C", f"at most {most} C", "ask facility", COOLING)
    return ok("below its limit")


CHECKS: t.Tuple[Check, ...] = (gpu_temperature, memory_temperature)
