# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modes that somebody left behind, the licence of a virtual GPU, and GPUs of one host that should be alike."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    Check,
    Gpu,
    Judged,
    check,
    fail,
    ok,
    warn,
)


@check("vgpu-license", "block", "vgpu_license")
def vgpu_license(gpu: Gpu) -> Judged:
    """A virtual GPU without its licence is fast for minutes and then slower by a factor of thousands (Azure/AKS
    #4868): a proof of a minute does not see it. A physical GPU under the driver of the vGPU software has reduced
    capability (NVIDIA, Client Licensing User Guide). What needs no licence says "not supported"."""
    if gpu["vgpu_license"] == "licensed":
        return ok("licensed")
    return fail(
        "unlicensed", "licensed", "ask facility", "is nvidia-gridd running, and does it reach its licence server?"
    )


@check("compute-mode", "block", "compute_mode")
def compute_mode(gpu: Gpu) -> Judged:
    """Prohibited: no CUDA program starts. Exclusive: one process a GPU, so that a second one gets "all CUDA-capable
    devices are busy or unavailable"."""
    mode = gpu["compute_mode"]
    if mode == "default":
        return ok("default")
    if mode == "prohibited":
        return fail(mode, "default", "fix configuration", "nvidia-smi -c DEFAULT")
    return warn(mode.replace("_", " "), "default", "fix configuration", "where nobody meant it: nvidia-smi -c DEFAULT")


@check("mig-mode", "block", "mig.current", "mig.pending")
def mig_mode(gpu: Gpu) -> Judged:
    """A GPU in slices (MIG) gives a process one slice. On some GPUs of a host and not on others, it was left behind. A
    change that is pending takes effect at the next reset."""
    current, pending = gpu["mig.current"], gpu["mig.pending"]
    name = {True: "on", False: "off"}
    if current != pending:
        return warn(f"MIG {name[current]}, {name[pending]} after a reset", f"MIG {name[current]}", "reset GPU")
    if not current:
        return ok("MIG off")
    if any(other.known("mig.current") is False for other in gpu.siblings()):
        return fail("MIG on", "MIG off, as on siblings", "fix configuration", "nvidia-smi -mig 0, then a reset")
    return warn("MIG on", "MIG off for training", "fix configuration", "a process gets one slice of the GPU")


@check("vbios-alike", "report", "vbios")
def vbios_alike(gpu: Gpu) -> Judged:
    """VBIOS of all GPUs of one model in a host (gcm: a warning): another one came with a swapped board."""
    own = gpu["vbios"]
    versions = [str(other["vbios"]) for other in gpu.siblings() if other.known("vbios")]
    usual = max(sorted(set(versions)), key=versions.count) if versions else own
    if own != usual and versions.count(usual) > versions.count(own) + 1:
        return warn(own, f"{usual}, as most siblings", "fix configuration", "update it with the vendor's tool")
    return ok(own)


@check("inforom", "report", "inforom_valid")
def inforom(gpu: Gpu) -> Judged:
    """The board's own memory of its settings and errors (infoROM): corrupt, ECC and remapped rows are not kept
    (DCGM_FR_CORRUPT_INFOROM). The GPU computes, and its vendor can write it anew."""
    if gpu["inforom_valid"]:
        return ok("valid")
    return warn(
        "the infoROM is corrupt", "valid", "drain and inspect", "the vendor's tool writes it anew, else replace"
    )


@check("gsp-firmware", "report", "gsp_firmware")
def gsp_firmware(gpu: Gpu) -> Judged:
    """The firmware of the GPU's own processor (GSP) comes with the driver, and is of its version; another one is a
    driver that was replaced by halves. Where it is off, the GPU or its owner has it so."""
    own, driver = str(gpu["gsp_firmware"]), str(gpu.observed["nvml"].get("driver_version") or "")
    if driver and own != driver:
        return warn(own, f"{driver}, as the driver", "reboot", "the driver was replaced while it was loaded")
    return ok(own)


CHECKS: t.Tuple[Check, ...] = (vgpu_license, compute_mode, mig_mode, vbios_alike, inforom, gsp_firmware)
