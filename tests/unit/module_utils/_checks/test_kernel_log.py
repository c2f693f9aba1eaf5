# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What follows from lines of the kernel log, on a board of eight GPUs behind four switches."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import kernel_messages, nvlink5, registry, xid
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import HostCheck
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import kernel_lines

Facts = t.Dict[str, t.Any]

LOG: Facts = {"source": "kmsg", "error": "", "since": "driver load", "complete": True, "lost": "", "events": []}


def address(index: int) -> str:
    return f"0000:{0x10 + index:02x}:00.0"


def host(*lines: str, driver: str = "570.124.06", recovery: t.Any = "absent", **log: t.Any) -> Facts:
    """Eight GPUs, two below each switch (0000:a0:00.0 ...), all below one port of the root."""
    collector = kernel_lines.Collector()
    for second, line in enumerate(lines):
        collector.feed(second * 1_000_000, line)
    gpus = [
        {"index": index, "uuid": f"GPU-{index}", "pci_address": address(index), "state": "ok", "name": "H100"}
        for index in range(8)
    ]
    for one in gpus:
        if recovery != "absent":
            one["recovery_action"] = recovery
    return {
        "host": {"virtualization": "none"},
        "driver": {"version": driver},
        "pci": [{"role": "gpu", "address": address(index)} for index in range(8)]
        + [{"role": "nvswitch", "address": "0000:05:00.0"}],
        "pci_paths": {address(index): ["0000:0f:01.0", f"0000:a{index // 2}:00.0"] for index in range(8)},
        "gpus": gpus,
        "nvml": {},
        "kernel_log": {**LOG, "events": collector.events, **log},
    }


def loud(observed: Facts) -> t.List[_finding.Finding]:
    found = []
    for check in registry.CHECKS:
        if isinstance(check, HostCheck) and check.needs == ("kernel_log",):
            found += [one for one in check.findings(observed) if one.state not in ("ok", "not_applicable")]
    return found


def line(code: int, rest: str = "pid=1, name=x", index: int = 3) -> str:
    return f"NVRM: Xid (PCI:0000:{0x10 + index:02x}:00): {code}, {rest}"


def registers(xid_code: int, unit: str, severity: str, information: int, status: int) -> str:
    return line(xid_code, f"pid=9, name=a, {unit} {severity} XC0 i0 Link 13 ({information:#010x} {status:#010x} 0x0)")


#: lines; the driver; check, state, action, and a part of what is found
CASES: t.List[t.Tuple[t.List[str], str, t.Tuple[str, str, str, str]]] = [
    ([line(79)], "", ("xid", "fail", "reboot", "GPU 3 at 0000:13:00.0: Xid 79 (the GPU fell off the bus)")),
    (["NVRM: GPU 0000:13:00.0: GPU has fallen off the bus."], "", ("xid", "fail", "reboot", "GPU 3 at")),
    ([line(48), line(63), line(48)], "", ("xid", "fail", "reset GPU", "Xid 48 (a double-bit memory error), 2 times")),
    ([line(63)], "", ("xid", "warn", "reset GPU", "row remap")),
    ([line(64)], "", ("xid", "fail", "reset GPU", "could not be recorded")),
    ([line(92)], "", ("xid", "warn", "none", "corrected memory errors")),
    ([line(94)], "", ("xid", "warn", "restart job", "contained")),
    ([line(95)], "", ("xid", "fail", "reset GPU", "not contained")),
    ([line(119)], "", ("xid", "fail", "reset GPU", "GSP")),
    ([line(74)], "", ("xid", "fail", "reset GPU", "NVLink")),
    ([line(140)], "", ("xid", "fail", "reset GPU", "memory error")),
    ([line(51, "BAD_TSG encountered")], "", ("xid", "warn", "none", "without a published meaning")),
    ([line(999)], "", ("xid", "warn", "none", "without a published meaning")),
    ([line(79, index=200)], "", ("xid", "fail", "reboot", "GPU at 0000:d8:00.0: Xid 79")),
    *(
        ([line(code)], "", ("xid-user", "warn", "restart job", f"Xid {code} "))
        for code in (13, 31, 43, 45, 68, 69, 109, 137)
    ),
    # Xid 154: the number counts, the words changed.
    ([line(154, "GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)")], "",
     ("xid", "fail", "reset GPU", "the driver wants a reset")),
    ([line(154, "GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)")], "",
     ("xid", "fail", "reboot", "the driver wants a reboot")),
    ([line(154, "GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)")], "",
     ("xid", "fail", "drain and inspect", "peer traffic")),
    ([line(154, "GPU recovery action changed from 0x4 (Drain and Reset) to 0x9 (New)")], "",
     ("xid", "fail", "drain and inspect", "action 9")),
    # NVLink 5: public lines (leptonai/gpud, Modal), the same numbers under a driver that counts units otherwise.
    ([registers(145, "RLW_SRC_TRACK", "Nonfatal", 0x040868E2, 0x8)], "570.124.06",
     ("xid", "warn", "none", "RLW_SRC_TRACK on link 13, status 0x8")),
    ([registers(145, "RLW_SRC_TRACK", "Fatal", 0x040868E2, 0x10)], "570.124.06",
     ("xid", "fail", "reset GPU", "RLW_SRC_TRACK on link 13")),
    ([registers(145, "RLW_SRC_TRACK", "Fatal", 0x00000007, 0x10)], "580.105.08",
     ("xid", "fail", "reset GPU", "RLW_SRC_TRACK")),
    ([registers(145, "RLW_SRC_TRACK", "Nonfatal", 0x040868E2, 0x10)], "580.105.08",
     ("xid", "warn", "none", "unknown unit")),
    ([registers(149, "NETIR_LINK_EVT ", "Fatal  ", 0x0215C5C6, 0)], "570.124.06",
     ("xid", "fail", "reset GPU", "the link went down (subcode 0x21)")),
    ([registers(149, "NETIR_BER_EVENT", "Nonfatal", 0x00086226, 1)], "570.124.06",
     ("xid", "warn", "none", "bit errors")),
    ([registers(149, "NETIR", "Fatal", 0x000FE406, 0)], "", ("xid", "fail", "reset GPU", "NETIR_INT")),
    ([line(150, "MSE Degraded Fatal XC0 i0 Link -1 (0x00000000 0x00000000 0x0)")], "570.124.06",
     ("xid", "fail", "reset GPU", "MSE_WATCHDOG, status 0x0")),
    ([line(145, "RLW_REMAP Nonfatal XC0 i0 Link 02")], "", ("xid", "warn", "none", "not fatal by its own words")),
    ([line(149, "UNIT Fatal XC0 i0 Link 02")], "", ("xid", "fail", "reset GPU", "fatal by its own words")),
    # NVSwitches.
    (["nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"], "",
     ("sxid", "fail", "reset GPU", "NVSwitch 0000:05:00.0: SXid 20034")),
    (["nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 22003, Fatal, Link 30 Minion Halt"], "",
     ("sxid", "fail", "reboot", "an NVSwitch stopped")),
    (["nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress"], "",
     ("sxid", "warn", "none", "SXid 12028")),
    (["nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 99999, Fatal, Link 32 new"], "",
     ("sxid", "fail", "drain and inspect", "SXid 99999")),
    # The other messages.
    (["NVRM: GPU 0000:13:00.0: RmInitAdapter failed! (0x22:0x56:897)"], "",
     ("driver-messages", "fail", "drain and inspect", "GPU 3")),
    (["NVRM: The NVIDIA GPU 0000:13:00.0", "NVRM: requires use of the NVIDIA open kernel modules."], "",
     ("driver-messages", "fail", "fix configuration", "GPU 3 at 0000:13:00.0: open module required")),
    (["NVRM: The NVIDIA GPU 0000:13:00.0 is supported through the NVIDIA 470.xx Legacy drivers."], "",
     ("driver-messages", "fail", "fix configuration", "too new")),
    (["Loading of module with unavailable key is rejected"], "",
     ("driver-messages", "warn", "fix configuration", "signature")),
    (["NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!"], "",
     ("driver-messages", "warn", "reset GPU", "not detected")),
    (["pcieport 0000:a1:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Physical Layer"], "",
     ("pcie-errors", "warn", "drain and inspect", "PCI device 0000:a1:00.0: aer fatal")),
    (["pcieport 0000:a1:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Physical Layer"], "",
     ("pcie-errors", "warn", "drain and inspect", "aer nonfatal")),
    (["pcieport 0000:a1:00.0: pciehp: Slot(12): Card not present"], "",
     ("pcie-errors", "warn", "drain and inspect", "12 (a PCIe slot lost its card)")),
    (["EDAC MC0: 1 UE memory read error on x"], "", ("machine-checks", "warn", "drain and inspect", "uncorrected")),
    (["mce: [Hardware Error]: CPU 5: Machine Check: 0 Bank 7"], "",
     ("machine-checks", "warn", "drain and inspect", "machine check")),
    (["INFO: task nvidia-smi:12345 blocked for more than 120 seconds."], "",
     ("kernel-hangs", "warn", "none", "nvidia-smi (a task waits in the kernel)")),
    (["watchdog: BUG: soft lockup - CPU#3 stuck for 22s!"], "", ("kernel-hangs", "warn", "none", "stuck")),
    (["python[71]: segfault at 8 ip 7f sp 7f error 4 in libnccl.so.2[7f+1]"], "",
     ("job-crashes", "warn", "restart job", "NCCL")),
    (["nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context"], "",
     ("job-crashes", "warn", "restart job", "peermem")),
    (["mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 26): Detected insufficient power on the PCIe slot (27W)."], "",
     ("nic-messages", "warn", "ask facility", "power")),
    (["mlx5_core 0000:5c:00.0: mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error, "
      "High Temperature"], "", ("nic-messages", "warn", "ask facility", "hot")),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "driver", "wanted"), CASES, ids=lambda value: str(value)[:60])
def test_a_line_and_what_follows(lines: t.List[str], driver: str, wanted: t.Tuple[str, str, str, str]) -> None:
    (finding,) = loud(host(*lines, driver=driver))
    assert (finding.check, finding.state, finding.action) == wanted[:3]
    assert wanted[3] in finding.found
    assert finding.evidence["events"][0]["text"]
    assert finding.policy == ("report" if finding.check not in ("xid", "sxid", "driver-messages") else "block")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [line(37), line(44), line(121), line(160)],
        [line(154, "GPU recovery action changed from 0x1 (Reset) to 0x0 (None)")],
        [registers(146, "TLW_RX", "Nonfatal", 0x00000143, 1)],
        [registers(149, "NETIR_MFDE_EVENT", "Nonfatal", 0x00000246, 3)],
        ["nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 19049, Non-fatal, Link 1 x"],
        ["nvidia 0000:13:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)"],
        ["EDAC MC0: 1 CE memory read error on x", "{1}[Hardware Error]: event severity: corrected"],
    ],
)
def test_lines_from_which_nothing_follows(lines: t.List[str]) -> None:
    assert loud(host(*lines)) == []


def test_the_worst_of_a_gpu_decides_and_other_gpus_stand_alone() -> None:
    found = loud(host(line(63), line(48), line(31), line(119, index=5)))
    assert [(one.check, one.subject.key, one.state) for one in found] == [
        ("xid", "GPU-3", "fail"),
        ("xid", "GPU-5", "fail"),
        ("xid-user", "GPU-3", "warn"),
    ]


WISH = line(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")


@pytest.mark.parametrize(
    ("lines", "recovery", "codes"),
    [
        ([line(48), WISH], "reset", ["fail"]),
        ([line(48), WISH], "absent", ["fail"]),
        ([line(48), WISH], None, ["fail"]),
        # The driver wanted a reset, and wants nothing now: it had one.
        ([line(48), WISH], "none", []),
        ([line(48), WISH, line(95)], "none", ["fail"]),
        ([line(48)], "none", ["fail"]),
    ],
)
def test_a_reset_that_no_line_tells(lines: t.List[str], recovery: t.Any, codes: t.List[str]) -> None:
    assert [one.state for one in loud(host(*lines, recovery=recovery))] == codes


@pytest.mark.parametrize(
    ("indices", "wanted"),
    [
        # Two below one switch: the switch. Four below two of them: the port that both have. One alone: itself.
        ([2, 3], [("link", "0000:a1:00.0")]),
        ([0, 1, 2, 3], [("link", "0000:0f:01.0")]),
        ([2], [("gpu", "GPU-2")]),
        ([1, 2], [("link", "0000:0f:01.0")]),
    ],
)
def test_gpus_that_fell_off_the_bus_together(indices: t.List[int], wanted: t.List[t.Tuple[str, str]]) -> None:
    found = loud(host(*(line(79, index=index) for index in indices)))
    assert [(one.subject.kind, one.subject.key) for one in found] == wanted
    assert all(one.state == "fail" for one in found)
    if len(indices) > 1:
        assert found[0].action == "drain and inspect"
        assert f"{len(indices)} GPUs fell off the bus at once" in found[0].found


def test_gpus_that_fell_off_the_bus_one_after_the_other() -> None:
    lines = [line(79, index=2), *["x"] * 100, line(79, index=3)]
    assert [one.subject.key for one in loud(host(*lines))] == ["GPU-2", "GPU-3"]
    # What else was said of them is said of them.
    found = loud(host(line(119, index=2), line(79, index=2), line(79, index=3)))
    assert [one.subject.key for one in found] == ["0000:a1:00.0", "GPU-2"]


@pytest.mark.parametrize(
    ("log", "virtualization", "state", "text"),
    [
        ({"source": "none", "error": "/dev/kmsg: Operation not permitted"}, "none", "unknown", "not permitted"),
        ({"source": "none", "error": "/dev/kmsg: no such file"}, "podman", "not_applicable", ""),
        ({"complete": False, "lost": "7 lines were overwritten"}, "none", "unknown", "7 lines"),
        ({"complete": False, "error": "the log is longer"}, "none", "unknown", "longer"),
        ({"lost": "the place could not be used"}, "none", "unknown", "could not be used"),
        ({}, "kvm", "ok", "read since the driver was loaded"),
    ],
)
def test_a_log_that_was_not_read_whole(log: Facts, virtualization: str, state: str, text: str) -> None:
    observed = host(**log)
    observed["host"]["virtualization"] = virtualization
    findings = registry.judge(observed)
    (finding,) = (one for one in findings if one.check == "kernel-log")
    assert (finding.state, finding.policy) == (state, "report")
    assert text in finding.found
    if log.get("source") == "none":
        # "Not observable" is not "no Xid".
        assert {one.state for one in findings if one.check in ("xid", "sxid", "xid-user")} == {"not_applicable"}


def test_every_xid_of_the_catalogue_is_there() -> None:
    known = {*xid.XIDS, *xid.NVLINK5, xid.RECOVERY_CHANGED, *xid.UNUSED}
    assert known == set(range(1, 173))
    assert not set(xid.XIDS) & xid.UNUSED
    assert len(xid.SXIDS) == 92
    for code in (*xid.XIDS.values(), *xid.SXIDS.values(), *(said.code for said in kernel_messages.MESSAGES.values())):
        assert code.state in _finding.STATES and code.action in _finding.ACTIONS
        assert code.state != "fail" or code.action != "none"


def test_every_message_that_is_collected_has_a_meaning() -> None:
    assert {name for name, _pattern in kernel_lines.MESSAGES} == set(kernel_messages.MESSAGES)


def test_units_of_nvlink5_are_told_apart() -> None:
    for kind in ("old", "new"):
        units = [(unit.xid, getattr(unit, kind)) for unit in nvlink5.UNITS if not unit.name.endswith("PIPE1")]
        assert len(set(units)) == len(units)
