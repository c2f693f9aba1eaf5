# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a GPU is slower than it could be, as it says at this moment.

Idle, a power cap under load and clocks that somebody set are no faults. The counters of these reasons are since the
driver was loaded and not judged: 7,015 s of power cap stand on a healthy H100. What holds under load, the proof reads.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    Check,
    Gpu,
    Judged,
    check,
    fail,
    ok,
    warn,
)

#: What hw_slowdown is made of, where the GPU says so.
HARDWARE = ("hw_thermal_slowdown", "hw_power_brake_slowdown")


@check("clocks-thermal", "block", "clocks_event_reasons")
def clocks_thermal(gpu: Gpu) -> Judged:
    """Slowed down by heat: by hardware (a fault; NVSentinel CHECK_THERMALS), or by the driver a little before (a
    warning)."""
    reasons = gpu["clocks_event_reasons"]
    expected = "no slowdown by heat"
    if "hw_thermal_slowdown" in reasons:
        return fail("slowed down by hardware for heat", expected, "ask facility", "look at fans, airflow or coolant")
    if "sw_thermal_slowdown" in reasons:
        return warn("slowed down by the driver for heat", expected, "ask facility", "look at fans, airflow or coolant")
    return ok("not slowed down by heat")


@check("clocks-hw-slowdown", "block", "clocks_event_reasons")
def clocks_hw_slowdown(gpu: Gpu) -> Judged:
    """Slowed down by hardware without saying why: a fault where the GPU works. At rest, and of a laptop, it is said.
    Where heat or the power brake is the reason, clocks-thermal and power-brake say so."""
    reasons = gpu["clocks_event_reasons"]
    expected = "no slowdown by hardware"
    if "hw_slowdown" not in reasons or any(reason in reasons for reason in HARDWARE):
        return ok("no slowdown of another reason")
    if gpu.mobile:
        return warn("slowed down by hardware", expected, "none", "as a laptop's battery, adapter or heat asks")
    if "gpu_idle" in reasons:
        return warn(
            "slowed down by hardware while idle", expected, reason="the proof tells whether it stays under load"
        )
    return fail(
        "slowed down by hardware", expected, "drain and inspect", "power or heat, and the GPU does not say which"
    )


@check("clocks-sync-boost", "report", "clocks_event_reasons")
def clocks_sync_boost(gpu: Gpu) -> Judged:
    """Held to the clocks of another GPU of its sync boost group: that one is slow."""
    if "sync_boost" in gpu["clocks_event_reasons"]:
        return warn("held to the clocks of a slower GPU", "its own clocks", "fix configuration", "a sync boost group")
    return ok("not held by a group")


CHECKS: t.Tuple[Check, ...] = (clocks_thermal, clocks_hw_slowdown, clocks_sync_boost)
