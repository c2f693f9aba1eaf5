# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the kernel of a host is set up for GPUs: the ``settings`` part of an Observation. Only files are read.

A file that this kernel does not have is ``not_supported``, one that this user may not read is None.
"""

from __future__ import annotations

import re
import struct
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.pci import DEVICES
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

NOT_SUPPORTED = "not_supported"
#: PCI Express: extended capabilities begin here, and access control services are this one.
EXTENDED, ACS = 0x100, 0x000D
#: A user other than root is given so many bytes of the configuration space.
UNPRIVILEGED = 64

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"
INFINIBAND = "/sys/class/infiniband"
DRIVER_PARAMETERS = "/proc/driver/nvidia/params"

Facts = t.Dict[str, t.Any]


def probe(runner: Runner, paths: t.Mapping[str, t.Sequence[str]]) -> Facts:
    """The ``settings`` part; ``paths`` are the bridges above each GPU (whole.pci_paths)."""
    balancing = runner.read("/proc/sys/kernel/numa_balancing")
    return {
        "command_line": runner.read("/proc/cmdline"),
        "numa_nodes": sum(1 for name in runner.listdir(NODES) if re.match(r"^node\d+$", name)),
        "numa_balancing": int(balancing) if balancing and balancing.isdigit() else NOT_SUPPORTED,
        "governors": governors(runner),
        "battery": any(name.startswith("BAT") for name in runner.listdir("/sys/class/power_supply")),
        "clocksource": runner.read(f"{CPUS[:-4]}/clocksource/clocksource0/current_clocksource") or NOT_SUPPORTED,
        "huge_pages": huge_pages(
            runner.read("/proc/meminfo") or "", runner.read("/sys/kernel/mm/transparent_hugepage/enabled") or ""
        ),
        "iommu": {address: _iommu(runner, address) for address in paths},
        "acs": {bridge: _acs(runner, bridge) for bridge in sorted({one for path in paths.values() for one in path})},
        "aer": {address: _aer(runner, address) for address in paths},
        "modules": [
            name
            for name in ("nouveau", "nvidia_peermem", "nv_peer_mem", "ib_core")
            if runner.exists(f"/sys/module/{name}")
        ],
        "driver_parameters": driver_parameters(runner.read(DRIVER_PARAMETERS)),
        "adapters": [_adapter(runner, name) for name in runner.listdir(INFINIBAND)],
    }


def governors(runner: Runner) -> t.Union[str, t.Dict[str, int]]:
    """How many CPUs have which governor of their clock; not supported where the machine has none (virtual ones)."""
    counts: t.Dict[str, int] = {}
    for name in runner.listdir(CPUS):
        if re.match(r"^cpu\d+$", name):
            governor = runner.read(f"{CPUS}/{name}/cpufreq/scaling_governor")
            if governor:
                counts[governor] = counts.get(governor, 0) + 1
    return counts or NOT_SUPPORTED


def huge_pages(meminfo: str, transparent: str) -> Facts:
    """KiB of memory, of it reserved as huge pages that nobody uses, and which pages become huge by themselves."""
    values = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+)", meminfo, re.MULTILINE)}
    chosen = re.search(r"\[(\w+)\]", transparent)
    return {
        "memory_kib": values.get("MemTotal"),
        "reserved_kib": values.get("HugePages_Free", 0) * values.get("Hugepagesize", 0),
        "transparent": chosen.group(1) if chosen else NOT_SUPPORTED,
    }


def driver_parameters(text: t.Optional[str]) -> t.Dict[str, str]:
    """``Name: value`` a line, as the loaded driver has them; none where it is not loaded."""
    return dict(re.findall(r"^(\w+): *(.*)$", text or "", re.MULTILINE))


def _iommu(runner: Runner, address: str) -> t.Optional[str]:
    """``identity`` (passed through), ``DMA``, ``DMA-FQ`` (translated), or ``none`` where nothing translates."""
    if not runner.exists(f"{DEVICES}/{address}/iommu_group"):
        return "none"
    return runner.read(f"{DEVICES}/{address}/iommu_group/type")


def _acs(runner: Runner, address: str) -> t.Union[str, int, None]:
    """The access control bits that are on (ACSCtl)."""
    config = runner.read_bytes(f"{DEVICES}/{address}/config", 4096)
    if config is None or len(config) <= UNPRIVILEGED:
        return None
    return access_control(config)


def access_control(config: bytes) -> t.Union[str, int]:
    """ACSCtl of a whole configuration space."""
    offset = EXTENDED
    for _capability in range(64):
        if offset < EXTENDED or offset + 8 > len(config):
            break
        (header,) = struct.unpack_from("<I", config, offset)
        if header & 0xFFFF == ACS:
            return int(struct.unpack_from("<H", config, offset + 6)[0])
        offset = header >> 20
    return NOT_SUPPORTED


def _aer(runner: Runner, address: str) -> t.Dict[str, t.Optional[int]]:
    """Errors of the PCIe link since the host was started; None where the kernel does not count them."""
    found: t.Dict[str, t.Optional[int]] = {}
    for name in ("nonfatal", "fatal"):
        total = re.search(
            r"^TOTAL_ERR_\w+ (\d+)", runner.read(f"{DEVICES}/{address}/aer_dev_{name}") or "", re.MULTILINE
        )
        found[name] = int(total.group(1)) if total else None
    return found


def _adapter(runner: Runner, name: str) -> Facts:
    folder = f"{INFINIBAND}/{name}"
    ports = []
    for port in runner.listdir(f"{folder}/ports"):
        said = {key: runner.read(f"{folder}/ports/{port}/{key}") or "" for key in ("state", "rate", "link_layer")}
        # "4: ACTIVE", "400 Gb/sec (4X NDR)"
        rate = re.match(r"^([\d.]+) Gb/sec", said["rate"])
        ports.append(
            {
                "port": port,
                "state": said["state"].partition(":")[2].strip().lower() or None,
                "gbps": float(rate.group(1)) if rate else None,
                "link_layer": said["link_layer"],
            }
        )
    return {"name": name, "type": runner.read(f"{folder}/hca_type"), "firmware": runner.read(f"{folder}/fw_ver"),
            "ports": ports}  # fmt: skip
