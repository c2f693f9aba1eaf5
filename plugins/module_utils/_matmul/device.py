# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""torch on one device: operands of each type, and their product in each output.

Runs in the environment's interpreter.
"""

from __future__ import annotations

import re
import typing as t

FP8 = ("float8_e4m3fn", "float8_e5m2")
NOT_SUPPORTED = re.compile(r"not[ _]supported|not[ _]implemented|only supported", re.I)


class Unsupported(Exception):
    """This device, torch or library has no product of this type."""


class Device:
    """torch on one device."""

    def __init__(self, torch: t.Any, name: str) -> None:
        self.torch = torch
        self.name = name
        self.cuda = name.startswith("cuda")
        matmul = torch.backends.cuda.matmul
        matmul.allow_fp16_reduced_precision_reduction = False
        matmul.allow_bf16_reduced_precision_reduction = False
        if hasattr(matmul, "allow_fp16_accumulation"):
            matmul.allow_fp16_accumulation = False
        self.capability = torch.cuda.get_device_capability() if self.cuda else (0, 0)

    def cast(self, matrix: t.Any, dtype: str, right: bool = False) -> t.Any:
        """A matrix of whole or normal numbers on the device, as operands of ``dtype`` want it."""
        if dtype in ("tf32", "float8_e5m2"):
            dtype = {"tf32": "float32", "float8_e5m2": "float8_e4m3fn" if right else "float8_e5m2"}[dtype]
        kind = getattr(self.torch, dtype, None)
        if kind is None:
            raise Unsupported(f"torch {self.torch.__version__} has no {dtype}")
        moved = matrix.to(self.name).to(kind)
        # The fp8 product takes its right operand by columns only, and every GPU has that kernel for int8.
        columns = dtype in FP8 or (dtype == "int8" and self.cuda)
        return moved.t().contiguous().t() if right and columns else moved

    def supports(self, dtype: str) -> None:
        """Raise Unsupported where the hardware has no such product."""
        needs = {"tf32": (8, 0), "bfloat16": (8, 0), "int8": (7, 5), "float8_e4m3fn": (8, 9), "float8_e5m2": (8, 9)}
        if self.cuda and self.capability < needs.get(dtype, (0, 0)):
            raise Unsupported(f"compute capability {self.capability[0]}.{self.capability[1]} has no {dtype}")
        if not self.cuda and dtype == "tf32":
            raise Unsupported("only GPUs multiply in tf32")

    def multiply(self, a: t.Any, b: t.Any, dtype: str, output: str, fast: bool = False) -> t.Any:
        """The product, in ``output``. Raises Unsupported where this torch has none of that kind.

        ``fast``: fp8 adds up in the tensor cores alone, as trainings do it; else parts are added in single precision.
        """
        torch = self.torch
        out = getattr(torch, output)
        if self.cuda and dtype in ("float32", "tf32"):
            torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        try:
            if dtype in FP8:
                one = torch.ones((), device=self.name)
                result = torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=fast)
                return result[0] if isinstance(result, tuple) else result  # torch 2.2 to 2.4 add the largest value
            if dtype == "int8":
                return torch._int_mm(a, b)
            if a.dtype == out:
                return torch.mm(a, b)
            return torch.mm(a, b, out_dtype=out)
        except (AttributeError, RuntimeError, TypeError) as error:
            told = isinstance(error, (AttributeError, NotImplementedError, TypeError))
            if not told and not NOT_SUPPORTED.search(str(error)):
                raise
            raise Unsupported(f"{dtype} to {output}: {str(error).splitlines()[0]}") from error

    def wait(self) -> None:
        """Until the device has done what it was asked."""
        if self.cuda:
            self.torch.cuda.synchronize()
