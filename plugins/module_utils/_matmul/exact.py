# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a matrix product of integers is exact to the last bit, whatever the library, algorithm or GPU.

In C = A B let every row of A hold at most ``terms`` values that are not zero,
``|a| <= p`` and ``|b| <= q``. Then every product, every partial sum in every
order and grouping, and every element of C is an integer of at most
``terms * p * q``. Nothing is ever rounded where

- ``p`` and ``q`` are integers that the input type holds,
- ``terms * p * q`` is within what the accumulator adds without loss,
- and within the output type, in which a split-K kernel may also reduce.

So one integer is the only right answer, and one wrong bit is a fault.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass
from math import isqrt


@dataclass(frozen=True)
class Format:
    """How far whole numbers go: every integer up to the limit is held, the next one (or its successor) is not."""

    name: str
    input_limit: int
    accumulator_limit: int
    output: str
    output_limit: int

    @property
    def sum_limit(self) -> int:
        """The narrowest of accumulator, split-K reduction and output."""
        return min(self.accumulator_limit, self.output_limit)


_FP32 = 1 << 24
_TF32 = 1 << 11  # 10 bits of mantissa and the implicit one
_FP16 = 1 << 11
_BF16 = 1 << 8
_E4M3 = 1 << 4
_E5M2 = 1 << 3
#: Hopper's and Ada's fp8 tensor cores keep about 13 bits of mantissa while they add
#: (DeepSeek-V3 technical report, arXiv 2412.19437, section 3.3.2, says "around 14 bits").
_FP8_ACCUMULATOR = 1 << 13
_INT32 = (1 << 31) - 1

#: By type of the inputs and of the output. ``float32`` means IEEE inputs; ``tf32`` is float32 in memory.
FORMATS: t.Dict[t.Tuple[str, str], Format] = {
    (item.name, item.output): item
    for item in (
        Format("float64", 1 << 53, 1 << 53, "float64", 1 << 53),
        Format("float32", _FP32, _FP32, "float32", _FP32),
        Format("tf32", _TF32, _FP32, "float32", _FP32),
        # A half-precision output also bounds an accumulator of half precision, where a library takes one.
        Format("float16", _FP16, _FP32, "float16", _FP16),
        Format("float16", _FP16, _FP32, "float32", _FP32),
        Format("bfloat16", _BF16, _FP32, "bfloat16", _BF16),
        Format("bfloat16", _BF16, _FP32, "float32", _FP32),
        Format("float8_e4m3fn", _E4M3, _FP8_ACCUMULATOR, "float32", _FP32),
        Format("float8_e4m3fn", _E4M3, _FP8_ACCUMULATOR, "bfloat16", _BF16),
        # A of e5m2 and B of e4m3: no library multiplies e5m2 by e5m2. The narrower bounds both.
        Format("float8_e5m2", _E5M2, _FP8_ACCUMULATOR, "float32", _FP32),
        Format("float8_e5m2", _E5M2, _FP8_ACCUMULATOR, "bfloat16", _BF16),
        Format("int8", 127, _INT32, "int32", _INT32),
    )
}


@dataclass(frozen=True)
class Values:
    """What to fill A and B with: ``terms`` values a row of A, |a| <= p, |b| <= q."""

    terms: int
    p: int
    q: int

    @property
    def largest_sum(self) -> int:
        """No partial sum of any order is larger."""
        return self.terms * self.p * self.q


def holds(form: Format, values: Values) -> bool:
    """Whether the product is exact in ``form``."""
    return (
        0 < values.p <= form.input_limit
        and 0 < values.q <= form.input_limit
        and values.terms > 0
        and values.largest_sum <= form.sum_limit
    )


def widest(form: Format, k: int, turn: int = 0) -> Values:
    """The richest values for inner size ``k``: many bits set, few zeros.

    Even turns give A and B the same range, odd turns give A the longest
    mantissas. Where ``k`` dense terms do not fit, rows of A are thinned out.
    """
    room = form.sum_limit // k
    if room < 1:
        return Values(form.sum_limit, 1, 1)
    q = min(isqrt(room), form.input_limit) if turn % 2 == 0 else 1
    return Values(k, min(room // q, form.input_limit), q)
