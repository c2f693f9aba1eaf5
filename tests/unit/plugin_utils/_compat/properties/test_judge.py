# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judge itself: a good plan with one cell spoilt is found out, by the rule that it breaks."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from ansible_collections.gpufleet.pytorch.tests.unit.plugin_utils._compat.properties.judge import (
    Question,
    judge,
    possible,
)

HGX = Question("2.9.0", ("NVIDIA H100 80GB HBM3",), driver="580.95.05", driver_owner="package")
VOLTA = Question("2.8.0", ("Tesla V100-SXM2-32GB",))
KEPT = Question("2.9.0", ("NVIDIA L40S",), cuda="cu130", driver="570.211.01", driver_policy="keep")
BLACKWELL = Question("2.9.0", ("NVIDIA B200",))


@pytest.mark.parametrize(
    ("asked", "path", "value", "rule"),
    [
        (HGX, "torch.variant", "cu131", "R22"),
        (HGX, "torch.version", "2.9.1", "not asked for"),
        (HGX, "torch.torchvision", "0.23.0", "R29"),
        (HGX, "torch.torchaudio", "2.8.0", "R29"),
        (HGX, "torch.triton", "3.4.0", "R28"),
        (HGX, "cuda.runtime", "12.6", "R31"),
        (HGX, "cuda.toolkit", "13.0", "R31"),
        (HGX, "cudnn.version", "9.13.0.50", "R22"),
        (HGX, "nccl.version", "2.27.3", "R22"),
        (HGX, "driver.version", "580.105.08", "R18"),
        (HGX, "fabric_manager.version", "580.65.06", "R18"),
        (HGX, "fabric_manager.required", False, "R17"),
        (HGX, "fabric_manager.nvlsm", True, "R19"),
        (VOLTA, "driver.branch", "595", "R9"),
        (VOLTA, "driver.branch", "570", "R34"),
        (VOLTA, "driver.kernel_module", "open", "R11"),
        (VOLTA, "cudnn.version", "9.13.0.50", "R30"),
        (BLACKWELL, "driver.kernel_module", "proprietary", "R11"),
        (BLACKWELL, "driver.branch", "550", "R9"),
        (BLACKWELL, "torch.variant", "cu126", "R7"),
        (BLACKWELL, "fabric_manager.nvlsm", False, "R19"),
    ],
)
def test_a_spoilt_plan_is_found_out(ask, asked, path, value, rule):
    plan = copy.deepcopy(ask(asked.torch, asked.options()))
    assert judge(asked, plan) == []
    part, cell = path.split(".")
    plan[part][cell] = value
    assert [line for line in judge(asked, plan) if rule in line]


@pytest.mark.parametrize(
    ("asked", "how_many"),
    [
        (Question("2.11.0", ("Tesla V100-SXM2-32GB",), cuda="cu130"), 0),
        (Question("2.6.0", ("NVIDIA GeForce RTX 5090",)), 0),
        (Question("2.8.0", ("Tesla V100-SXM2-32GB", "NVIDIA B200")), 0),
        (KEPT, 0),
        (dataclasses.replace(KEPT, cuda="cu128"), 2),
        (dataclasses.replace(KEPT, forward_compat=True), 2),
    ],
)
def test_what_is_possible(asked, how_many):
    assert len(possible(asked)) == how_many
