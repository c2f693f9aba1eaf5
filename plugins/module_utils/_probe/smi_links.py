# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink and peer access where pynvml is not there: ``nvidia-smi nvlink`` and ``topo -p2p`` into the same facts.

Drivers write "inActive" and "<inactive>", and of a GPU whose links are all down no line for each.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import ask, child
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

NOT_SUPPORTED = "not_supported"
#: The words of `topo -p2p`, as facts.py has them.
PEER = {
    "OK": "ok",
    "CNS": "chipset_not_supported",
    "GNS": "gpu_not_supported",
    "TNS": "topology_not_supported",
    "DR": "disabled_by_regkey",
    "NS": NOT_SUPPORTED,
}
_ERRORS = {"Replay": "replay", "Recovery": "recovery", "CRC": "crc_flit", "CRC FLIT": "crc_flit"}

Links = t.Dict[str, t.Any]


def add(observed: t.Dict[str, t.Any], runner: Runner) -> None:
    """Puts ``nvlink`` of each GPU and ``nvml.p2p_read`` into what nvidia-smi told. Raises child.Stuck."""
    gpus = [gpu for gpu in observed["gpus"] if gpu["state"] == "ok"]
    if observed["nvml"].get("source") != "nvidia-smi" or not gpus:
        return
    program = next(path for path in ask.SMI if runner.which(path))
    env = {**runner.env, "LC_ALL": "C"}
    library = next((one["path"] for one in observed["driver"]["libraries"] if one["name"] == ask.NAME), "")
    if not program.startswith("/usr/bin/"):
        env["LD_LIBRARY_PATH"] = runner.path(library).rpartition("/")[0]
    said = []
    with child.Lock(child.folder(runner)) as lock:
        for question in (("nvlink", "--status"), ("nvlink", "-e"), ("topo", "-p2p", "r")):
            _problem, output = child.capture([runner.path(program), *question], env, lock, ask.SMI_LIMIT)
            if output is None:
                return  # What hangs once hangs again.
            said.append(output.decode("utf-8", "replace"))
    switched = any(device["role"] == "nvswitch" for device in observed["pci"])
    links = status(said[0], switched)
    counted = errors(said[1])
    for gpu in gpus:
        if gpu["uuid"] in links:
            gpu["nvlink"] = links[gpu["uuid"]]
            if gpu["uuid"] in counted:
                gpu["nvlink"]["errors"] = counted[gpu["uuid"]]
    square = peers(said[2])
    if len(square) == len(observed["gpus"]):
        observed["nvml"]["p2p_read"] = square


def _by_gpu(text: str) -> t.Iterator[t.Tuple[str, str]]:
    """UUID and lines of each GPU."""
    parts = re.split(r"^GPU \d+: .*\(UUID: (\S+)\)\s*$", text, flags=re.MULTILINE)
    return zip(parts[1::2], parts[2::2])


def status(text: str, switched: bool) -> t.Dict[str, Links]:
    """``nvlink`` by UUID of ``nvidia-smi nvlink --status``. ``switched``: the board's links must be up, so that
    how many there are is wanted where all are down."""
    found: t.Dict[str, Links] = {}
    for uuid, lines in _by_gpu(text):
        states = re.findall(r"^\s*Link (\d+): (?:([\d.]+) GB/s|<inactive>)", lines, re.MULTILINE | re.IGNORECASE)
        if states:
            down = [int(link) for link, speed in states if not speed]
            speeds = [round(float(speed) * 1000) for _link, speed in states if speed]
            found[uuid] = {"count": len(states), "active": len(speeds), "inactive_links": down}
            found[uuid]["speed_mbps"] = max(speeds) if speeds else 0
        elif re.search(r"all links are inactive", lines, re.IGNORECASE):
            found[uuid] = {"count": None if switched else NOT_SUPPORTED, "active": 0}
        else:
            found[uuid] = {"count": NOT_SUPPORTED}
    return found


def errors(text: str) -> t.Dict[str, t.Dict[str, int]]:
    """Errors of all links by UUID of ``nvidia-smi nvlink -e``; those that this GPU does not count are absent."""
    found: t.Dict[str, t.Dict[str, int]] = {}
    for uuid, lines in _by_gpu(text):
        for name, value in re.findall(r"^\s*Link \d+: (\w+(?: FLIT)?) Errors?: (\d+)\s*$", lines, re.MULTILINE):
            if name in _ERRORS:
                counts = found.setdefault(uuid, {})
                counts[_ERRORS[name]] = counts.get(_ERRORS[name], 0) + int(value)
    return found


def peers(text: str) -> t.List[t.List[t.Optional[str]]]:
    """The square of ``nvidia-smi topo -p2p r``: None on its diagonal and where unknown; empty where it is none."""
    rows = re.findall(r"^\s*GPU\d+\t(.*?)\t?\s*$", text, re.MULTILINE)
    square = [[PEER.get(cell.strip()) for cell in row.split("\t")] for row in rows if "GPU" not in row]
    return square if all(len(row) == len(square) for row in square) else []
