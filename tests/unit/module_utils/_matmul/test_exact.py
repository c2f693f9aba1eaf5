# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bounds of exactness, against arithmetic that rounds as the types do."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.exact import FORMATS, Values, holds, widest

#: Bits of significand with the implicit one, from the definitions of the types; None: whole numbers that wrap.
BITS = {
    "float64": 53,
    "float32": 24,
    "tf32": 11,
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e5m2": 3,
}
FLOATS = sorted(key for key in FORMATS if key[0] != "int8")


def rounded(value, bits):
    """``value`` to ``bits`` bits of significand, ties to even, on exact fractions."""
    value = Fraction(value)
    if value == 0:
        return value
    exponent = abs(value).numerator.bit_length() - abs(value).denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - bits + 1)
    return Fraction(round(value / unit)) * unit


def accumulator_bits(form):
    return form.accumulator_limit.bit_length() - 1


@pytest.mark.parametrize("key", FLOATS)
def test_inputs_end_where_the_type_ends(key):
    limit, bits = FORMATS[key].input_limit, BITS[key[0]]
    near = {1, 2, limit - 1, limit} | set(range(1, min(limit, 300)))
    assert all(rounded(number, bits) == number for number in near)
    assert rounded(limit + 1, bits) != limit + 1


@pytest.mark.parametrize("key", FLOATS)
def test_outputs_end_where_the_type_ends(key):
    form = FORMATS[key]
    bits = BITS[form.output]
    assert rounded(form.output_limit, bits) == form.output_limit
    assert rounded(form.output_limit - 1, bits) == form.output_limit - 1
    assert rounded(form.output_limit + 1, bits) != form.output_limit + 1


@pytest.mark.parametrize("key", FLOATS)
def test_one_beyond_the_sum_is_rounded(key):
    """The largest size that holds adds up exactly; the same with one more term does not."""
    form = FORMATS[key]
    bits = min(accumulator_bits(form), BITS[form.output])
    terms = form.sum_limit
    assert holds(form, Values(terms, 1, 1)) and rounded(terms, bits) == terms
    assert not holds(form, Values(terms + 1, 1, 1)) and rounded(terms + 1, bits) != terms + 1


def test_int8_ends_where_its_types_end():
    form = FORMATS["int8", "int32"]
    assert form.input_limit == 2**7 - 1 and form.sum_limit == 2**31 - 1
    most = form.sum_limit // 127**2
    assert holds(form, Values(most, 127, 127)) and most * 127 * 127 < 2**31
    assert not holds(form, Values(most + 1, 127, 127)) and (most + 1) * 127 * 127 >= 2**31


@pytest.mark.parametrize("key", FLOATS)
def test_every_order_gives_the_same_sum(key):
    """Six products at the bound, added in all 720 orders in the accumulator's precision, with cancellation."""
    form = FORMATS[key]
    bits = min(accumulator_bits(form), BITS[form.output])
    size = form.sum_limit // 6
    products = [size, -size, size - 1, 1, -(size // 2), size]
    want = sum(products)
    for order in itertools.permutations(products):
        total = Fraction(0)
        for product in order:
            total = rounded(total + product, bits)
        assert total == want


@pytest.mark.parametrize("key", sorted(FORMATS))
@pytest.mark.parametrize("k", [1, 16, 512, 1000, 4096, 8192, 65536])
@pytest.mark.parametrize("turn", [0, 1])
def test_the_widest_values_hold_and_nothing_wider_does(key, k, turn):
    form = FORMATS[key]
    values = widest(form, k, turn)
    assert holds(form, values)
    assert values.terms <= k
    assert not holds(form, Values(values.terms, values.p + 1, values.q))


@pytest.mark.parametrize(
    "key, k, turn, want",
    [
        (("float32", "float32"), 4096, 0, Values(4096, 64, 64)),
        (("float32", "float32"), 4096, 1, Values(4096, 4096, 1)),
        (("bfloat16", "bfloat16"), 4096, 0, Values(256, 1, 1)),
        (("bfloat16", "float32"), 4096, 0, Values(4096, 64, 64)),
        (("float16", "float16"), 512, 0, Values(512, 2, 2)),
        (("float8_e4m3fn", "float32"), 2048, 0, Values(2048, 2, 2)),
        (("float8_e4m3fn", "float32"), 16384, 0, Values(8192, 1, 1)),
        (("int8", "int32"), 4096, 0, Values(4096, 127, 127)),
    ],
)
def test_widest(key, k, turn, want):
    assert widest(FORMATS[key], k, turn) == want
