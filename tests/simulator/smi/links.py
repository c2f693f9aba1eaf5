# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi topo and nvlink."""

from typing import List

from smi.simulation import Simulation, print_lost


def print_topology(sim: Simulation, peer: str) -> int:
    columns = [f"GPU{index}" for index in range(len(sim.gpus))]
    if peer:
        print(" \t" + "\t".join(columns) + "\t")
        for gpu, column in zip(sim.gpus, columns):
            cells = ["X" if gpu == other else _peer(sim, gpu, other, peer) for other in sim.gpus]
            print(f" {column}\t" + "\t".join(cells) + "\t")
        print(
            "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"
            "  GNS  = GPU not supported\n  TNS  = Topology not supported\n  NS   = Not supported\n  U    = Unknown"
        )
        return 0
    nics = [key.split("/")[2] for key, _value in sim.keys if key.startswith("sim/nic/") and key.endswith("/address")]
    names = [f"NIC{nic}" for nic in nics]
    print("\t" + "\t".join([*columns, *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]))
    for gpu, column in zip(sim.gpus, columns):
        cells = [" X " if gpu == other else _level(sim, gpu, other) for other in sim.gpus]
        cells += [sim.text(gpu, f"sim/nic_topology/{nic}")[0] for nic in nics]
        node = sim.text(gpu, "sim/numa_node")[0]
        cells += [
            sim.text(gpu, "sim/cpus")[0],
            "N/A" if node == "-1" else node,
            "",
            sim.text(gpu, "sim/gpu_numa_node")[0],
        ]
        print(f"{column}\t" + "\t".join(cells))
    for nic, name in zip(nics, names):
        cells = [sim.text(gpu, f"sim/nic_topology/{nic}")[0] for gpu in sim.gpus]
        cells += [" X " if nic == other else _between(sim, nic, other) for other in nics]
        print(f"{name}\t" + "\t".join(cells) + "\t\t\t")
    print(
        "\nLegend:\n\n  X    = Self\n  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA "
        "nodes (e.g., QPI/UPI)\n  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host "
        "Bridges within a NUMA node\n  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically "
        "the CPU)\n  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)\n"
        "  PIX  = Connection traversing at most a single PCIe bridge\n"
        "  NV#  = Connection traversing a bonded set of # NVLinks"
    )
    if nics:
        print("\nNIC Legend:\n\n" + "\n".join(f"  NIC{nic}: mlx5_{nic}" for nic in nics))
    return 0


def _between(sim: Simulation, nic: str, other: str) -> str:
    """How two adapters meet: by the switch above them, the NUMA node, or the whole system."""
    switches = [sim.raw(f"sim/nic/{one}/pcie_switch") for one in (nic, other)]
    if switches[0] == switches[1] != "N/A":
        return "PXB"
    return "NODE" if sim.raw(f"sim/nic/{nic}/numa_node") == sim.raw(f"sim/nic/{other}/numa_node") else "SYS"


def _peer(sim: Simulation, gpu: int, other: int, peer: str) -> str:
    return sim.text(gpu, f"sim/{'p2p_nvlink' if peer == 'n' else 'p2p'}/{other}")[0]


def _level(sim: Simulation, gpu: int, other: int) -> str:
    if sim.text(gpu, f"sim/p2p_nvlink/{other}")[0] == "OK":
        active = [link for link in range(_links(sim, gpu)) if sim.text(gpu, f"sim/nvlink/{link}/state")[0] == "Active"]
        if active:
            return f"NV{len(active)}"
    return sim.text(gpu, f"sim/topology/{other}")[0]


def _links(sim: Simulation, gpu: int) -> int:
    text, code = sim.text(gpu, "sim/nvlink/count")
    return int(text) if not code else 0


def print_nvlink(sim: Simulation, chosen: List[int], what: str) -> int:
    for index, gpu in enumerate(sim.gpus):
        if gpu not in chosen:
            continue
        lost = sim.lost(gpu)
        if lost:
            return print_lost(sim, gpu, lost)
        links = range(_links(sim, gpu))
        print(f"GPU {index}: {sim.text(gpu, 'product_name')[0]} (UUID: {sim.text(gpu, 'uuid')[0]})")
        states = {link: sim.text(gpu, f"sim/nvlink/{link}/state")[0] for link in links}
        if what == "status" and links and "Active" not in states.values():
            print("NVML: Unable to retrieve NVLink information as all links are inActive")
            continue
        for link in links:
            if what == "status":
                speed = int(sim.text(gpu, f"sim/nvlink/{link}/speed")[0]) / 1000
                shown = f"{speed:.3f}".rstrip("0").rstrip(".") + " GB/s" if states[link] == "Active" else "<inactive>"
                print(f"\t Link {link}: {shown}")
            else:
                for name, title in (
                    ("replay", "Replay Errors"),
                    ("recovery", "Recovery Errors"),
                    ("crc_flit", "CRC Errors"),
                ):
                    text, code = sim.text(gpu, f"sim/nvlink/{link}/{name}")
                    if not code:
                        print(f"\t Link {link}: {title}: {text}")
    return 0
