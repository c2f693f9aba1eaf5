# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated nvidia-smi: answers from the scenario, through the simulated NVML.

Exit codes are those of nvidia-smi's manual page, which are NVML's: 0 success, 2 wrong argument, 3 not available,
4 no permission, 6 not found, 9 driver not loaded, 12 no library, 15 GPU lost, 255 anything else.
"""

import signal
import sys
from typing import Dict, List, Optional

from smi.change import change
from smi.links import print_nvlink, print_topology
from smi.log import print_xml
from smi.query import print_list, print_processes, print_query, print_table
from smi.simulation import Simulation, Stop


def choose(sim: Simulation, wanted: Optional[str]) -> List[int]:
    if wanted is None:
        return list(sim.gpus)
    values = dict(sim.keys)
    chosen = []
    for one in wanted.split(","):
        by_index = [sim.gpus[int(one)]] if one.isdigit() and int(one) < len(sim.gpus) else []
        found = by_index or [
            gpu for gpu in sim.gpus
            if values[f"gpu/{gpu}/uuid"] == one or values[f"gpu/{gpu}/pci/pci_bus_id"].lower().endswith(one.lower())
        ]  # fmt: skip
        if not found:
            raise Stop("No devices were found\n", 6)
        chosen += found
    return chosen


def answer(folder: str, arguments: List[str]) -> int:
    options: Dict[str, str] = {}
    words: List[str] = []
    valued = ("-i", "--id", "-pl", "--power-limit", "-pm", "--persistence-mode", "-e", "--ecc-config", "-mig",
              "--multi-instance-gpu", "-c", "--compute-mode", "-lgc", "--lock-gpu-clocks",
              "-d", "-p2p", "-f", "-l")  # fmt: skip
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word.startswith("-") and equals:
            options[name] = value
        elif word in valued and not (words and word in ("-e", "-c")):  # `nvlink -e` and `topo -c` are other options
            options[word] = rest.pop(0) if rest else ""
        elif word.startswith("-"):
            options[word] = ""
        else:
            words.append(word)
    sim = Simulation(folder)
    if not sim.gpus:
        print("No devices were found")
        return 0 if sim.raw("sim/smi/no_devices") in ("", "N/A") else int(sim.raw("sim/smi/no_devices"))
    chosen = choose(sim, options.get("-i") or options.get("--id"))
    if words[:1] == ["topo"]:
        return print_topology(sim, options.get("-p2p", ""))
    if words[:1] == ["nvlink"]:
        errors = "-e" in arguments or "--errorcounters" in options
        return print_nvlink(sim, chosen, "errors" if errors else "status")
    for long, short in (("--power-limit", "-pl"), ("--persistence-mode", "-pm"), ("--ecc-config", "-e"),
                        ("--multi-instance-gpu", "-mig"), ("--compute-mode", "-c"), ("--lock-gpu-clocks", "-lgc"),
                        ("--gpu-reset", "-r")):  # fmt: skip
        value = options.get(short, options.get(long))
        if value is not None:
            return change(sim, chosen, short, value)
    queries = {name: options[name] for name in ("--query-gpu", "--query-remapped-rows", "--query-compute-apps")
               if name in options}  # fmt: skip
    for name, fields in queries.items():
        layout = options.get("--format", "").split(",")
        if "csv" not in layout:
            raise Stop("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n", 2)
        names = [field.strip() for field in fields.split(",")]
        return (print_processes if name == "--query-compute-apps" else print_query)(sim, chosen, names, layout)
    if "-q" in options or "--query" in options:
        if "-x" not in options and "--xml-format" not in options:
            raise Stop("This simulation answers -q with -x only.\n", 3)
        return print_xml(sim, chosen)
    if "-L" in options or "--list-gpus" in options:
        return print_list(sim, chosen)
    if options or words:
        raise Stop("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n", 2)
    return print_table(sim)


def main(folder: str, arguments: List[str]) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
    try:
        return answer(folder, arguments)
    except Stop as stop:
        sys.stdout.write(stop.text)
        return stop.code
