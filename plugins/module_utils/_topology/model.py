# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology as it is recorded and compared: who hangs where, how wide links are now, which pairs NVLink joins."""

from __future__ import annotations

import hashlib
import json
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import nvlinks, sysfs

SCHEMA = 1
Facts = t.Mapping[str, t.Any]


def model(seen: Facts, gpus: Facts, pairs: nvlinks.Mesh) -> t.Dict[str, t.Any]:
    """The ``topology`` part of a baseline (docs/architecture.md), JSON only.

    ``gpus``: by address ``{index, name, links}``. ``pairs``: the mesh where only that is known; else it follows from
    the links.
    """
    order = sorted(gpus, key=lambda address: int(gpus[address]["index"]))
    links = [gpus[address]["links"] for address in order]
    found = {
        "schema": SCHEMA,
        "gpus": {
            address: {
                **_place(seen["devices"][address]),
                "index": gpus.get(address, {}).get("index"),
                "name": gpus.get(address, {}).get("name"),
                "nvlink": gpus.get(address, {}).get("links"),
            }
            for address in sysfs.of_kind(seen, "gpu")
        },
        "nics": {
            address: {
                **_place(seen["devices"][address]),
                "names": [port["name"] for port in seen["devices"][address]["names"]],
            }
            for address in sysfs.of_kind(seen, "nic")
        },
        "bridges": {address: _place(seen["devices"][address]) for address in sysfs.of_kind(seen, "bridge")},
        "mesh": {"order": order, "links": pairs or nvlinks.mesh(order, links)},
    }
    return {**found, "digest": digest(found)}


def _place(device: Facts) -> t.Dict[str, t.Any]:
    return {
        "parents": device["parents"],
        "numa_node": device["numa_node"],
        "width": device["link"]["width"],
        "width_max": device["link"]["width_max"],
        "speed": device["link"]["speed"],
        "speed_max": device["link"]["speed_max"],
    }


def digest(topology: Facts) -> str:
    """Of what stays as long as nobody opens the host: places and what the links could be, not what they run at."""
    kept = {
        kind: {
            address: [place["parents"], place["numa_node"], place["width_max"], place["speed_max"]]
            for address, place in topology[kind].items()
        }
        for kind in ("gpus", "nics")
    }
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def nearness(one: Facts, other: Facts) -> str:
    """How two devices meet: ``bridge`` (one switch), ``node`` (one NUMA node), ``far`` (two), or ``unknown``."""
    if set(one["parents"][1:]) & set(other["parents"][1:]):  # the first is a port of the CPU, which joins nothing
        return "bridge"
    if one["numa_node"] is None or other["numa_node"] is None:
        return "unknown"
    return "node" if one["numa_node"] == other["numa_node"] else "far"


def hides_switches(topology: Facts) -> bool:
    """Whether no GPU has a PCIe switch above it (a switch is two bridges and more behind a root port)."""
    return not any(len(place["parents"]) > 2 for place in topology["gpus"].values())
