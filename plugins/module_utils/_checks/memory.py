# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory errors of a GPU: ECC, row remapping, retired pages, and what the driver itself wants done.

Sources by name: DCGM and its limits (NVIDIA/DCGM, dcgm_errors and dcgm_health), gpud (leptonai/gpud), gcm
(facebookresearch/gcm), Azure (azurehpc-health-checks).
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    ABSENT,
    NOT_SUPPORTED,
    Check,
    Gpu,
    Judged,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)

#: DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE.
ROWS_MOST = 512
#: DCGM's limit of all retired pages, and of those by double-bit errors.
PAGES_MOST = 63
PAGES_DOUBLE = 15
#: Azure's limits of corrected errors since the driver was loaded.
CORRECTED_DRAM = 20_000_000
CORRECTED_SRAM = 10_000
#: More aggregate uncorrected SRAM errors than this are usually a case for the vendor (S. Bekman, ML Engineering).
SRAM_LIFETIME = 4
#: Cards that leave the factory with ECC off.
NOT_DATACENTER = re.compile(r"geforce|\brtx\b|quadro|titan|jetson|orin|thor", re.IGNORECASE)

#: What the driver wants (gpu_recovery_action): our action, and what it means.
RECOVERY = {
    "reset": ("reset GPU", "the GPU answers wrongly until it is reset"),
    "bus_reset": ("reset GPU", "the GPU needs a reset by its bridge"),
    "drain_and_reset": ("reset GPU", "running work may end; new work must wait for a reset"),
    "reboot": ("reboot", "a reset does not help this GPU"),
    "system_reboot": ("reboot", "a reset does not help this GPU"),
    "drain_p2p": ("drain and inspect", "its peer traffic must stop"),
    "recover_imex_domain": ("drain and inspect", "the IMEX domain of the rack must be recovered"),
}


def _sum(gpu: Gpu, kind: str, name: str) -> t.Optional[int]:
    """SRAM and DRAM together, None where neither is a number."""
    values = [gpu.known(f"ecc.{kind}.{memory}_{name}") for memory in ("sram", "dram")]
    numbers = [value for value in values if isinstance(value, int)]
    return sum(numbers) if numbers else None


@check("ecc-uncorrected", "block")
def ecc_uncorrected(gpu: Gpu) -> Judged:
    """Uncorrected ECC errors since the last reset. More than 0 (gcm, DCGM): data was lost, and a job that used it ended
    with cudaErrorECCUncorrectable. Counters that read N/A while ECC is on, as after Xid 48 with a pending remap, are
    unknown."""
    paths = ("ecc.volatile.sram_uncorrected", "ecc.volatile.dram_uncorrected")
    values = {path.rpartition(".")[2].split("_")[0].upper(): gpu[path] for path in paths}
    if all(value in (ABSENT, NOT_SUPPORTED) for value in values.values()) and gpu["ecc.current"] not in (True, None):
        return skip("ECC is off or not there, so nothing is counted")
    counted = {name: value for name, value in values.items() if isinstance(value, int)}
    found = ", ".join(f"{name} {value}" for name, value in counted.items())
    if any(counted.values()):
        return fail(
            f"uncorrected errors since the last reset: {found}", "0", "reset GPU", "data in its memory was lost"
        )
    if not counted or None in values.values():
        return unknown(
            "the ECC counters cannot be read", "counters, as this GPU has ECC", "reset GPU", "so it is after Xid 48"
        )
    return ok("no uncorrected error")


@check("ecc-corrected", "report")
def ecc_corrected(gpu: Gpu) -> Judged:
    """Corrected ECC errors since the driver was loaded: over 20,000,000 in DRAM or 10,000 in SRAM (Azure). A count, not
    a rate: it wakes nobody."""
    counts = {name: gpu.known(f"ecc.volatile.{name}_corrected") for name in ("dram", "sram")}
    if not any(isinstance(value, int) for value in counts.values()):
        return skip("corrected errors are not counted")
    if (counts["dram"] or 0) > CORRECTED_DRAM or (counts["sram"] or 0) > CORRECTED_SRAM:
        return warn(
            f"corrected errors: DRAM {counts['dram']}, SRAM {counts['sram']}",
            f"at most {CORRECTED_DRAM} and {CORRECTED_SRAM}",
            reason="watch it; prove it with level standard at the next idle slot",
        )
    return ok("few corrected errors")


@check("ecc-sram-lifetime", "report", "ecc.aggregate.sram_uncorrected")
def ecc_sram_lifetime(gpu: Gpu) -> Judged:
    """Uncorrected SRAM errors of the GPU's life: over 4 (S. Bekman, ML Engineering) it is worth a case with the vendor.
    A lifetime counter wakes nobody; the driver's own limit is ecc-sram-threshold."""
    count = gpu["ecc.aggregate.sram_uncorrected"]
    if count > SRAM_LIFETIME:
        return warn(f"{count} uncorrected SRAM errors in its life", f"at most {SRAM_LIFETIME}", reason="ask the vendor")
    return ok(f"{count} uncorrected SRAM errors in its life")


@check("ecc-sram-threshold", "block", "ecc.sram_threshold_exceeded")
def ecc_sram_threshold(gpu: Gpu) -> Judged:
    """The driver counts more SRAM errors than NVIDIA allows, its criterion for a replacement
    (DCGM_FR_SRAM_THRESHOLD)."""
    if gpu["ecc.sram_threshold_exceeded"]:
        return fail("SRAM threshold exceeded", "not exceeded", "replace", "NVIDIA's criterion for a replacement")
    return ok("below the SRAM threshold")


@check("memory-unrepairable", "block", "ecc.unrepairable_memory")
def memory_unrepairable(gpu: Gpu) -> Judged:
    """Memory that cannot be repaired (driver 595 and newer; DCGM_FR_FAULTY_MEMORY)."""
    if gpu["ecc.unrepairable_memory"]:
        return fail("unrepairable memory", "none", "replace", "its spare memory is used up")
    return ok("no unrepairable memory")


@check("memory-repair-pending", "block")
def memory_repair_pending(gpu: Gpu) -> Judged:
    """A repair of a channel or a TPC waits for a reset (AWS); until then the fault is there."""
    parts = {name: gpu[f"ecc.{name}_repair_pending"] for name in ("channel", "tpc")}
    pending = [name for name, value in parts.items() if value is True]
    if pending:
        return fail(f"{' and '.join(pending)} repair pending", "no repair pending", "reset GPU", "a reset repairs it")
    if None in parts.values():
        return unknown("repairs that are pending cannot be read", "yes or no", "drain and inspect")
    if all(value in (ABSENT, NOT_SUPPORTED) for value in parts.values()):
        return skip("this GPU or its driver does not tell of repairs")
    return ok("no repair pending")


@check("ecc-mode", "block", "ecc.current", "ecc.pending")
def ecc_mode(gpu: Gpu) -> Judged:
    """ECC off hides memory faults and disables row remapping. Cards that leave the factory with ECC off (GeForce, RTX)
    and virtual GPUs, whose host decides, are not asked. A pending change takes effect at the next reset."""
    current, pending = gpu["ecc.current"], gpu["ecc.pending"]
    if NOT_DATACENTER.search(str(gpu.known("name") or "")):
        return skip("a card that leaves the factory with ECC off")
    if gpu["virtualization_mode"] == "vgpu":
        return skip("the host of a virtual GPU decides about ECC")
    if not current:
        expected = "ECC on, as this GPU left the factory"
        if pending:
            return fail("ECC is off until the next reset", expected, "reset GPU", "memory faults are not seen")
        return fail("ECC is off", expected, "fix configuration", "memory faults are not seen; nvidia-smi -e 1, reset")
    if not pending:
        return warn("ECC goes off at the next reset", "ECC on", "fix configuration", "nvidia-smi -e 1 keeps it on")
    return ok("ECC on")


@check("row-remap-pending", "block", "remapped_rows.pending")
def row_remap_pending(gpu: Gpu) -> Judged:
    """A memory row is to be replaced by a spare one at the next reset (gpud, gcm, Azure; DCGM_FR_PENDING_ROW_REMAP).
    Until then new work may use the bad row."""
    if gpu["remapped_rows.pending"]:
        return fail("row remap pending", "no remap pending", "reset GPU", "a reset puts the spare row in place")
    return ok("no remap pending")


@check("row-remap-failure", "block", "remapped_rows.failure")
def row_remap_failure(gpu: Gpu) -> Judged:
    """A row could not be replaced: the bank has no spare one left (all tools: replace)."""
    if gpu["remapped_rows.failure"]:
        return fail("row remap failed", "no failure", "replace", "its spare rows are used up")
    return ok("no failed remap")


@check("row-remap-count", "block", "remapped_rows.uncorrected")
def row_remap_count(gpu: Gpu) -> Judged:
    """Rows replaced after uncorrected errors: 512 or more (DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE)."""
    count = gpu["remapped_rows.uncorrected"]
    if count >= ROWS_MOST:
        return fail(f"{count} rows replaced after uncorrected errors", f"under {ROWS_MOST}", "replace")
    return ok(f"{count} rows replaced after uncorrected errors")


@check("row-remap-banks", "report", "remapped_rows.banks.low", "remapped_rows.banks.none")
def row_remap_banks(gpu: Gpu) -> Judged:
    """Banks of memory with few or no spare rows left: the next bad row there cannot be replaced (Xid 64). A healthy GPU
    has all its banks at the maximum. An early warning, so that it wakes nobody."""
    low, empty = gpu["remapped_rows.banks.low"], gpu["remapped_rows.banks.none"]
    if low or empty:
        return warn(
            f"{low} banks with few spare rows, {empty} with none", "0", reason="plan its replacement; ask the vendor"
        )
    return ok("spare rows in every bank")


@check("retired-pages-pending", "block", "retired_pages.pending")
def retired_pages_pending(gpu: Gpu) -> Judged:
    """A page is to be retired at the next reset (GPUs before Ampere; gcm: critical)."""
    if gpu["retired_pages.pending"]:
        return fail("page retirement pending", "none pending", "reset GPU", "a reset takes the page out of use")
    return ok("no retirement pending")


@check("retired-pages-count", "block", "retired_pages.single_bit", "retired_pages.double_bit")
def retired_pages_count(gpu: Gpu) -> Judged:
    """Pages out of use (GPUs before Ampere): 63 or more (DCGM; the GPU has room for 64); over 15 by double-bit errors
    are watched (DCGM asks besides for more than one in a week)."""
    single, double = gpu["retired_pages.single_bit"], gpu["retired_pages.double_bit"]
    found = f"{single + double} retired pages"
    if single + double >= PAGES_MOST:
        return fail(found, f"under {PAGES_MOST}", "replace", "it has room for 64")
    if double > PAGES_DOUBLE:
        return warn(f"{found}, {double} of them by double-bit errors", f"at most {PAGES_DOUBLE}", reason="watch it")
    return ok(found)


@check("gpu-recovery-action", "block", "recovery_action")
def gpu_recovery_action(gpu: Gpu) -> Judged:
    """What the driver itself wants done (driver 565 and newer; DCGM_FR_GPU_RECOVERY_*). It stays after the Xid has left
    the kernel log, while every counter may read 0."""
    wanted = gpu["recovery_action"]
    if wanted == "none":
        return ok("the driver wants nothing done")
    action, reason = RECOVERY.get(wanted, ("drain and inspect", "an action that this version does not know"))
    return fail(f"the driver wants {wanted.replace('_', ' ')}", "none", action, reason)


CHECKS: t.Tuple[Check, ...] = (
    gpu_recovery_action,
    ecc_uncorrected,
    ecc_sram_threshold,
    memory_unrepairable,
    memory_repair_pending,
    row_remap_pending,
    row_remap_failure,
    row_remap_count,
    row_remap_banks,
    retired_pages_pending,
    retired_pages_count,
    ecc_mode,
    ecc_corrected,
    ecc_sram_lifetime,
)
