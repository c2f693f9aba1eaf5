# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every job of every level stays exact and within its time."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.exact import FORMATS, Values, holds
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.jobs import DTYPES, LEVELS, LIMITS, job, phases

KINDS = ("cuda", "cpu")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_exact_products_are_within_their_bound(kind, level):
    work = job(kind, level, LIMITS[level])
    assert {spec["dtype"] for spec in work["exact"]} == set(DTYPES[kind])
    for spec in work["exact"]:
        values = Values(spec["terms"], spec["p"], spec["q"])
        assert holds(FORMATS[spec["dtype"], spec["output"]], values) and spec["terms"] <= spec["k"]
        # Freivalds' identity: odd numbers below 1,024 times n elements of C, added up in float64.
        assert values.largest_sum * 1023 * spec["n"] <= 2**53
        # _int_mm and _scaled_mm of cuBLAS want dimensions in multiples of 16.
        assert spec["m"] % 16 == spec["n"] % 16 == spec["k"] % 16 == 0


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_type_has_two_shapes_so_that_a_fault_can_be_confirmed(kind, level):
    for dtype in DTYPES[kind]:
        shapes = {(s["m"], s["n"], s["k"]) for s in job(kind, level, LIMITS[level])["exact"] if s["dtype"] == dtype}
        assert len(shapes) == 2


@pytest.mark.parametrize(
    "level, limit, hot",
    [("quick", 60, 0), ("standard", 600, 372), ("standard", 60, 0), ("standard", 150, 7.5), ("burnin", 14400, 12762)],
)
def test_the_hot_part_takes_what_the_limit_leaves(level, limit, hot):
    work = job("cuda", level, limit)
    assert work["soak_s"] == pytest.approx(hot)
    assert work["warmup_s"] + work["soak_s"] < phases(limit)[1] or hot == 0


def test_only_the_types_that_were_asked_for():
    work = job("cuda", "quick", 60, ["bfloat16"])
    assert {spec["dtype"] for part in ("exact", "rates") for spec in work[part]} == {"bfloat16"}


def test_the_product_that_warms_up_is_one_of_tensor_cores():
    assert job("cuda", "quick", 60)["rates"][0]["dtype"] == "bfloat16"
