# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the topology of a host means for NCCL: NVLink between the GPUs, adapters beside them, links, ACS. Pure.

``compare`` is for the gate: the topology of a proof against that of today (``_topology/model.py`` gives both).
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.mesh import nvlink_mesh
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.paths import (
    bridge_link,
    gpu_nic_affinity,
    nic_label,
    nic_link,
    numa_nodes,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import HOST, Finding, Subject

Facts = t.Mapping[str, t.Any]
#: Devices that a person reads before the rest is counted.
SHOWN = 4


def judge(topology: Facts, ids: t.Mapping[str, str], virtual: bool, mesh_error: str) -> t.List[Finding]:
    """What follows from a topology; ``ids`` are the GPUs' PCI device ids by address."""
    return [
        nvlink_mesh(topology, ids, mesh_error, virtual),
        gpu_nic_affinity(topology),
        nic_link(topology),
        *bridge_link(topology),
        numa_nodes(topology, virtual),
    ]


# ---- for the gate ----


def compare(then: Facts, now: Facts) -> t.List[Finding]:
    """The topology of a proof against that of today; nothing where it is the same.

    Lanes are compared as they are now: speed is not, as an idle link saves power by it. A GPU that is gone is for
    ``drift-gpu-missing`` to say.
    """
    if not then or not now:
        return []
    found = [finding for kind in ("gpus", "nics", "bridges") for finding in _compare_kind(kind, then, now)]
    return found + _compare_mesh(then["mesh"], now["mesh"])


def _compare_kind(kind: str, then: Facts, now: Facts) -> t.Iterator[Finding]:
    word, subject = {"gpus": ("GPU", "gpu"), "nics": ("RDMA adapter", "nic"), "bridges": ("bridge", "link")}[kind]
    for address, before in then[kind].items():
        today = now[kind].get(address)
        if today is None:
            if kind == "nics":
                yield Finding(
                    "drift-nic-missing",
                    "fail",
                    Subject("nic", address),
                    found=f"{len(now[kind])} RDMA adapters, without {nic_label(before, address)}",
                    expected=f"{len(then[kind])} RDMA adapters, as proved",
                    action="drain and inspect",
                )
            continue
        if today["width"] and before["width"] and today["width"] < before["width"]:
            yield Finding(
                "drift-link-width",
                "fail",
                Subject(subject, address),
                found=f"{word} at {address}: x{today['width']}",
                expected=f"x{before['width']}, as proved",
                action="drain and inspect",
                # What hangs below a bridge is judged itself, by its own lanes and by the proof's copies.
                policy="report" if kind == "bridges" else "block",
            )
        moved = [key for key in ("parents", "numa_node") if before[key] != today[key]]
        if moved and kind != "bridges":
            yield Finding(
                "drift-topology",
                "warn",
                Subject(subject, address),
                found=f"{word} at {address}: {', '.join(f'{key} {today[key]}' for key in moved)}",
                expected=f"{', '.join(f'{key} {before[key]}' for key in moved)}, as proved; prove it with verify.yml",
                policy="report",
            )
    for address in now[kind]:
        if address not in then[kind] and kind == "nics":
            yield Finding(
                "drift-topology",
                "warn",
                Subject(subject, address),
                found=f"{nic_label(now[kind][address], address)} was not there",
                expected="the RDMA adapters that were proved; prove it with verify.yml",
                policy="report",
            )


def _compare_mesh(then: Facts, now: Facts) -> t.List[Finding]:
    before, today = _by_pair(then), _by_pair(now)
    fewer = {pair: value for pair, value in before.items() if value and pair in today
             and (today[pair] is None or today[pair] < value)}  # type: ignore[operator]  # fmt: skip
    if not fewer:
        return []
    unread = all(today[pair] is None for pair in fewer)
    words = [f"{one} and {other} {'unread' if today[one, other] is None else today[one, other]} of {value}"
             for (one, other), value in fewer.items()]  # fmt: skip
    return [
        Finding(
            "drift-nvlink-mesh",
            "unknown" if unread else "fail",
            HOST,
            found=", ".join(words[:SHOWN]) + (f" and {len(words) - SHOWN} pairs more" if len(words) > SHOWN else ""),
            expected="the NVLinks between the GPUs that were proved",
            action="drain and inspect",
            policy="report" if unread else "block",
        )
    ]


def _by_pair(mesh: Facts) -> t.Dict[t.Tuple[str, str], t.Optional[int]]:
    order, links = mesh["order"], mesh["links"]
    return {
        (order[one], order[other]): links[one][other]
        for one in range(min(len(order), len(links)))
        for other in range(one + 1, min(len(order), len(links[one])))
    }
