# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi prints of NVLink and of peers, read as pynvml's facts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import smi_links

SAMPLES = Path(os.environ.get("GPUFLEET_SAMPLES") or Path(__file__).resolve().parents[5] / "shared" / "samples")

HEAD = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n"


@pytest.mark.parametrize(
    ("text", "switched", "wanted"),
    [
        (
            "\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n",
            True,
            {"count": 2, "active": 1, "inactive_links": [1], "speed_mbps": 26562},
        ),
        (
            "\t Link 0: <inactive>\n\t Link 1: <inactive>\n",
            True,
            {"count": 2, "active": 0, "inactive_links": [0, 1], "speed_mbps": 0},
        ),
        ("NVML: Unable to retrieve NVLink information as all links are inActive\n", True, {"count": None, "active": 0}),
        (
            "NVML: Unable to retrieve NVLink information as all links are inActive\n",
            False,
            {"count": "not_supported", "active": 0},
        ),
        ("", True, {"count": "not_supported"}),
    ],
)
def test_status(text: str, switched: bool, wanted: object) -> None:
    assert smi_links.status(HEAD + text, switched) == {"GPU-a": wanted}


def test_what_is_no_status() -> None:
    assert smi_links.status("No devices were found\n", True) == {}


def test_errors() -> None:
    lines = "\t Link 0: Replay Errors: 1\n\t Link 1: Replay Errors: 2\n\t Link 1: Recovery Errors: 0\n"
    lines += "\t Link 1: CRC Errors: 7\n\t Link 1: Malformed packet Errors: 9\n"
    assert smi_links.errors(HEAD + lines) == {"GPU-a": {"replay": 3, "recovery": 0, "crc_flit": 7}}


def test_peers() -> None:
    text = " \tGPU0\tGPU1\tGPU2\t\n GPU0\tX\tOK\tTNS\t\n GPU1\tOK\tX\tU\t\n GPU2\tCNS\tNS\tX\t\n"
    text += "\nLegend:\n\n  X    = Self\n"
    assert smi_links.peers(text) == [
        [None, "ok", "topology_not_supported"],
        ["ok", None, None],
        ["chipset_not_supported", "not_supported", None],
    ]
    assert smi_links.peers("") == []
    assert smi_links.peers(" GPU0\tX\tOK\t\n") == []


@pytest.mark.skipif(not (SAMPLES / "nvlink").is_dir(), reason="GPUFLEET_SAMPLES names the folder of the real captures")
def test_a_real_board() -> None:
    text = (SAMPLES / "nvlink/nvidia-smi-nvlink-status-a100.txt").read_text(encoding="utf-8")
    found = smi_links.status(text, True)
    assert len(found) == 8
    assert list(found.values()) == [{"count": 12, "active": 12, "inactive_links": [], "speed_mbps": 25000}] * 8
