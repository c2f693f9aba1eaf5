# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi -q -x."""

import time
from typing import Dict, List
from xml.sax.saxutils import escape

from smi.simulation import Simulation, Stop, handle_error


def print_xml(sim: Simulation, chosen: List[int]) -> int:
    """The whole log as XML, in the order in which the scenario holds it."""
    for gpu in chosen:
        lost = sim.lost(gpu)
        if lost:  # one such GPU, and there is no log at all
            raise Stop(*handle_error(sim, gpu, lost))
    tree: Dict = {}
    values = dict(sim.keys)
    for key, value in sim.keys:
        parts = key.split("/")
        if "sim" in parts or value == "@absent" or (parts[0] == "gpu" and int(parts[1]) not in chosen):
            continue
        place = tree
        for part in parts[:-1]:
            if not isinstance(place.get(part), dict):  # what was one text has children now
                place[part] = {}
            place = place[part]
        place[parts[-1]] = key
    print('<?xml version="1.0" ?>')
    print(f'<!DOCTYPE nvidia_smi_log SYSTEM "{values["sim/dtd"]}">')
    print("<nvidia_smi_log>")
    now = time.strftime("%a %b %e %H:%M:%S %Y")
    for name, child in tree.items():
        if name == "gpu":
            for number in sorted(child, key=int):
                print(f'\t<gpu id="{escape(values.get(f"gpu/{number}/sim/id") or sim.address(int(number)))}">')
                _print_children(sim, int(number), child[number], 2)
                print("\t</gpu>")
        elif name == "timestamp":
            print(f"\t<timestamp>{now}</timestamp>")
        elif name == "attached_gpus":
            print(f"\t<attached_gpus>{len(sim.gpus)}</attached_gpus>")
        else:
            print(f"\t<{name}>{escape(sim.raw(name))}</{name}>")
    print("</nvidia_smi_log>")
    for number in chosen:
        if values.get(f"gpu/{number}/sim/inforom_valid") == "No":
            print(f"WARNING: infoROM is corrupted at gpu {sim.address(number)}")
    return 0


def _print_children(sim: Simulation, gpu: int, children: Dict, depth: int) -> None:
    indent = "\t" * depth
    for name, child in children.items():
        tag = name.split("[")[0]
        if isinstance(child, dict):
            print(f"{indent}<{tag}>")
            _print_children(sim, gpu, child, depth + 1)
            print(f"{indent}</{tag}>")
        else:
            print(f"{indent}<{tag}>{escape(sim.text(gpu, child.split('/', 2)[2])[0])}</{tag}>")
