# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of the kernel log beside Xids: what they mean, and the checks that tell them. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import xid
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import Judged, Observation, ok
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.kernel_events import NO_LOG, by_subject, since
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import About, HostCheck, host_check


class Said(t.NamedTuple):
    """What a message of kernel_lines.MESSAGES means."""

    check: str
    code: xid.Code


#: Messages by their name. Sources: leptonai/gpud @4a8de33 (its kmsg matchers), NVIDIA's open kernel modules, Linux'
#: AER, EDAC and hung task reports, facebookresearch/gcm.
MESSAGES: t.Dict[str, Said] = {
    "rm-init-failed": Said(
        "driver-messages", xid.Code("the driver could not start the GPU", "fail", "drain and inspect")
    ),
    "open-module-required": Said(
        "driver-messages",
        xid.Code("the GPU needs the open kernel modules", "fail", "fix configuration"),
    ),
    "legacy-driver-required": Said(
        "driver-messages", xid.Code("the driver is too new for the GPU", "fail", "fix configuration")
    ),
    "module-rejected": Said(
        "driver-messages",
        xid.Code("the kernel refused a module's signature", "warn", "fix configuration", reason="enroll its key"),
    ),
    "links-not-detected": Said(
        "driver-messages", xid.Code("NVLinks were not detected", "warn", "reset GPU", reason="nvlink-links tells")
    ),
    "aer-fatal": Said("pcie-errors", xid.Code("a fatal PCIe error", "warn", "drain and inspect")),
    "aer-nonfatal": Said("pcie-errors", xid.Code("an uncorrected PCIe error", "warn", "drain and inspect")),
    "aer-corrected": Said("pcie-errors", xid.Code("corrected PCIe errors", "ok")),
    "link-down": Said("pcie-errors", xid.Code("a PCIe slot lost its card", "warn", "drain and inspect")),
    "memory-uncorrected": Said(
        "machine-checks", xid.Code("an uncorrected hardware error", "warn", "drain and inspect")
    ),
    "machine-check": Said("machine-checks", xid.Code("a machine check", "warn", "drain and inspect")),
    "memory-corrected": Said("machine-checks", xid.Code("corrected memory errors", "ok")),
    "task-hung": Said(
        "kernel-hangs", xid.Code("a task waits in the kernel", "warn", "none", reason="of a GPU's program: reboot")
    ),
    "cpu-stuck": Said("kernel-hangs", xid.Code("a CPU was stuck in the kernel", "warn", "none")),
    "nccl-crashed": Said("job-crashes", xid.Code("a program crashed in NCCL", "warn", "restart job")),
    "peermem": Said("job-crashes", xid.Code("nvidia-peermem lost a program's memory", "warn", "restart job")),
    "nic-power": Said(
        "nic-messages", xid.Code("a network card gets too little power from its slot", "warn", "ask facility")
    ),
    "nic-heat": Said("nic-messages", xid.Code("a network module is too hot", "warn", "ask facility")),
}


def _messages(observed: Observation, check: str) -> t.Union[Judged, t.List[About]]:
    log = observed["kernel_log"]
    if log["source"] == "none":
        return NO_LOG
    events = [
        event
        for event in log["events"]
        if event["kind"] == "message" and event["name"] in MESSAGES and MESSAGES[event["name"]].check == check
    ]
    return by_subject(events, lambda event: MESSAGES[event["name"]].code, False, observed) or ok(f"none {since(log)}")


@host_check("driver-messages", "block", "kernel_log")
def driver_messages(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """What the driver says where it cannot use a GPU: it does not start (RmInitAdapter failed), it needs the other
    flavour of the module or an older branch; or the kernel refused the module. nvidia-smi then finds no devices."""
    return _messages(observed, "driver-messages")


@host_check("pcie-errors", "report", "kernel_log")
def pcie_errors(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Uncorrected PCIe errors (AER) and slots that lost their card; before Xid 79 they point to signal, power or
    seating. Corrected ones are how a link works, and nothing follows."""
    return _messages(observed, "pcie-errors")


@host_check("machine-checks", "report", "kernel_log")
def machine_checks(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Uncorrected errors of memory or CPU (EDAC, MCE, firmware). Corrected ones are counted, and nothing follows."""
    return _messages(observed, "machine-checks")


@host_check("kernel-hangs", "report", "kernel_log")
def kernel_hangs(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Tasks that wait in the kernel for minutes, CPUs that were stuck (gpud, gcm). Storage does it as often as GPUs."""
    return _messages(observed, "kernel-hangs")


@host_check("job-crashes", "report", "kernel_log")
def job_crashes(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Programs that crashed in NCCL, or whose memory nvidia-peermem lost (gpud)."""
    return _messages(observed, "job-crashes")


@host_check("nic-messages", "report", "kernel_log")
def nic_messages(observed: Observation) -> t.Union[Judged, t.List[About]]:
    """Network cards that get too little power from their slot, and modules that are too hot (gpud)."""
    return _messages(observed, "nic-messages")


CHECKS: t.Tuple[HostCheck, ...] = (
    driver_messages,
    pcie_errors,
    machine_checks,
    kernel_hangs,
    job_crashes,
    nic_messages,
)
