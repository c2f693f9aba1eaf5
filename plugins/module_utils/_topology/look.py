# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a host's topology, for the module and for the gate: sysfs and the driver, nothing is changed."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.address import normalise_address
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import model, nvlinks, sysfs


class Look(t.NamedTuple):
    """``seen`` as ``sysfs.read``, ``gpus`` by address as the driver tells them, ``topology`` as ``model.model``.

    ``error`` is why NVLink could not be asked, "" where it could.
    """

    seen: t.Dict[str, t.Any]
    gpus: t.Dict[str, t.Any]
    topology: t.Dict[str, t.Any]
    error: str


def look(runner: Runner, observed: t.Mapping[str, t.Any]) -> Look:
    """The topology of the host of which ``observed`` is the Observation."""
    seen = sysfs.read(runner)
    known = [gpu for gpu in observed["gpus"] if gpu["state"] == "ok" and gpu["pci_address"]]
    counts = {}
    for gpu in known:
        count = (gpu.get("nvlink") or {}).get("count", 0)
        counts[int(gpu["index"])] = count if isinstance(count, int) else 0
    library = next(
        (entry["path"] for entry in observed["driver"]["libraries"] if entry["name"] == "libnvidia-ml.so.1"), ""
    )
    if known:
        answer = nvlinks.read(runner, runner.path(library), counts)
    else:
        answer = nvlinks.Answer({}, [], observed["nvml"]["error"] or "the driver shows no GPU")
    gpus = {
        normalise_address(gpu["pci_address"]): {
            "index": gpu["index"],
            "name": gpu.get("name"),
            "compute_capability": gpu.get("compute_capability"),
            "links": answer.links.get(int(gpu["index"])),
        }
        for gpu in known
    }
    here = {address: gpu for address, gpu in gpus.items() if address in seen["devices"]}
    return Look(seen, gpus, model.model(seen, here, answer.mesh), answer.error)
