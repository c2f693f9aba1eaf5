# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power of a GPU: its limit, the brake from outside, whether it can be read, and persistence."""

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

#: Limits are set in whole watts; a driver may give back a little less.
TOLERANCE_W = 1.0


@check("power-limit", "report", "power.limit_w", "power.default_w")
def power_limit(gpu: Gpu) -> Judged:
    """The enforced limit against the default: a lower one costs speed. A site may have set it, so that it wakes nobody.
    Where less is enforced than was requested, the platform holds the GPU down."""
    limit, default, requested = gpu["power.limit_w"], gpu["power.default_w"], gpu.known("power.requested_w")
    found, expected = f"{limit:g} W", f"{default:g} W, the default"
    if requested is not None and limit < requested - TOLERANCE_W:
        return warn(f"{found} enforced of {requested:g} W requested", expected, "ask facility", "the platform caps it")
    if limit < default - TOLERANCE_W:
        return warn(found, expected, "fix configuration", f"where nobody meant it: nvidia-smi -pl {default:g}")
    return ok(found)


@check("power-brake", "block", "clocks_event_reasons")
def power_brake(gpu: Gpu) -> Judged:
    """The external power brake slows the GPU to a fraction: a power supply failed or lost its redundancy, the rack is
    at its cap, or the board's connector is bad. It is a fault under load and at rest, but not
    of a laptop."""
    if "hw_power_brake_slowdown" in gpu["clocks_event_reasons"]:
        if gpu.mobile:
            return warn("power brake", "no power brake", "none", "a laptop's battery or adapter gives no more")
        return fail("power brake", "no power brake", "ask facility", "look at power supplies and the rack's power")
    return ok("no power brake")


@check("power-readable", "report", "power.draw_w")
def power_readable(gpu: Gpu) -> Judged:
    """Power that cannot be read points to a board whose sensors or firmware hang (DCGM_FR_POWER_UNREADABLE)."""
    return ok("power can be read")


@check("persistence", "report", "persistence")
def persistence(gpu: Gpu) -> Judged:
    """Without persistence the driver is taken down with the last process: every job starts slowly, and limits that
    were set are lost (gpud, DCGM_FR_PERSISTENCE_MODE). A driver in a container may have no daemon for it, and be
    healthy."""
    if gpu["persistence"]:
        return ok("on")
    return warn("persistence is off", "on", "fix configuration", "start nvidia-persistenced")


CHECKS: t.Tuple[Check, ...] = (power_limit, power_brake, power_readable, persistence)
