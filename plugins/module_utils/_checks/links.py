# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCIe link of a GPU.

The count of replays since the driver was loaded is not judged: 150 stand on a healthy H100, and a rate needs two
looks.
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

#: sysfs and some drivers say so of a link that is down.
DEAD = (0, 63)


@check("pcie-width", "block", "pcie.width", "pcie.width_max")
def pcie_width(gpu: Gpu) -> Judged:
    """Lanes of the link. Fewer than a GPU of the same model in the same host has: lanes were lost. All alike below the
    maximum is how many platforms are wired (a cloud's T4 and L40S at x8 of x16), so it is not held against the
    maximum; where a lone GPU on bare metal has fewer, it is said."""
    width, most = gpu["pcie.width"], gpu["pcie.width_max"]
    found = f"x{width} of x{most}"
    if width in DEAD:
        return fail(f"x{width}: the link is down", f"x{most}", "drain and inspect")
    widths = [other for other in (sibling.known("pcie.width") for sibling in gpu.siblings()) if isinstance(other, int)]
    if widths and width < max(widths):
        return fail(
            found, f"x{max(widths)}, as its siblings have", "drain and inspect", "lanes were lost: seat or riser"
        )
    bare = gpu.observed["host"]["virtualization"] == "none" and gpu["virtualization_mode"] in ("none", "not_supported")
    if width < most and not widths and bare:
        return warn(found, f"x{most}", reason="the slot is wired so, or lanes were lost; the slot's label tells")
    return ok(found)


@check("pcie-generation", "report", "pcie.generation", "pcie.generation_max")
def pcie_generation(gpu: Gpu) -> Judged:
    """Speed of the link. An idle GPU saves power by a slow link, so that it is judged only where the GPU works. Even
    then it may just be speeding up: it wakes nobody, and the proof measures copies."""
    generation, most = gpu["pcie.generation"], gpu["pcie.generation_max"]
    found = f"Gen{generation} of Gen{most}"
    if generation >= most:
        return ok(found)
    reasons = gpu.known("clocks_event_reasons")
    if reasons is None or "gpu_idle" in reasons or gpu.known("performance_state") not in ("P0", "P1", "P2"):
        return ok(f"{found}, as an idle link may")
    return warn(f"{found} while the GPU works", f"Gen{most}", "drain and inspect", "the link was trained slower")


CHECKS: t.Tuple[Check, ...] = (pcie_width, pcie_generation)
