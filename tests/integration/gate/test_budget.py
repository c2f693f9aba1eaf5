# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The budgets of the gate as ratios in one short run. tests/bench/gate.py has the long one, with drift.yml."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import archive
from ansible_collections.gpufleet.pytorch.tests.bench import gate as bench

#: Python's own start is 0.012 s on an idle machine, where a look may take 0.15 s beside the NVML calls: 12.5 times.
#: Measured 8 times where little else ran and up to 12.3 on a busy machine, for which the rest is.
LOOK = 16
#: Bytes of our source that Ansible sends with gpu_drift, without and with the module itself, whose half is its page.
SOURCE, WHOLE = 120_000, 132_000


@pytest.mark.container
@pytest.mark.needs("gcc")
@pytest.mark.alone
def test_reading_and_looking_stay_within_their_budgets(gpu_host):
    assert gpu_host.gate("--fresh")[0] == 0
    found = bench.costs(gpu_host, 8)
    assert found["read"] <= 4 * found["pass"], found
    assert found["fresh"] - found["nvml"] <= LOOK * found["pass"], found


def test_a_comparison_brings_no_more_source_than_its_budget():
    start = f"{archive.COLLECTION}.plugins.modules.gpu_drift"
    size = {name: len(text.encode()) for name, text in archive.closure(archive.source_of, start).items()}
    assert sum(size.values()) - size[start] <= SOURCE, size
    assert sum(size.values()) <= WHOLE, size
