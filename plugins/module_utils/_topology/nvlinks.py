# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink from end to end: what each active link leads to, how many join each pair, and what a board should have.

The links are asked in a forked child with a time limit, as every question to the driver (``_probe/child.py``). Where
pynvml is not on the host, ``nvidia-smi topo -m`` gives the pairs, without the switches between them.
"""

from __future__ import annotations

import importlib.util
import re
import types
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import ask, child
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.address import normalise_address
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.build import HIDDEN

#: Links a GPU, and what joins them, by PCI device id. ``switch``: every pair of a board over all links (NVSwitch, or
#: four GPUs joined directly); ``bridge``: cards, in pairs or fours, where somebody put bridges; ``cube``: V100's eight.
#: Sources: NVIDIA datasheets; ids from NVIDIA/open-gpu-kernel-modules README 595.45.04 and pci.ids.
BOARDS: t.Mapping[str, t.Tuple[int, str]] = {
    "1db1": (6, "cube"),  # V100 SXM2 16 GB
    "1df5": (6, "cube"),
    "1db5": (6, "cube"),  # V100 SXM2 32 GB
    "1db8": (6, "switch"),  # V100 SXM3 32 GB (DGX-2)
    "20b0": (12, "switch"),  # A100 SXM4 40 GB
    "20b2": (12, "switch"),  # A100 SXM4 80 GB
    "20f3": (8, "switch"),  # A800 SXM4
    "2330": (18, "switch"),  # H100 SXM5
    "2324": (8, "switch"),  # H800 SXM5
    "2329": (18, "switch"),  # H20
    "2335": (18, "switch"),  # H200 SXM5
    "2901": (18, "switch"),  # B200
    "3182": (18, "switch"),  # B300
    "2941": (18, "switch"),  # GB200
    "31c2": (18, "switch"),  # GB300
    "20f1": (12, "bridge"),  # A100 PCIe 40 GB
    "20b5": (12, "bridge"),  # A100 PCIe 80 GB
    "20f5": (8, "bridge"),  # A800 PCIe
    "20b7": (4, "bridge"),  # A30
    "2235": (4, "bridge"),  # A40
    "2230": (4, "bridge"),  # RTX A6000
    "2204": (4, "bridge"),  # GeForce RTX 3090
    "2331": (12, "bridge"),  # H100 PCIe
    "2321": (12, "bridge"),  # H100 NVL
    "2322": (8, "bridge"),  # H800 PCIe
    "233b": (18, "bridge"),  # H200 NVL
}

Links = t.Dict[str, int]
Mesh = t.List[t.List[t.Optional[int]]]


class Answer(t.NamedTuple):
    """``links`` of each GPU by index, as count by remote address; ``mesh`` where only pairs are known; or ``error``."""

    links: t.Dict[int, Links]
    mesh: Mesh
    error: str


def read(runner: Runner, library: str, counts: t.Mapping[int, int]) -> Answer:
    """Ask for the remote ends. ``counts``: links that each GPU has, by index; GPUs without any are not asked."""
    if not any(counts.values()):
        return Answer({index: {} for index in counts}, [], "")
    path = next((path for path in ask.PYNVML if runner.exists(path)), None)
    if path is None and importlib.util.find_spec("pynvml") is None:
        return _from_smi(runner, len(counts))
    try:
        with child.Lock(child.folder(runner)) as lock:
            sent = child.stream(_job(runner.path(path) if path else None, library, counts), lock)
    except child.Stuck as error:
        return Answer({}, [], str(error))
    links = {int(record["gpu"]): record["links"] for record in sent.records if "gpu" in record}
    return Answer(links, [], "; ".join(f"GPU {at}: {trouble.text}" for at, trouble in sent.hung.items()))


def _job(path: t.Optional[str], library: str, counts: t.Mapping[int, int]) -> child.Job:
    def job(emit: child.Emit, skip: t.Set[int]) -> None:
        nvml = ask.load(path, library)
        nvml.nvmlInit()
        for index, count in counts.items():
            if index not in skip:
                emit({"at": index})
                emit({"gpu": index, "links": _links(nvml, index, count)})

    return job


def _links(nvml: types.ModuleType, index: int, count: int) -> Links:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    found: Links = {}
    for link in range(count):
        try:
            if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                continue
        except nvml.NVMLError:
            continue
        try:
            told = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
            remote = normalise_address(told.decode() if isinstance(told, bytes) else told)
        except nvml.NVMLError:
            # A switch in a rack, or one that the hypervisor keeps, has no address here.
            remote = HIDDEN
        found[remote] = found.get(remote, 0) + 1
    return found


def _from_smi(runner: Runner, count: int) -> Answer:
    program = next((path for path in ask.SMI if runner.which(path)), None)
    if program is None:
        return Answer({}, [], "neither pynvml nor nvidia-smi is on this host")
    try:
        with child.Lock(child.folder(runner)) as lock:
            argv = [runner.path(program), "topo", "-m"]
            problem, output = child.capture(argv, {**runner.env, "LC_ALL": "C"}, lock, ask.SMI_LIMIT)
    except child.Stuck as error:
        return Answer({}, [], str(error))
    mesh = parse_topo((output or b"").decode("utf-8", "replace"))
    if len(mesh) != count:
        return Answer({}, [], problem or f"nvidia-smi topo -m shows {len(mesh)} of {count} GPUs")
    return Answer({}, mesh, "")


def parse_topo(text: str) -> Mesh:
    """Links of each pair by ``nvidia-smi topo -m``: a square, None on its diagonal and for a lost GPU's row."""
    rows: t.Dict[int, t.Dict[int, int]] = {}
    columns: t.List[str] = []
    for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines():
        cells = [cell.strip() for cell in line.split("\t")]
        if not columns:
            columns = cells[1:] if len(cells) > 1 and cells[1] == "GPU0" else []
            continue
        match = re.fullmatch(r"GPU(\d+)", cells[0])
        if match:
            named = {int(name[3:]): cell for name, cell in zip(columns, cells[1:]) if re.fullmatch(r"GPU\d+", name)}
            rows[int(match[1])] = {
                other: int(cell[2:]) if re.fullmatch(r"NV\d+", cell) else 0 for other, cell in named.items()
            }
    size = max(rows, default=-1) + 1
    return [[None if one == other else rows.get(one, {}).get(other) for other in range(size)] for one in range(size)]


def mesh(addresses: t.Sequence[str], links: t.Sequence[t.Optional[Links]]) -> Mesh:
    """Links of each pair, as ``nvidia-smi topo -m`` counts them: the direct ones, and those to switches of both."""
    square: Mesh = []
    for one, ours in enumerate(links):
        row: t.List[t.Optional[int]] = []
        for other, theirs in enumerate(links):
            if one == other or ours is None or theirs is None:
                row.append(None)
                continue
            direct = ours.get(addresses[other], 0)
            ends = [{remote: count for remote, count in one_end.items() if remote not in addresses}
                    for one_end in (ours, theirs)]  # fmt: skip
            shared = set(ends[0]) & set(ends[1])
            row.append(direct or min(sum(end[remote] for remote in shared) for end in ends))
        square.append(row)
    return square
