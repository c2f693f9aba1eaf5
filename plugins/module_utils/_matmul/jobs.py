# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which products each level multiplies, on GPUs and on CPU processes. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.exact import FORMATS, widest

LEVELS = ("quick", "standard", "burnin")
#: Seconds that one device may take after torch is imported.
LIMITS = {"quick": 60, "standard": 600, "burnin": 4 * 3600}
DTYPES = {
    "cuda": ("float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"),
    "cpu": ("float32", "float16", "bfloat16", "int8"),
}
#: (m, n, k) of exact products; the second confirms what the first finds.
_EXACT_SHAPES = {"cuda": ((4096, 4096, 4096), (2048, 6144, 8192)), "cpu": ((256, 256, 256), (192, 320, 384))}
#: (m, n, k) of timed products. Half-precision types take all, others the first.
_RATE_SHAPES = {"cuda": ((8192, 8192, 8192), (4096, 4096, 4096), (2048, 2048, 13312)), "cpu": ((768, 768, 768),)}
_SEVERAL = ("bfloat16", "float16", "float8_e4m3fn")
#: IEEE single precision runs 15 times slower than half precision: a smaller product does.
_SLOW = {"float32": (4096, 4096, 4096)}
_WARM_UP_S = {"quick": 5, "standard": 30, "burnin": 60}


def job(kind: str, level: str, dtypes: t.Sequence[str] = ()) -> t.Dict[str, t.Any]:
    """What one device does. ``kind``: ``cuda`` or ``cpu``; ``dtypes``: only these, all that fit where empty."""
    chosen = [name for name in DTYPES[kind] if not dtypes or name in dtypes]
    timed = [name for name in chosen if kind == "cuda" or name == "float32"]
    return {
        "exact": [spec for name in chosen for spec in _exact(kind, name)],
        "rates": [
            _product(
                name, shape, 10_000 + index, warmup=10 if kind == "cuda" else 2, iterations=50 if kind == "cuda" else 7
            )
            for name in sorted(timed, key=lambda item: item != "bfloat16")
            for index, shape in enumerate(_shapes(kind, name))
        ],
        "rounds": 2,
        "warmup_s": _WARM_UP_S[level] if kind == "cuda" else 0,
    }


def _shapes(kind: str, name: str) -> t.Sequence[t.Tuple[int, int, int]]:
    shapes = _RATE_SHAPES[kind]
    if kind == "cuda" and name in _SLOW:
        return (_SLOW[name],)
    return shapes if name in _SEVERAL else shapes[:1]


def _product(name: str, shape: t.Tuple[int, int, int], seed: int, **more: t.Any) -> t.Dict[str, t.Any]:
    return {"dtype": name, "m": shape[0], "n": shape[1], "k": shape[2], "seed": seed, **more}


def _exact(kind: str, name: str) -> t.Iterator[t.Dict[str, t.Any]]:
    for form in (item for item in FORMATS.values() if item.name == name):
        if kind == "cpu" and form.output == "float32" and name in ("float16", "bfloat16"):
            continue  # torch.mm(..., out_dtype=...) is there on GPUs only
        for turn, shape in enumerate(_EXACT_SHAPES[kind]):
            values = widest(form, shape[2], turn)
            yield _product(name, shape, 100 + turn, output=form.output, terms=values.terms, p=values.p, q=values.q)
