# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Exact products: made, multiplied, and checked to the last bit.

Runs in the environment's interpreter. `exact.py` says which values are exact.
"""

from __future__ import annotations

import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.device import Device, Unsupported
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import Wire

_ROWS = 512  # rows looked at in one go, so that checking needs little memory
_SAMPLE = 16  # rows compared in full
_LISTED = 8  # wrong elements whose bits are sent
_BLOCK_MIB = 64
_ODD = 0x1E3779B97F4A7D  # spreads small numbers over the bits of a word
_MASK = (1 << 64) - 1


def shape(spec: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """What names a product in an event."""
    names = ("dtype", "output", "m", "n", "k", "terms", "p", "q", "seed")
    return {name: spec[name] for name in names if name in spec}


def operands(torch: t.Any, spec: t.Mapping[str, t.Any]) -> t.Tuple[t.Any, t.Any]:
    """A and B of ``spec`` in float64, made on the CPU: the same on every host, and not by the device under test."""
    source = torch.Generator().manual_seed(spec["seed"])

    def signed(rows: int, columns: int, most: int) -> t.Any:
        """Whole numbers of at most ``most``, none of them zero: a product without zeros has no negative zero."""
        number = torch.randint(0, 2 * most, (rows, columns), generator=source, dtype=torch.int32) - most
        return (number + (number >= 0)).double()

    m, n, k, terms = spec["m"], spec["n"], spec["k"], spec["terms"]
    a, b = signed(m, k, spec["p"]), signed(k, n, spec["q"])
    if terms < k:
        start = torch.randint(0, k, (m, 1), generator=source)
        step = torch.randint(0, k // 2, (m, 1), generator=source) * 2 + 1
        keep = torch.zeros((m, k), dtype=torch.bool)
        keep.scatter_(1, (start + step * torch.arange(terms)) % k, True)
        a *= keep
    return a, b


def suspicious_rows(torch: t.Any, a: t.Any, b: t.Any, c: t.Any, most: int, seed: int) -> t.List[int]:
    """Rows of C, on its device, that cannot be those of A B (float64, same device).

    Every right element is a whole number of at most ``most``, never a negative
    zero; for such C Freivalds' identity C x = A (B x) is exact in float64.
    """
    x = torch.randint(-512, 512, (b.shape[1], 2), generator=torch.Generator().manual_seed(seed)).double() * 2 + 1
    x = x.to(c.device)
    want = a @ (b @ x)
    bad = []
    for begin in range(0, c.shape[0], _ROWS):
        part = c[begin : begin + _ROWS].double()
        whole = (part == part.round()) & (part.abs() <= most) & ~((part == 0) & part.signbit())
        right = whole.all(dim=1) & (part @ x == want[begin : begin + _ROWS]).all(dim=1)
        bad += (begin + (~right).nonzero().flatten()).tolist()
    return bad


def wrong_elements(torch: t.Any, a: t.Any, b: t.Any, c: t.Any, rows: t.Sequence[int]) -> t.List[t.Dict[str, t.Any]]:
    """Elements of the given rows of C whose bits differ from the product computed on the CPU in float64."""
    found = c[list(rows)].cpu()
    want = (a[list(rows)] @ b).to(found.dtype)
    width = found.element_size()
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
    mask = (1 << (8 * width)) - 1
    wrong = []
    for at, column in (found.view(bits) != want.view(bits)).nonzero().tolist():
        wrong.append(
            {
                "row": rows[at],
                "column": column,
                "found": repr(found[at, column].item()),
                "expected": repr(want[at, column].item()),
                "found_bits": f"{found.view(bits)[at, column].item() & mask:0{2 * width}x}",
                "expected_bits": f"{want.view(bits)[at, column].item() & mask:0{2 * width}x}",
            }
        )
    return wrong


def exact(device: Device, spec: t.Mapping[str, t.Any], rounds: int = 1) -> t.Dict[str, t.Any]:
    """One exact product, ``rounds`` times: ``ok``, ``mismatch`` or ``not_finite`` (NaN or Inf came out).

    Every round is checked on the device; the first, and one that is wrong, on the CPU too.
    """
    torch = device.torch
    device.supports(spec["dtype"])
    a, b = operands(torch, spec)
    left, right = device.cast(a, spec["dtype"]), device.cast(b, spec["dtype"], right=True)
    near, far = a.to(device.name), b.to(device.name)
    most = spec["terms"] * spec["p"] * spec["q"]
    found: t.Dict[str, t.Any] = {"state": "ok"}
    for turn in range(rounds):
        c = device.multiply(left, right, spec["dtype"], spec["output"])
        device.wait()
        bad = suspicious_rows(torch, near, far, c, most, spec["seed"] + turn)
        if turn and not bad:
            continue
        pick = torch.randperm(spec["m"], generator=torch.Generator().manual_seed(spec["seed"]))[:_SAMPLE].tolist()
        wrong = wrong_elements(torch, a, b, c, sorted(set(bad[:64]) | set(pick)))
        if bad or wrong:
            return {**_located(bad, wrong), "round": turn}
    return found


def _located(bad: t.Sequence[int], wrong: t.Sequence[t.Mapping[str, t.Any]]) -> t.Dict[str, t.Any]:
    """Where a product is wrong, and how. Rows that only the device finds wrong mean that it cannot check itself."""
    finite = all(item["found"] not in ("nan", "inf", "-inf") for item in wrong)
    found: t.Dict[str, t.Any] = {
        "state": "mismatch" if finite else "not_finite",
        "suspicious_rows": len(bad),
        "wrong": len(wrong),
        "elements": list(wrong[:_LISTED]),
    }
    for axis in ("row", "column"):
        # All wrong rows are known from the device; those compared in full may be fewer.
        places = [item[axis] for item in wrong] + (list(bad) if axis == "row" else [])
        found[axis + "s"] = [min(places), max(places)] if places else []
    return found


def attempt(device: Device, spec: t.Mapping[str, t.Any], rounds: int = 1) -> t.Dict[str, t.Any]:
    """The fields of the event ``exact`` of one product; ``unsupported`` where there is none of its kind."""
    begin = time.monotonic()
    try:
        found = exact(device, spec, rounds)
    except Unsupported as error:
        found = {"state": "unsupported", "reason": str(error)}
    return {**shape(spec), **found, "rounds": rounds, "seconds": round(time.monotonic() - begin, 3)}


def agreement(device: Device, spec: t.Mapping[str, t.Any], rounds: int, wire: Wire) -> None:
    """A product of normal random numbers, many times: is it the same to the last bit? Event ``agreement``.

    Nobody knows the right answer, but GPUs of one kind with one library agree on it.
    """
    torch = device.torch
    source = torch.Generator().manual_seed(spec["seed"])
    try:
        device.supports(spec["dtype"])
        left = device.cast(torch.randn((spec["m"], spec["k"]), generator=source), spec["dtype"])
        right = device.cast(torch.randn((spec["k"], spec["n"]), generator=source), spec["dtype"], right=True)
        first = device.multiply(left, right, spec["dtype"], spec["dtype"])
    except Unsupported:  # which the exact products say
        return
    bits = {2: torch.int16, 4: torch.int32}[first.element_size()]
    differing = 0
    for _turn in range(rounds):
        again = device.multiply(left, right, spec["dtype"], spec["dtype"])
        differing += not torch.equal(again.view(bits), first.view(bits))
    places = torch.arange(first.numel(), device=device.name) * _ODD + 1
    digest = int((first.view(bits).flatten().long() * places).sum())  # wraps, and so is the same in every order
    wire.emit("agreement", **shape(spec), rounds=rounds, differing=differing, digest=f"{digest & _MASK:016x}")


def memory_pattern(device: Device, mib: int, seed: int, wire: Wire) -> None:
    """Write ``mib`` of the memory, each word another number, and read it back; again inverted. Event ``pattern``."""
    torch, words = device.torch, _BLOCK_MIB << 17
    blocks = [torch.empty(words, dtype=torch.int64, device=device.name) for _block in range(mib // _BLOCK_MIB)]
    plain = torch.arange(words, dtype=torch.int64, device=device.name) * _ODD
    wrong = 0
    for flip in (0, -1):
        marks = [((seed + number) * _ODD & _MASK >> 1) ^ flip for number in range(len(blocks))]
        for mark, block in zip(marks, blocks):
            torch.bitwise_xor(plain, mark, out=block)
        for mark, block in zip(marks, blocks):
            wrong += int((block != (plain ^ mark)).sum())
    wire.emit("pattern", mib=len(blocks) * _BLOCK_MIB, wrong=wrong, state="mismatch" if wrong else "ok")
