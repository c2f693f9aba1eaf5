# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings and limits of a host, read from a tree of files, and from this machine."""

from __future__ import annotations

import gzip
import os
import re
import struct
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import limits, settings, whole
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

SAMPLES = Path(os.environ.get("GPUFLEET_SAMPLES") or Path(__file__).resolve().parents[5] / "shared" / "samples")


NOTHING: t.Dict[str, t.Any] = {"host": {"boot_id": "x"}, "pci": [], "gpus": [], "nvml": {}}


def tree(root: Path, **files: str) -> Runner:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return Runner(str(root), env={})


def config(*capabilities: t.Tuple[int, int]) -> bytes:
    """A configuration space with these extended capabilities: id, and the word six bytes after its start."""
    space = bytearray(4096)
    for number, (kind, word) in enumerate(capabilities):
        offset = 0x100 + 0x40 * number
        following = offset + 0x40 if number + 1 < len(capabilities) else 0
        struct.pack_into("<IHH", space, offset, kind | 1 << 16 | following << 20, 0, word)
    return bytes(space)


@pytest.mark.parametrize(
    ("space", "wanted"),
    [
        (config((0x0D, 0x1D)), 0x1D),
        (config((0x01, 0xFFFF), (0x0D, 0)), 0),
        (config((0x01, 0xFFFF)), "not_supported"),
        (bytes(4096), "not_supported"),
        (bytes(256), "not_supported"),
        # A device that is gone reads all ones; capabilities that lead to themselves end.
        (b"\xff" * 4096, "not_supported"),
        (bytes(0x100) + struct.pack("<I", 0x01 | 0x100 << 20) + bytes(0xE00), "not_supported"),
    ],
)
def test_access_control(space: bytes, wanted: t.Any) -> None:
    assert settings.access_control(space) == wanted


@pytest.mark.skipif(not (SAMPLES / "lspci").is_dir(), reason="GPUFLEET_SAMPLES names the folder of the real captures")
def test_bits_of_access_control_are_those_of_lspci() -> None:
    text = gzip.decompress((SAMPLES / "lspci/lspci-vvv.txt.gz").read_bytes()).decode()
    names = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
    lines = set(re.findall(r"ACSCtl:\s+(.*)", text))
    assert lines
    for line in lines:
        assert [word.rstrip("+-") for word in line.split()] == list(names)


def test_a_tree(tmp_path: Path) -> None:
    device = "sys__bus__pci__devices__0000:1b:00.0"
    runner = tree(
        tmp_path,
        proc__cmdline="BOOT_IMAGE=/vmlinuz ro iommu=pt\n",
        proc__sys__kernel__numa_balancing="1\n",
        proc__meminfo="MemTotal: 1000 kB\nHugePages_Free: 3\nHugepagesize: 2048 kB\n",
        sys__kernel__mm__transparent_hugepage__enabled="always [madvise] never\n",
        sys__devices__system__cpu__cpu0__cpufreq__scaling_governor="performance\n",
        sys__devices__system__cpu__cpu1__cpufreq__scaling_governor="powersave\n",
        sys__devices__system__cpu__cpufreq__x="",
        sys__devices__system__clocksource__clocksource0__current_clocksource="tsc\n",
        sys__devices__system__node__node0__x="",
        sys__devices__system__node__node1__x="",
        sys__class__power_supply__BAT0__x="",
        sys__module__nouveau__x="",
        proc__driver__nvidia__params='EnableGpuFirmware: 18\nRegistryDwords: ""\n',
        sys__class__infiniband__mlx5_0__hca_type="MT4129\n",
        sys__class__infiniband__mlx5_0__ports__1__state="4: ACTIVE\n",
        sys__class__infiniband__mlx5_0__ports__1__rate="400 Gb/sec (4X NDR)\n",
        sys__class__infiniband__mlx5_0__ports__1__link_layer="InfiniBand\n",
        **{
            f"{device}__iommu_group__type": "DMA-FQ\n",
            f"{device}__aer_dev_fatal": "Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 2\n",
            f"{device}__aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 0\n",
        },
    )
    (tmp_path / "sys/bus/pci/devices/0000:1a:00.0").mkdir()
    (tmp_path / "sys/bus/pci/devices/0000:1a:00.0/config").write_bytes(config((0x0D, 0x1D)))
    found = settings.probe(runner, {"0000:1b:00.0": ["0000:19:00.0", "0000:1a:00.0"]})
    assert found == {
        "command_line": "BOOT_IMAGE=/vmlinuz ro iommu=pt",
        "numa_nodes": 2,
        "numa_balancing": 1,
        "governors": {"performance": 1, "powersave": 1},
        "battery": True,
        "clocksource": "tsc",
        "huge_pages": {"memory_kib": 1000, "reserved_kib": 6144, "transparent": "madvise"},
        "iommu": {"0000:1b:00.0": "DMA-FQ"},
        "acs": {"0000:19:00.0": None, "0000:1a:00.0": 0x1D},
        "aer": {"0000:1b:00.0": {"fatal": 2, "nonfatal": 0}},
        "modules": ["nouveau"],
        "driver_parameters": {"EnableGpuFirmware": "18", "RegistryDwords": '""'},
        "adapters": [
            {
                "name": "mlx5_0",
                "type": "MT4129",
                "firmware": None,
                "ports": [{"port": "1", "state": "active", "gbps": 400.0, "link_layer": "InfiniBand"}],
            }
        ],
    }


def test_an_empty_tree_invents_nothing(tmp_path: Path) -> None:
    found = settings.probe(tree(tmp_path), {"0000:1b:00.0": ["0000:1a:00.0"]})
    assert found["command_line"] is None and found["acs"] == {"0000:1a:00.0": None}
    assert {found[name] for name in ("numa_balancing", "governors", "clocksource")} == {"not_supported"}
    assert found["aer"] == {"0000:1b:00.0": {"fatal": None, "nonfatal": None}}
    told = limits.probe(tree(tmp_path))
    assert (told["shared_memory"], told["files"], told["tasks"], told["variables"]) == (None, None, None, [])


def test_variables_that_are_set_for_everybody(tmp_path: Path) -> None:
    runner = tree(
        tmp_path,
        etc__environment='NCCL_DEBUG="INFO"\nAWS_SECRET_ACCESS_KEY=x\n# CUDA_LAUNCH_BLOCKING=1\nNCCL_TOKEN\n',
        **{
            "etc__profile.d__cluster.sh": "export CUDA_LAUNCH_BLOCKING=1 # of a search\nif true; then\n"
            "  export NCCL_IB_DISABLE='1'\nfi\n",
            "etc__profile.d__cluster.csh": "setenv NCCL_DEBUG INFO\n",
            "etc__nccl.conf": "NCCL_ALGO=Ring\n",
        },
    )
    assert [(one["file"], one["name"], one["value"]) for one in limits.variables(runner)] == [
        ("/etc/environment", "NCCL_DEBUG", "INFO"),
        ("/etc/nccl.conf", "NCCL_ALGO", "Ring"),
        ("/etc/profile.d/cluster.sh", "CUDA_LAUNCH_BLOCKING", "1"),
        ("/etc/profile.d/cluster.sh", "NCCL_IB_DISABLE", "1"),
    ]


def test_limits_of_logins(tmp_path: Path) -> None:
    runner = tree(
        tmp_path,
        **{
            "etc__security__limits.conf": "# * hard memlock 64\n* soft nofile 1024\n",
            "etc__security__limits.d__90-rdma.conf": "* - memlock unlimited # for RDMA\n",
        },
        **{"proc__sys__fs__file-nr": "2838\t0\t2466126\n", "proc__loadavg": "0.2 0.1 0.1 3/531 99\n"},
        **{"proc__sys__kernel__pid_max": "32768\n", "proc__sys__kernel__threads-max": "9000\n"},
    )
    found = limits.probe(runner)
    assert found["configured"] == [
        {"domain": "*", "type": "soft", "item": "nofile", "value": "1024"},
        {"domain": "*", "type": "-", "item": "memlock", "value": "unlimited"},
    ]
    assert found["files"] == {"used": 2838, "most": 2466126}
    assert found["tasks"] == {"used": 531, "most": 9000}


def test_this_machine() -> None:
    observed: t.Dict[str, t.Any] = {**NOTHING, "errors": {}}
    whole.add(observed, Runner())
    assert observed["errors"] == {}
    assert observed["limits"]["shared_memory"] and observed["settings"]["command_line"]


def test_a_part_that_breaks_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "probe", lambda runner, paths: 1 / 0)
    observed: t.Dict[str, t.Any] = {**NOTHING, "errors": {}}
    whole.add(observed, Runner())
    assert observed["errors"] == {"settings": "ZeroDivisionError: division by zero"}
    assert observed["settings"] == {} and observed["limits"] and observed["kernel_log"]
