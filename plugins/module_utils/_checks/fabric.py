# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVLink fabric as a GPU knows it: registered, healthy, and the same for all GPUs of a host.

The health mask is fields of two bits (0 not supported, 1 true, 2 false): 0xAA is a healthy one. What is not supported,
as on A100, on PCIe cards and in virtual machines of one GPU, is not asked.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    ABSENT,
    Check,
    Gpu,
    Judged,
    check,
    fail,
    ok,
    skip,
    unknown,
)

#: Fields of the health mask that are a fault where they hold, and what it means.
FAULTS = {
    "degraded_bandwidth": "degraded bandwidth",
    "route_unhealthy": "a route is unhealthy",
}
#: Fields that pass: the answer is there when the recovery is over.
PASSING = {
    "route_recovery": "a route recovers",
    "access_timeout_recovery": "it recovers from an access that timed out",
}


@check("fabric-state", "block", "fabric.state")
def fabric_state(gpu: Gpu) -> Judged:
    """Whether the GPU is registered in its fabric: completed and success. Else CUDA answers cudaErrorSystemNotReady
    (802) on this board. Registration takes its time after a start (NVSentinel waits 300 s), so that one in progress is
    unknown."""
    state, status = gpu["fabric.state"], gpu["fabric.status"]
    expected = "completed, success"
    if state == "completed":
        if status in ("success", ABSENT):
            return ok("registered")
        if status is None:
            return unknown("the status of the registration cannot be read", expected, "drain and inspect")
        return fail(
            f"registered with {status}", expected, "fix configuration", "the log of the fabric manager says why"
        )
    if state == "in_progress":
        return unknown(
            "the registration is in progress", expected, "fix configuration", "minutes after a start it is not"
        )
    if state == "not_started" and not _has_fabric(gpu):
        return skip("no NVSwitch and no NVLink")
    return fail(
        f"registration {state.replace('_', ' ')}",
        expected,
        "fix configuration",
        "start the fabric manager, of the driver's very version; on GB200 look at the switch trays and IMEX",
    )


def _has_fabric(gpu: Gpu) -> bool:
    switches = any(device.get("role") == "nvswitch" for device in gpu.observed["pci"])
    return switches or bool(gpu.known("nvlink.count"))


@check("fabric-health", "block", "fabric.health")
def fabric_health(gpu: Gpu) -> Judged:
    """The health mask, field by field, and the summary (gpud, DCGM): degraded bandwidth, an unhealthy route, a wrong
    configuration or limited capacity is a fault; a recovery in progress is unknown, and over soon."""
    expected = "a healthy fabric"
    faults = [text for field, text in FAULTS.items() if gpu[f"fabric.health.{field}"] is True]
    wrong = gpu.known("fabric.health.incorrect_configuration")
    if wrong not in (None, "none"):
        text = "; ".join([f"configuration: {wrong.replace('_', ' ')}", *faults])
        return fail(text, expected, "fix configuration", "the partition, the rack's topology file or firmware is wrong")
    summary = gpu.known("fabric.health.summary")
    if summary not in (None, "healthy") and not faults:
        faults = [f"summary {summary.replace('_', ' ')}"]
    passing = [text for field, text in PASSING.items() if gpu[f"fabric.health.{field}"] is True]
    if passing and set(faults) <= {"summary unhealthy", "summary limited capacity"}:
        return unknown("; ".join(passing), expected, "none", "ask again when it is over")
    if faults:
        return fail("; ".join(faults), expected, "drain and inspect", "links or NVSwitches of the fabric failed")
    fields = [gpu[f"fabric.health.{field}"] for field in (*FAULTS, *PASSING, "incorrect_configuration", "summary")]
    if None in fields:
        return unknown("a field of the health mask cannot be read", expected, "drain and inspect")
    if not any(field in (False, "none", "healthy") for field in fields):
        return skip("this driver or this fabric tells no health")
    return ok("healthy")


@check("fabric-clique", "block", "fabric.clique_id", "fabric.cluster_uuid")
def fabric_clique(gpu: Gpu) -> Judged:
    """All GPUs of a host are in one clique of one cluster; across a border there is no NVLink."""
    own = (gpu["fabric.cluster_uuid"], gpu["fabric.clique_id"])
    others = {(other["fabric.cluster_uuid"], other["fabric.clique_id"]) for other in gpu.siblings()} - {own}
    if others:
        cluster, clique = sorted(others, key=str)[0]
        return fail(
            f"clique {own[1]} of cluster {own[0]}", f"clique {clique} of {cluster}, as siblings", "fix configuration"
        )
    return ok(f"clique {own[1]}")


CHECKS: t.Tuple[Check, ...] = (fabric_state, fabric_health, fabric_clique)
