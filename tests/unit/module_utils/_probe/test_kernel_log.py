# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel log: lines of public reports, places that are remembered, logs that are long, lost or not there."""

from __future__ import annotations

import json
import os
import resource
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import kernel_lines, kernel_log
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

SAMPLES = Path(
    os.environ.get("GPUFLEET_SAMPLES") or Path(__file__).resolve().parents[5] / "shared" / "samples", "kernel-log"
)
BOOT = "11111111-2222-3333-4444-555555555555"


def collect(*lines: str) -> t.List[t.Dict[str, t.Any]]:
    collector = kernel_lines.Collector()
    for number, line in enumerate(lines):
        collector.feed(number, line)
    return collector.events


def brief(events: t.Iterable[t.Dict[str, t.Any]]) -> t.List[t.Tuple[t.Any, ...]]:
    return [(event["kind"], event["code"] or event["name"], event["address"], event["count"]) for event in events]


#: Lines as public reports have them (leptonai/gpud, NVIDIA/open-gpu-kernel-modules, imbue-ai/cluster-health), with what
#: dmesg, journalctl and syslog put before them; and what they are.
LINES: t.List[t.Tuple[str, t.Tuple[t.Any, ...]]] = [
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", ("xid", 14, "0000:03:00.0")),
    ("[155044.078590] NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.", ("xid", 79, "0000:06:00.0")),
    ("[ 130.456250] [ T1946] NVRM: Xid (PCI:0000:2b:00): 31, pid=1942, name=llama-bench", ("xid", 31, "0000:2b:00.0")),
    ("[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 119, pid=2, name=x, Time", ("xid", 119, "0000:9b:00.0")),
    ("Feb 01 14:25:31 host kernel: NVRM: Xid (PCI:0009:01:00): 43, pid=3, name=t", ("xid", 43, "0009:01:00.0")),
    ("kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 1 caused by", ("xid", 45, "0000:dc:00.0")),
    ("May 18 19:02:39 kernel: NVRM: Xid (PCI:0000:2b:00): 79, GPU has fallen off", ("xid", 79, "0000:2b:00.0")),
    ("NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked", ("xid", 63, "0000:10:1c.0")),
    ("NVRM: Xid (PCI:0018:01:00): 145, pid=8, name=ray::WorkerDict, RLW_RXPIPE Nonfatal", ("xid", 145, "0018:01:00.0")),
    ("NVRM: Xid (PCI:10000:01:00): 48, pid='<unknown>', name=<unknown>, An uncorr", ("xid", 48, "10000:01:00.0")),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 31, pid=1, name=a b, Ch 3", ("xid", 31, "0000:01:00.0")),
    ("NVRM: Xid (PCI:0000:01:00): 48, pid=1, name=a kernel: b, DBE", ("xid", 48, "0000:01:00.0")),
    ("h kernel: NVRM: Xid (PCI:0000:01:00): 48, pid=1, name=a kernel: b, DBE", ("xid", 48, "0000:01:00.0")),
    ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", ("xid", 79, "0000:29:00.0")),
    ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", ("sxid", 12028, "0000:05:00.0")),
    (
        "NVRM: GPU 0000:4f:00.0: RmInitAdapter failed! (0x22:0x56:897)",
        ("message", "rm-init-failed", "0000:4f:00.0"),
    ),
    ("Loading of module with unavailable key is rejected", ("message", "module-rejected", "")),
    (
        "pcieport 0000:15:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Receiver ID)",
        ("message", "aer-fatal", "0000:15:01.0"),
    ),
    (
        "pcieport 0000:15:01.0: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer",
        ("message", "aer-nonfatal", "0000:15:01.0"),
    ),
    (
        "nvidia 0000:1b:00.0: PCIe Bus Error: severity=Correctable, type=Physical Layer, (Receiver ID)",
        ("message", "aer-corrected", "0000:1b:00.0"),
    ),
    (
        "pcieport 0000:15:01.0: pciehp: Slot(12): Link Down",
        ("message", "link-down", "0000:15:01.0"),
    ),
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0", ("message", "memory-uncorrected", "")),
    ("{1}[Hardware Error]: event severity: corrected", ("message", "memory-corrected", "")),
    ("mce: [Hardware Error]: CPU 5: Machine Check: 0 Bank 7: 8c00004000010091", ("message", "machine-check", "")),
    ("INFO: task nvidia-smi:12345 blocked for more than 120 seconds.", ("message", "task-hung", "")),
    ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:7]", ("message", "cpu-stuck", "")),
    ("pt_main_thread[71]: segfault at 8 ip 7f sp 7f error 4 in libnccl.so.2[7f+1]", ("message", "nccl-crashed", "")),
    (
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        ("message", "peermem", ""),
    ),
    (
        "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).",
        ("message", "nic-power", "0000:5c:00.0"),
    ),
    (
        "mlx5_core 0000:5c:00.0: mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error,"
        " High Temperature",
        ("message", "nic-heat", "0000:5c:00.0"),
    ),
]


@pytest.mark.parametrize(("line", "wanted"), LINES, ids=lambda value: str(value)[:40])
def test_line(line: str, wanted: t.Tuple[t.Any, ...]) -> None:
    assert any(word in line.encode() for word in kernel_lines.WORDS)
    assert brief(collect(line)) == [(*wanted, 1)]


@pytest.mark.parametrize(
    "line",
    [
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Data {0x50610002, 0x10100030}",
        "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5)",
        "x" * 100000,
        "",
        "NVRM: Xid (PCI:0000:9b:00): none",
    ],
)
def test_a_line_that_is_no_event(line: str) -> None:
    assert collect(line) == []


XID = "NVRM: Xid (PCI:0000:{:02x}:00): {}, pid=1, name=x"
LOAD = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build"


def wish(bus: int, before: int, after: int) -> str:
    return XID.format(bus, f"154, GPU recovery action changed from {before:#x} (A) to {after:#x} (B)")


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        ([XID.format(1, 48), LOAD], []),
        ([LOAD, XID.format(1, 48)], [48]),
        ([XID.format(1, 48), XID.format(2, 79), "nvidia 0000:01:00.0: resetting"], [79]),
        ([XID.format(1, 79), XID.format(2, 79), "pci 0000:01:00.0: [10de:2330] type 00 class 0x030200"], [79]),
        ([XID.format(1, 48), wish(1, 0, 1), wish(1, 1, 0)], []),
        ([XID.format(1, 48), wish(1, 0, 1)], [48, 154]),
        ([XID.format(1, 48), XID.format(1, 48), XID.format(1, 94)], [48, 94]),
        # The uncorrected error of the machine's memory outlives the driver.
        (["EDAC MC0: 1 UE memory read error", LOAD], [None]),
    ],
)
def test_what_a_load_or_a_reset_takes_back(lines: t.List[str], codes: t.List[int]) -> None:
    assert [event["code"] for event in collect(*lines)] == codes


def test_the_name_of_a_gpu_in_the_lines_before() -> None:
    lines = ["NVRM: The NVIDIA GPU 0000:18:00.0", "NVRM: (PCI ID: 10de:2330)", "NVRM: installed in this system has"]
    lines += ["NVRM: fallen off the bus and is not responding to commands."]
    assert brief(collect(*lines)) == [("xid", 79, "0000:18:00.0", 1)]


def test_a_flood_of_unlike_events_has_an_end() -> None:
    collector = kernel_lines.Collector()
    for code in range(5000):
        collector.feed(code, f"NVRM: Xid (PCI:0000:01:00): {code}, x")
    assert len(collector.events) == kernel_lines.EVENTS_MOST
    assert collector.dropped == 5000 - kernel_lines.EVENTS_MOST


def test_odd_bytes_in_a_name_are_shown() -> None:
    (event,) = collect(kernel_lines.readable(b"NVRM: Xid (PCI:0000:01:00): 31, pid=1, name=\xff\x1b[31m\xc3\xa9, Ch 1"))
    assert event["text"].endswith("name=\\xff\\x1b[31m\u00e9, Ch 1")


# ---- the log of a machine ----


class Machine(Runner):
    """A tree with a log in dev/kmsg, whose user owns its state."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), env={"PATH": os.environ["PATH"]})
        self.folder = root
        (root / "dev").mkdir()

    def uid(self) -> int:
        return 0

    def log(self, *lines: str, first: int = 0) -> None:
        records = (f"6,{number},{number * 1000},-;{line}\n" for number, line in enumerate(lines, first))
        (self.folder / "dev/kmsg").write_text("".join(records), encoding="utf-8")

    def command(self, name: str, *lines: str) -> None:
        place = self.folder / "usr/bin"
        place.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("#!/bin/sh\ncat <<'END'\n" + "".join(f"{line}\n" for line in lines) + "END\n")
        (place / name).chmod(0o755)

    def look(self, boot: t.Optional[str] = BOOT, **how: bool) -> t.Dict[str, t.Any]:
        return kernel_log.probe(self, boot, **{"remember": True, **how})

    def state(self) -> Path:
        return self.folder / "run/gpufleet/kernel-log.json"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_log_is_read_once_and_counts_on(machine: Machine) -> None:
    machine.log(LOAD, XID.format(1, 48))
    first, second = machine.look(), machine.look()
    assert (first["source"], first["since"], first["complete"], first["lost"]) == ("kmsg", "driver load", True, "")
    assert brief(first["events"]) == [("xid", 48, "0000:01:00.0", 1)] == brief(second["events"])
    machine.log(LOAD, XID.format(1, 48), XID.format(1, 48), XID.format(2, 79))
    third = machine.look()
    assert brief(third["events"]) == [("xid", 48, "0000:01:00.0", 2), ("xid", 79, "0000:02:00.0", 1)]
    # The buffer has gone round, and nothing was lost: what was seen still counts.
    machine.log("x", "y", first=4)
    fourth = machine.look()
    assert fourth["complete"] and fourth["events"] == third["events"]
    machine.log("x", "y", LOAD, first=4)
    assert machine.look()["events"] == []


def test_without_remembering_nothing_is_written(machine: Machine) -> None:
    machine.log(XID.format(1, 48))
    assert machine.look(remember=False)["events"]
    assert not machine.state().exists()


def test_lines_that_were_overwritten_are_missed(machine: Machine) -> None:
    machine.log("x", "y", first=100)
    seen = machine.look()
    assert (seen["complete"], seen["lost"]) == (False, "100 lines were overwritten before they were read")
    machine.log("x", first=200)
    assert machine.look()["lost"] == "100 lines were overwritten before they were read"
    # Loaded again, nothing of before matters.
    machine.log("x", LOAD, first=300)
    assert machine.look()["complete"]


def test_the_journal_has_what_the_buffer_lost(machine: Machine) -> None:
    machine.command("journalctl", f"[    0.000000] h kernel: {LOAD}", f"[    0.050000] h kernel: {XID.format(1, 48)}",
                    "[    0.100000] h kernel: x")  # fmt: skip
    machine.log("x", XID.format(2, 79), first=100)
    seen = machine.look()
    assert (seen["source"], seen["complete"], seen["since"]) == ("journal", True, "driver load")
    assert brief(seen["events"]) == [("xid", 48, "0000:01:00.0", 1), ("xid", 79, "0000:02:00.0", 1)]
    machine.log("x", XID.format(2, 79), "y", first=100)
    assert machine.look()["events"] == seen["events"]


@pytest.mark.parametrize("name", ["journalctl", "dmesg"])
def test_a_log_that_only_a_command_shows(machine: Machine, name: str) -> None:
    between = "host kernel: " if name == "journalctl" else ""
    lines = [f"[    1.000000] {between}{LOAD}", f"[    2.500000] {between}{XID.format(1, 48)}"]
    machine.command(name, *lines)
    for _turn in range(2):
        seen = machine.look()
        assert (seen["source"], seen["error"]) == ("journal" if name == "journalctl" else "dmesg", "")
        assert brief(seen["events"]) == [("xid", 48, "0000:01:00.0", 1)]
    machine.command(name, *lines, f"[    3.000000] {between}{XID.format(1, 48)}")
    assert machine.look()["events"][0]["count"] == 2


def test_a_log_that_nobody_shows_is_unknown(machine: Machine) -> None:
    seen = machine.look()
    assert (seen["source"], seen["complete"], seen["events"]) == ("none", False, [])
    assert seen["error"].startswith("/dev/kmsg: No such file or directory, and neither")
    assert not machine.state().exists()


def test_a_command_that_hangs_has_an_end(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "LIMIT", 0.3)
    machine.command("dmesg")
    (machine.folder / "usr/bin/dmesg").write_text("#!/bin/sh\necho '[ 1.000000] x'\nsleep 60\n")
    began = time.monotonic()
    assert "the next look goes on" in machine.look()["error"]
    assert time.monotonic() - began < 2


def test_an_acknowledgement(machine: Machine) -> None:
    machine.log(LOAD, XID.format(1, 48))
    assert machine.look(acknowledge=True)["events"] == []
    machine.log(LOAD, XID.format(1, 48), XID.format(1, 94))
    seen = machine.look()
    assert (seen["since"], [event["code"] for event in seen["events"]]) == ("acknowledgement", [94])


def test_another_boot_starts_anew(machine: Machine) -> None:
    machine.log(*[XID.format(1, 48)] * 50)
    machine.look()
    machine.log(XID.format(1, 94))
    assert [event["code"] for event in machine.look("other")["events"]] == [94]
    assert [event["code"] for event in machine.look(None)["events"]] == [94]


#: What was remembered where a field is another.
PLACE = '{"schema": 1, "boot_id": "%s", "usec": 1, "seq": 1, "events": [], %s}'
SHORT = '"events": [{"kind": "xid", "code": 48, "name": "", "what": "", "address": ""}]'


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"schema": 9}', '{"schema": 1, "events": [1], "usec": 1}'),
        *(PLACE % (BOOT, row) for row in ('"seq": "5"', '"seq": NaN', '"usec": 1e400', '"lost": 5', SHORT)),
    ],
)
def test_a_place_that_cannot_be_used_is_told(machine: Machine, text: str) -> None:
    machine.log(LOAD, XID.format(1, 48))
    machine.look()
    machine.state().write_text(text)
    seen = machine.look()
    assert "could not be used" in seen["lost"]
    assert brief(seen["events"]) == [("xid", 48, "0000:01:00.0", 1)]
    assert json.loads(machine.state().read_text())["boot_id"] == BOOT
    assert machine.state().stat().st_mode & 0o777 == 0o600


def test_a_log_of_the_same_boot_that_starts_again(machine: Machine) -> None:
    machine.log(LOAD, *["x"] * 100)
    machine.look()
    machine.log(LOAD, XID.format(1, 48))
    assert [event["code"] for event in machine.look()["events"]] == [48]


def test_fifty_megabytes(machine: Machine) -> None:
    """A buffer is 16 MiB at most; a journal has no end. Memory is bounded."""
    noise = "mlx5_cmd_out_err:838:(pid 1441871): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5)"
    with (machine.folder / "dev/kmsg").open("w") as log:
        for number in range(450_000):
            log.write(f"6,{number},{number * 1000},-;{noise}\n")
        log.write(f"6,450000,450000000,-;{XID.format(7, 79)}\n")
        assert log.tell() > 50_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert brief(machine.look()["events"]) == [("xid", 79, "0000:07:00.0", 1)]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10


def test_a_flood_that_takes_too_long_is_read_on(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.log(*[XID.format(1, 31)] * 60_000, XID.format(7, 79))
    monkeypatch.setattr(kernel_log, "LIMIT", 0.05)
    looks = [machine.look()]
    assert "the next look goes on" in looks[0]["error"] and not looks[0]["complete"]
    while looks[-1]["error"] and len(looks) < 200:
        looks.append(machine.look())
    assert brief(looks[-1]["events"]) == [("xid", 31, "0000:01:00.0", 60_000), ("xid", 79, "0000:07:00.0", 1)]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="GPUFLEET_SAMPLES names the folder of the real captures")
def test_real_logs() -> None:
    def of(name: str) -> t.List[t.Dict[str, t.Any]]:
        return collect(*(SAMPLES / name).read_text(encoding="utf-8", errors="replace").splitlines())

    assert brief(of("dmesg-with-xid-119.log")) == [("xid", 119, "0000:9b:00.0", 5)]
    assert {event["name"] for event in of("kmsg-peermem.log")} == {"peermem"}
    assert of("kmsg.log") == []
