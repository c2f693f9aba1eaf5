# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVLink: what ``nvidia-smi topo -m`` prints on machines of the field, and pairs by their remote ends."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import nvlinks

A100 = """\tGPU0\tGPU1\tGPU2\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\tNV12\tPXB\tPXB\t48-63,176-191\t3
GPU1\tNV12\t X \tNV12\tPXB\tPXB\t48-63,176-191\t3
GPU2\tNV12\tNV12\t X \tSYS\tSYS\t16-31,144-159\t1
mlx5_0\tPXB\tPXB\tSYS\t X \tPXB
"""
TERMINAL = """\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPXB\t0-63,128-191\t0\t\tN/A
GPU1\tNV18\t X \tNODE\t\t1\t\tN/A
"""
PCIE = """\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tPHB\t0-7\t0\t\tN/A
GPU1\tPHB\t X \t0-7\t0\t\tN/A
"""
LOST = """\tGPU0\tGPU1\tGPU2\tCPU Affinity
GPU0\t X \tNV12\tNV12\t0
GPU2\tNV12\tNV12\t X \t0
"""


@pytest.mark.parametrize(
    ("text", "square"),
    [
        (A100, [[None, 12, 12], [12, None, 12], [12, 12, None]]),
        (TERMINAL, [[None, 18], [18, None]]),
        (PCIE, [[None, 0], [0, None]]),
        (LOST, [[None, 12, 12], [None, None, None], [12, 12, None]]),
        ("\tGPU0\tCPU Affinity\nGPU0\t X \t0-19\n", [[None]]),
        ("Failed to initialize NVML: Driver/library version mismatch\n", []),
        ("", []),
    ],
)
def test_topo(text: str, square: t.Any) -> None:
    assert nvlinks.parse_topo(text) == square


@pytest.mark.parametrize(
    ("links", "square"),
    [
        ([{"s1": 9, "s2": 9}, {"s1": 9, "s2": 9}], [[None, 18], [18, None]]),
        ([{"s1": 9, "s2": 8}, {"s1": 9, "s2": 9}], [[None, 17], [17, None]]),
        ([{"s1": 18}, {"s2": 18}], [[None, 0], [0, None]]),
        ([{"g1": 12}, {"g0": 12}], [[None, 12], [12, None]]),
        ([{}, {}], [[None, 0], [0, None]]),
        ([None, {"s1": 18}], [[None, None], [None, None]]),
        ([{"g1": 4, "g2": 4}, {"g0": 4}, {"g0": 4}], [[None, 4, 4], [4, None, 0], [4, 0, None]]),
    ],
)
def test_pairs(links: t.Any, square: t.Any) -> None:
    assert nvlinks.mesh([f"g{number}" for number in range(len(links))], links) == square
