# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What GPUs of a model reach in products of normal random numbers, by public measurement.

TFLOPS of the best shape that a search over shapes found, mean of 100 products
after 50 for warm-up, with cold caches. Source of every row: stas00/ml-engineering,
compute/accelerator/README.md, mamf-finder tables, read at 744d01e (2026-08-22).
"""

from __future__ import annotations

import re
import typing as t

#: Under this share of the measured rate a GPU is slow, whatever its siblings do. Our judgement.
FLOOR = 0.85

#: Under this share of the peak at its clock the best shape of half precision is slow for no reason of power or heat.
#: Measured ones are 0.87 (A100) and 0.9 (H100). Our judgement.
PEAK_FLOOR = 0.6

#: Names as the driver gives them, most special first.
ACHIEVED: t.Sequence[t.Tuple[str, t.Mapping[str, float]]] = (
    (r"GB200", {"bfloat16": 1822.0, "float8_e4m3fn": 3615.6}),
    (r"GH200", {"bfloat16": 828.6, "float8_e4m3fn": 1535.0}),
    (r"B300", {"bfloat16": 1769.0, "float8_e4m3fn": 3353.3}),
    (r"B200", {"bfloat16": 1745.0, "float8_e4m3fn": 3432.5}),
    (r"H200 NVL", {}),
    (r"H200", {"bfloat16": 794.5, "float8_e4m3fn": 1453.4}),
    (r"H100 80GB HBM3", {"bfloat16": 794.5, "float8_e4m3fn": 1402.6}),
    (r"A100-SXM", {"bfloat16": 271.2}),
    (r"A100.*PCI", {"bfloat16": 252.9}),
)

#: Dense tensor FLOPs a clock and multiprocessor in half precision, by compute capability. A100: 312 TFLOPS at
#: 1,410 MHz on 108; H100: 989.4 at 1,830 MHz on 132 (source as above).
HALF_FLOPS_A_CLOCK: t.Mapping[str, int] = {"8.0": 2048, "9.0": 4096}


def achieved(name: str) -> t.Mapping[str, float]:
    """TFLOPS by type of the model with this product name; empty where nobody published any."""
    if " MIG " in f" {name} ":
        return {}
    return next((row for pattern, row in ACHIEVED if re.search(rf"\b{pattern}", name)), {})


def peak_tflops(capability: str, multiprocessors: int, sm_mhz: float) -> t.Optional[float]:
    """The most that half-precision tensor cores do at this clock, None where the rate of the chip is not known."""
    rate = HALF_FLOPS_A_CLOCK.get(capability)
    return None if rate is None else rate * multiprocessors * sm_mhz * 1e6 / 1e12


#: Under this share of the usual bus bandwidth the fast way between the GPUs is not in use. Our judgement.
BUS_FLOOR = 0.7

#: GB/s of all-reduce over all GPUs of one host, by product and count: the least that a public health check lets pass at
#: 8 to 16 GiB. Source: Azure/azurehpc-health-checks, check_nccl_allreduce in conf/nd96*.conf and nd40*.conf.
_BUS_BANDWIDTH: t.Sequence[t.Tuple[str, int, float]] = (
    (r"H200", 8, 431.0),
    (r"H100 80GB HBM3", 8, 460.0),
    (r"A100-SXM", 8, 228.0),
    (r"V100-SXM2", 8, 110.0),
    (r"H100 NVL", 2, 208.0),
)


def bus_bandwidth(name: str, count: int) -> t.Optional[float]:
    """What all-reduce over ``count`` GPUs of this product name usually reaches, None where nobody published it."""
    return next((rate for pattern, gpus, rate in _BUS_BANDWIDTH if gpus == count and re.search(pattern, name)), None)
