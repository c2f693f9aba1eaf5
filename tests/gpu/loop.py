# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A loop with torch.matmul as anybody would write it, to hold the proof's figures against. Prints JSON.

loop.py cuda|cpu DTYPE MxNxK ...
"""

import json
import sys
import time

import torch

device, dtype, shapes = sys.argv[1], sys.argv[2], [tuple(map(int, text.split("x"))) for text in sys.argv[3:]]
times, warm_s = (50, 3.0) if device == "cuda" else (7, 0.2)
results = {}
for m, n, k in shapes:
    a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
    if dtype.startswith("float8"):
        one = torch.ones((), device=device)
        left, right = a.to(torch.float8_e4m3fn), b.t().contiguous().to(torch.float8_e4m3fn).t()

        def product(left=left, right=right, one=one):
            return torch._scaled_mm(
                left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
            )
    else:
        left, right = a.to(getattr(torch, dtype)), b.to(getattr(torch, dtype))

        def product(left=left, right=right):
            return torch.matmul(left, right)

    end = time.perf_counter() + warm_s
    while time.perf_counter() < end:
        product()
        if device == "cuda":
            torch.cuda.synchronize()
    taken = []
    for _ in range(times):
        if device == "cuda":
            begin, finish = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            product()
            finish.record()
            finish.synchronize()
            taken.append(begin.elapsed_time(finish) / 1000)
        else:
            start = time.perf_counter()
            product()
            taken.append(time.perf_counter() - start)
    results[f"{m}x{n}x{k}"] = 2.0 * m * n * k / sorted(taken)[len(taken) // 2] / 1e12
print(json.dumps(results))
