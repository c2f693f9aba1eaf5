# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet.majority import gpu_count, majority


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([], None),
        ([8], None),
        ([8, 7], None),
        ([8, 8], None),
        ([8, 8, 7], 8),
        ([8, 8, 7, 7], None),
        ([8, 7, 6], None),
        ([0, 0, 8], 0),
        ([8] * 5 + [7] * 4, 8),
    ],
)
def test_majority(counts, expected):
    assert majority(counts) == expected


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        ({}, 0),
        ({"pci": [{"role": "gpu"}, {"role": "display"}, {"role": "nvswitch"}], "gpus": []}, 1),
        ({"pci": [{"role": "gpu"}] * 8, "gpus": [{}] * 7}, 8),
        ({"pci": [], "gpus": [{}]}, 1),
    ],
)
def test_gpu_count(observed, expected):
    assert gpu_count(observed) == expected
