# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA adapters beside GPUs: how they reach a GPU's memory, and their links. It only reports."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import Judged, Observation, ok, skip, warn
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import About, HostCheck, host_check
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Subject


@host_check("peer-memory", "report", "settings.adapters")
def peer_memory(observed: Observation) -> Judged:
    """Whether a network card can reach a GPU's memory (GPUDirect RDMA): through dma-buf, with the open modules on a
    kernel of 5.12 or newer, or by nvidia-peermem. Without either, each message goes through the host's memory."""
    adapters = observed["settings"]["adapters"]
    if not adapters:
        return skip("no RDMA adapter")
    if not observed["driver"].get("version"):
        return skip("the driver is not loaded")
    modules = observed["settings"]["modules"]
    if "nvidia_peermem" in modules or "nv_peer_mem" in modules:
        return ok("nvidia-peermem")
    release = re.match(r"(\d+)\.(\d+)", str(observed["host"].get("kernel") or ""))
    new = release is not None and (int(release.group(1)), int(release.group(2))) >= (5, 12)
    if new and observed["driver"].get("kernel_module") == "open":
        return ok("dma-buf")
    return warn(
        f"{len(adapters)} RDMA adapters, and neither nvidia-peermem nor dma-buf",
        "one of them",
        "fix configuration",
        "modprobe nvidia-peermem, or the open kernel modules",
    )


@host_check("rdma-links", "report", "settings.adapters")
def rdma_links(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Ports of RDMA adapters against the same port of alike adapters: most are up, this one is down or slower (Azure,
    gpud, imbue). A port that none has in use is not cabled, and none of ours."""
    adapters = observed["settings"]["adapters"]
    if not adapters:
        return skip("no RDMA adapter")
    parts = []
    for adapter in adapters:
        for port in adapter["ports"]:
            alike = [
                other
                for one in adapters
                if one["type"] == adapter["type"]
                for other in one["ports"]
                if other["port"] == port["port"] and other["link_layer"] == port["link_layer"]
            ]
            problem, expected = _against(port, alike)
            if problem:
                text = f"{adapter['name']} port {port['port']}: {problem}"
                judged = warn(text, expected, "drain and inspect", "cable, transceiver or switch port")
                parts.append(About(Subject("nic", f"{adapter['name']}/{port['port']}"), judged, {"port": dict(port)}))
    return parts or ok(f"{len(adapters)} adapters alike")


def _against(port: t.Mapping[str, t.Any], alike: t.Sequence[t.Mapping[str, t.Any]]) -> t.Tuple[str, str]:
    up = [other for other in alike if other["state"] == "active"]
    if 2 * len(up) <= len(alike):
        return "", ""
    if port["state"] != "active":
        return str(port["state"] or "state unknown"), f"active, as {len(up)} of {len(alike)} alike"
    rates = [other["gbps"] for other in up if other["gbps"]]
    usual = max(sorted(set(rates)), key=rates.count) if rates else 0
    if port["gbps"] and port["gbps"] < usual and 2 * rates.count(usual) > len(rates):
        return f"{port['gbps']:g} Gb/s", f"{usual:g} Gb/s, as alike adapters"
    return "", ""


CHECKS: t.Tuple[HostCheck, ...] = (peer_memory, rdma_links)
