# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the kernel and the buses of a host are set up. All of it only reports: a host trains with each, slower or hung.

What a virtual machine's owner cannot change, and what saves a laptop's battery, is not asked there.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    Gpu,
    Judged,
    Observation,
    ok,
    skip,
    unknown,
    warn,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import (
    About,
    HostCheck,
    gpu_addresses,
    host_check,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Subject

#: Bits of ACSCtl with which traffic between devices goes up to the root (PCI Express, access control services).
ACS_BITS = {0x1: "SrcValid", 0x4: "ReqRedir", 0x8: "CmpltRedir"}
#: Share of the memory that may lie in huge pages which nobody uses: ours.
RESERVED_MOST = 0.25
#: Words of the kernel's command line that take something away, left behind after a search for a fault
#: (Linux, admin-guide/kernel-parameters).
LEFT_BEHIND = {
    "maxcpus": "CPUs are left out",
    "nr_cpus": "CPUs are left out",
    "nosmp": "all CPUs but one are left out",
    "mem": "memory is left out",
    "nolapic": "interrupts are slow",
    "noapic": "interrupts are slow",
    "slub_debug": "every allocation is checked",
    "kmemleak": "every allocation is watched",
}

_VIRTUAL = "a virtual machine's is its host's"


def _bare(observed: Observation) -> bool:
    return bool(observed["host"]["virtualization"] == "none")


def _alone(observed: Observation) -> bool:
    """One GPU, and no adapter that would reach its memory."""
    return len(gpu_addresses(observed)) < 2 and not observed["settings"].get("adapters")


@host_check("acs", "report", "settings.acs")
def acs(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Access control services on bridges above GPUs (gpud: any SrcValid+ on bare metal): traffic between two GPUs, or a
    GPU and a network card, goes up to the root and back, is slow, or hangs (NVIDIA/nccl #2079, #667). Virtual machines
    need it on, so that there it is not asked."""
    if not _bare(observed):
        return skip("virtual machines need access control")
    if _alone(observed):
        return skip("one GPU has no peer")
    bridges: t.Mapping[str, t.Any] = observed["settings"]["acs"]
    on = {address: bits for address, bits in bridges.items() if isinstance(bits, int) and bits & sum(ACS_BITS)}
    if on:
        first = next(iter(on))
        names = " ".join(f"{name}+" for bit, name in ACS_BITS.items() if on[first] & bit)
        others = f" and {len(on) - 1} more" if len(on) > 1 else ""
        reason = "off in the BIOS, or by setpci at each start: ECAP_ACS+6.w=0000"
        return warn(f"{names} on the bridge {first}{others}", "off above GPUs", "fix configuration", reason)
    if None in bridges.values():
        return unknown("the bridges' configuration cannot be read", "access control off", "none", "root can read it")
    if not bridges:
        return skip("no bridge above the GPUs is shown")
    return ok(f"off on {len(bridges)} bridges")


@host_check("iommu", "report", "settings.iommu")
def iommu(observed: Observation) -> Judged:
    """Whether the IOMMU translates what GPUs read and write: peer traffic is slow, or hangs on some boards (NVIDIA/nccl
    #257, #631). Off, or passed through (iommu=pt), is the usual setting on bare metal."""
    if not _bare(observed):
        return skip(_VIRTUAL)
    if _alone(observed):
        return skip("one GPU has no peer")
    kinds = observed["settings"]["iommu"]
    translated = [address for address, kind in kinds.items() if str(kind).startswith("DMA")]
    if translated:
        return warn(
            f"translates for {len(translated)} of {len(kinds)} GPUs ({kinds[translated[0]]})",
            "off, or passed through",
            "fix configuration",
            "iommu=pt on the kernel's command line (iommu.passthrough=1 on ARM)",
        )
    if None in kinds.values():
        return unknown("the kind of a group cannot be read", "off, or passed through", "none")
    return ok(", ".join(sorted(set(kinds.values()))) or "no GPU on the bus")


@host_check("numa-balancing", "report", "settings.numa_balancing", "settings.numa_nodes")
def numa_balancing(observed: Observation) -> Judged:
    """Automatic NUMA balancing unmaps memory to see who uses it: pinned memory of a GPU's programs does not move, and
    they wait (Stas Bekman's ml-engineering: 0). With one node it does nothing."""
    if not _bare(observed):
        return skip(_VIRTUAL)
    if observed["settings"]["numa_nodes"] < 2:
        return skip("one NUMA node")
    if observed["settings"]["numa_balancing"]:
        return warn("on", "off", "fix configuration", "sysctl kernel.numa_balancing=0")
    return ok("off")


@host_check("cpu-governor", "report", "settings.governors")
def cpu_governor(observed: Observation) -> Judged:
    """The CPUs' clock under load follows too slowly for the short work between kernels with a governor other than
    performance (gcm: all CPUs performance). A machine with a battery saves it."""
    if not _bare(observed):
        return skip(_VIRTUAL)
    if observed["settings"]["battery"]:
        return skip("it has a battery to save")
    counts: t.Mapping[str, int] = observed["settings"]["governors"]
    others = {name: count for name, count in counts.items() if name != "performance"}
    if others:
        told = ", ".join(f"{name} on {count} CPUs" for name, count in sorted(others.items()))
        return warn(told, "performance on all", "fix configuration", "cpupower frequency-set -g performance")
    return ok("performance")


@host_check("huge-pages", "report", "settings.huge_pages.memory_kib")
def huge_pages(observed: Observation) -> Judged:
    """Memory that is reserved as huge pages and used by nobody is missing to data loaders: more than a quarter of all
    (ours). Which pages become huge by themselves is told."""
    pages = observed["settings"]["huge_pages"]
    share = pages["reserved_kib"] / max(1, pages["memory_kib"])
    if share > RESERVED_MOST:
        return warn(
            f"{pages['reserved_kib'] >> 20} of {pages['memory_kib'] >> 20} GiB are huge pages that nobody uses",
            f"at most {RESERVED_MOST:.0%}",
            "fix configuration",
            "vm.nr_hugepages, or hugepages= on the kernel's command line",
        )
    return ok(f"transparent: {str(pages['transparent']).replace('_', ' ')}")


@host_check("clock-source", "report", "settings.clocksource")
def clock_source(observed: Observation) -> Judged:
    """The clock that programs read thousands of times a second: tsc on x86 (gcm); another one costs a system call each
    time, and says that the kernel found the TSC unstable. Virtual machines have their own."""
    if not _bare(observed) or observed["host"].get("arch") != "x86_64":
        return skip("asked on x86 without virtualization")
    source = observed["settings"]["clocksource"]
    if source != "tsc":
        return warn(source, "tsc", "drain and inspect", "the kernel log says why the TSC was given up")
    return ok("tsc")


@host_check("kernel-command-line", "report", "settings.command_line")
def kernel_command_line(observed: Observation) -> Judged:
    """Words on the kernel's command line that leave CPUs or memory out, or slow everything down to find a fault. What
    concerns GPUs (iommu, pci, nouveau, NVreg_...) is told."""
    words = [word for word in observed["settings"]["command_line"].split(" -- ", 1)[0].split() if word]
    names = {word.split("=", 1)[0]: word for word in words}
    bad = [f"{names[name]} ({why})" for name, why in LEFT_BEHIND.items() if name in names]
    if bad:
        return warn("; ".join(bad), "nothing left behind", "fix configuration", "the boot loader's settings")
    told = [
        word
        for word in words
        if re.match(r"(?:\w+[._])?iommu|pci=|nouveau|nvidia|transparent_hugepage|mitigations", word)
    ]
    return ok(" ".join(told) or "nothing that concerns GPUs")


@host_check("nouveau", "report", "settings.modules")
def nouveau(observed: Observation) -> Judged:
    """The kernel's own driver for NVIDIA's GPUs is loaded (DCGM_FR_DENYLISTED_DRIVER): it takes GPUs at the next start
    that the driver then cannot have."""
    if "nouveau" in observed["settings"]["modules"]:
        return warn(
            "nouveau is loaded", "it is not", "fix configuration", "deny it in modprobe.d, and in the initramfs"
        )
    return ok("not loaded")


@host_check("gpu-numa", "report", "settings.numa_nodes")
def gpu_numa(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """A GPU of which the firmware does not say at which NUMA node it is (-1): programs are placed at random beside it.
    Asked on bare metal with several nodes."""
    if not _bare(observed):
        return skip(_VIRTUAL)
    if observed["settings"]["numa_nodes"] < 2:
        return skip("one NUMA node")
    devices = [device for device in observed["pci"] if device["role"] == "gpu"]
    bad = [device["address"] for device in devices if device.get("numa_node") is None]
    if bad and len(bad) == len(devices):
        return warn("no GPU has a NUMA node", "a node for each", "fix configuration", "the BIOS (SRAT, NPS) gives none")
    reason = "the BIOS gives it none"
    return [
        About(
            _subject(address, observed), warn(f"GPU at {address}: no NUMA node", "a node", "fix configuration", reason)
        )
        for address in bad
    ] or ok("each GPU has its node")


@host_check("pcie-aer", "report", "settings.aer")
def pcie_aer(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Uncorrected errors of a GPU's PCIe link since the host was started, as the kernel counts them (AER)."""
    counted: t.Mapping[str, t.Mapping[str, t.Any]] = observed["settings"]["aer"]
    if not any(value is not None for counts in counted.values() for value in counts.values()):
        return skip("this kernel does not count them")
    bad = {address: counts for address, counts in counted.items() if any(counts.values())}
    return [
        About(
            _subject(address, observed),
            warn(
                f"GPU at {address}: {counts['fatal'] or 0} fatal, {counts['nonfatal'] or 0} others",
                "none",
                "drain and inspect",
                "signal, seating or riser",
            ),
            {"counts": dict(counts)},
        )
        for address, counts in bad.items()
    ] or ok("none")


def _subject(address: str, observed: Observation) -> Subject:
    for facts in observed["gpus"]:
        if facts.get("pci_address") == address:
            return Gpu(facts, observed).subject
    return Subject("gpu", address)


CHECKS: t.Tuple[HostCheck, ...] = (
    acs,
    iommu,
    numa_balancing,
    cpu_governor,
    huge_pages,
    clock_source,
    kernel_command_line,
    nouveau,
    gpu_numa,
    pcie_aer,
)
