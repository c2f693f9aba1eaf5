# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which products each level multiplies, on GPUs and on CPU processes. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.exact import FORMATS, widest

Shape = t.Tuple[int, int, int]

LEVELS = ("quick", "standard", "burnin")
#: Seconds that one device may take after torch is imported.
LIMITS = {"quick": 60, "standard": 600, "burnin": 4 * 3600}
DTYPES = {
    "cuda": ("float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"),
    "cpu": ("float32", "float16", "bfloat16", "int8"),
}
#: (m, n, k) of exact products; the second confirms what the first finds. On GPUs C has tiles for every multiprocessor.
_EXACT_SHAPES: t.Dict[str, t.Tuple[Shape, ...]] = {
    "cuda": ((4096, 4096, 1024), (2048, 6144, 768)),
    "cpu": ((256, 256, 256), (192, 320, 384)),
}
#: (m, n, k) of timed products. Half-precision types take all, others the first.
_RATE_SHAPES: t.Dict[str, t.Tuple[Shape, ...]] = {
    "cuda": ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 13312)),
    "cpu": ((512, 512, 512),),  # a build without a tuned library does 1 GFLOPS
}
_SEVERAL = ("bfloat16", "float16", "float8_e4m3fn")
#: IEEE single precision runs 15 times slower than half precision: a smaller product does.
_SLOW: t.Dict[str, Shape] = {"float32": (4096, 4096, 4096)}
#: Seconds of warm-up on a GPU.
_WARM_UP_S = {"quick": 5, "standard": 30, "burnin": 60}
#: Seconds kept for the timed products and copies.
_TIMED_S = 30
#: Rounds of each product of the hot part.
_HOT_ROUNDS = {"quick": 0, "standard": 50, "burnin": 200}
#: Seconds of the hot part on the CPU, where it shows only that it works.
_CPU_HOT_S = {"quick": 0, "standard": 5, "burnin": 60}


def phases(limit: float) -> t.Tuple[float, float]:
    """Of the seconds that a device may take: those for what comes before the load, and those for the load."""
    before = min(0.5 * limit, 120.0)
    return before, limit - before


def job(
    kind: str, level: str, limit: float, dtypes: t.Sequence[str] = (), *, share: bool = False, memory_percent: int = 0
) -> t.Dict[str, t.Any]:
    """What one device does.

    ``kind``: ``cuda`` or ``cpu``; ``limit``: seconds that it may take, most of
    them hot from level ``standard`` on; ``dtypes``: only these, all that fit where
    empty; ``share``: whether others may compute on it at the same time;
    ``memory_percent``: how much of its free memory is tested.
    """
    cuda = kind == "cuda"
    chosen = [name for name in DTYPES[kind] if not dtypes or name in dtypes]
    timed = [name for name in chosen if cuda or name == "float32"]
    warmup_s = _WARM_UP_S[level] if cuda else 0
    soak_s = 0.0
    if level != "quick":
        soak_s = max(0.0, 0.9 * phases(limit)[1] - warmup_s - _TIMED_S) if cuda else _CPU_HOT_S[level]
    return {
        "exact": [spec for name in chosen for spec in _exact(kind, name)],
        "rates": [
            _product(name, shape, 10_000 + index, warmup=10 if cuda else 1, iterations=50 if cuda else 5)
            for name in sorted(timed, key=lambda item: item != "bfloat16")
            for index, shape in enumerate(_shapes(kind, name))
        ],
        "copies": {"device_mib": 1024 if cuda else 32, "host_mib": 256, "iterations": 20 if cuda else 5},
        "agreements": [
            _product(name, _EXACT_SHAPES[kind][0], 20_000) for name in ("float32", "bfloat16") if name in chosen
        ],
        "rounds": 2,
        "exact_rounds": _HOT_ROUNDS[level] if cuda else 5,
        "warmup_s": warmup_s,
        "heat_s": 2 if cuda else 0,
        "soak_s": soak_s,
        # Its first call takes as long as everything else of level quick.
        "compile": level != "quick",
        "share": share,
        "memory_percent": memory_percent,
        "seed": 1,
    }


def _shapes(kind: str, name: str) -> t.Sequence[Shape]:
    shapes = _RATE_SHAPES[kind]
    if kind == "cuda" and name in _SLOW:
        return (_SLOW[name],)
    return shapes if name in _SEVERAL else shapes[:1]


def _product(name: str, shape: Shape, seed: int, **more: t.Any) -> t.Dict[str, t.Any]:
    return {"dtype": name, "m": shape[0], "n": shape[1], "k": shape[2], "seed": seed, **more}


def _exact(kind: str, name: str) -> t.Iterator[t.Dict[str, t.Any]]:
    for form in (item for item in FORMATS.values() if item.name == name):
        if kind == "cpu" and form.output == "float32" and name in ("float16", "bfloat16"):
            continue  # torch.mm(..., out_dtype=...) is there on GPUs only
        for turn, shape in enumerate(_EXACT_SHAPES[kind]):
            values = widest(form, shape[2], turn)
            yield _product(name, shape, 100 + turn, output=form.output, terms=values.terms, p=values.p, q=values.q)


def together(kind: str, level: str, limit: float) -> t.Dict[str, t.Any]:
    """What all devices do together. ``limit``: seconds for it."""
    top = 24 if kind == "cpu" else 28 if level == "quick" else 30
    return {
        "gpus": kind == "cuda",
        "limit": limit,
        "sizes": [1 << power for power in range(10, top, 6 if level == "quick" else 2)] + [1 << top],
        "warmup": 2 if kind == "cpu" else 5,
        "iterations": 5 if kind == "cpu" else 20,
        "peer_bytes": 256 << 20,
    }
