# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of one device: exact products checked to the last bit, then timed ones.

Runs in the environment's interpreter. `exact.py` says which values are exact;
`plan.py` chooses the jobs; `judge.py` judges what is sent from here.
"""

from __future__ import annotations

import re
import statistics
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.survey import loaded_libraries
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import Wire, serve

#: Larger than the L2 cache of every GPU (H100: 50 MB, B200: 126 MB).
_FLUSH_BYTES = 256 << 20
_ROWS = 512  # rows looked at in one go, so that checking needs little memory
_SAMPLE = 16  # rows compared in full
_CONFIRMATIONS = 2  # rounds of all shapes of a type, with new numbers, after one was wrong
_LISTED = 8  # wrong elements whose bits are sent
_NOT_SUPPORTED = re.compile(r"not[ _]supported|not[ _]implemented|only supported", re.I)
_TIMED_OUTPUT = {"int8": "int32", "tf32": "float32", "float8_e4m3fn": "bfloat16", "float8_e5m2": "bfloat16"}
_FP8 = ("float8_e4m3fn", "float8_e5m2")


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
        # The fp8 product takes its right operand by columns only.
        return moved.t().contiguous().t() if right and dtype in _FP8 else moved

    def supports(self, dtype: str) -> None:
        """Raise Unsupported where the hardware has no such product."""
        needs = {"tf32": (8, 0), "bfloat16": (8, 0), "int8": (7, 5), "float8_e4m3fn": (8, 9), "float8_e5m2": (8, 9)}
        if self.cuda and self.capability < needs.get(dtype, (0, 0)):
            raise Unsupported(f"compute capability {self.capability[0]}.{self.capability[1]} has no {dtype}")
        if not self.cuda and dtype == "tf32":
            raise Unsupported("only GPUs multiply in tf32")

    def multiply(self, a: t.Any, b: t.Any, dtype: str, output: str) -> t.Any:
        """The product, in ``output``. Raises Unsupported where this torch has none of that kind."""
        torch = self.torch
        out = getattr(torch, output)
        if self.cuda and dtype in ("float32", "tf32"):
            torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        try:
            if dtype in _FP8:
                one = torch.ones((), device=self.name)
                result = torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=False)
                return result[0] if isinstance(result, tuple) else result  # torch 2.2 to 2.4 add the largest value
            if dtype == "int8":
                return torch._int_mm(a, b)
            if a.dtype == out:
                return torch.mm(a, b)
            return torch.mm(a, b, out_dtype=out)
        except (AttributeError, NotImplementedError, TypeError) as error:
            raise Unsupported(f"{dtype} to {output}: {str(error).splitlines()[0]}") from error

    def wait(self) -> None:
        """Until the device has done what it was asked."""
        if self.cuda:
            self.torch.cuda.synchronize()


def operands(torch: t.Any, spec: t.Mapping[str, t.Any]) -> t.Tuple[t.Any, t.Any]:
    """A and B of ``spec`` in float64, made on the CPU: the same on every host, and not by the device under test."""
    source = torch.Generator().manual_seed(spec["seed"])

    def signed(rows: int, columns: int, most: int) -> t.Any:
        size = (rows, columns)
        sign = torch.randint(0, 2, size, generator=source, dtype=torch.float64) * 2 - 1
        return torch.randint(1, most + 1, size, generator=source, dtype=torch.float64) * sign

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


def exact(device: Device, spec: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """One exact product: ``ok``, ``mismatch`` (a number is wrong) or ``not_finite`` (NaN or Inf came out)."""
    torch = device.torch
    device.supports(spec["dtype"])
    a, b = operands(torch, spec)
    left, right = device.cast(a, spec["dtype"]), device.cast(b, spec["dtype"], right=True)
    c = device.multiply(left, right, spec["dtype"], spec["output"])
    device.wait()
    most = spec["terms"] * spec["p"] * spec["q"]
    bad = suspicious_rows(torch, a.to(device.name), b.to(device.name), c, most, spec["seed"] + 1)
    pick = torch.randperm(spec["m"], generator=torch.Generator().manual_seed(spec["seed"] + 2))[:_SAMPLE].tolist()
    wrong = wrong_elements(torch, a, b, c, sorted(set(bad[:64]) | set(pick)))
    found: t.Dict[str, t.Any] = {"state": "ok", "suspicious_rows": len(bad), "wrong": len(wrong)}
    if bad or wrong:
        finite = all(item["found"] not in ("nan", "inf", "-inf") for item in wrong)
        found["state"] = "mismatch" if finite else "not_finite"
        found["elements"] = wrong[:_LISTED]
        for axis in ("row", "column"):
            places = [item[axis] for item in wrong] or (bad if axis == "row" else [])
            found[axis + "s"] = [min(places), max(places)] if places else []
    return found


class Timer:
    """Seconds of single products: by the GPU's own events, since the clock of the host sees launches too."""

    def __init__(self, device: Device) -> None:
        self.device = device
        torch = device.torch
        self.flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device=device.name) if device.cuda else None

    def seconds(self, work: t.Callable[[], t.Any], times: int) -> t.List[float]:
        """Of ``times`` calls, each with cold caches on a GPU."""
        if not self.device.cuda:
            taken = []
            for _turn in range(times):
                begin = time.perf_counter()
                work()
                taken.append(time.perf_counter() - begin)
            return taken
        event = self.device.torch.cuda.Event
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _turn in range(times)]
        for begin_event, end_event in pairs:
            if self.flush is not None:
                self.flush.zero_()
            begin_event.record()
            work()
            end_event.record()
        self.device.wait()
        return [begin_event.elapsed_time(end_event) / 1000 for begin_event, end_event in pairs]


def product(device: Device, spec: t.Mapping[str, t.Any]) -> t.Callable[[], t.Any]:
    """A call that multiplies two matrices of normal random numbers: constant data draws less power and runs faster."""
    torch, dtype = device.torch, spec["dtype"]
    device.supports(dtype)
    source = torch.Generator(device=device.name).manual_seed(spec["seed"])

    def normal(rows: int, columns: int) -> t.Any:
        matrix = torch.randn((rows, columns), generator=source, device=device.name)
        return (matrix * 32).clamp(-127, 127).round() if dtype == "int8" else matrix

    a = device.cast(normal(spec["m"], spec["k"]), dtype)
    b = device.cast(normal(spec["k"], spec["n"]), dtype, right=True)
    output = _TIMED_OUTPUT.get(dtype, dtype)
    return lambda: device.multiply(a, b, dtype, output)


def rates(device: Device, job: t.Mapping[str, t.Any], wire: Wire) -> None:
    """Every shape once a round, so that two rounds of one shape are apart in time. Events ``rate``."""
    timer = Timer(device)
    skipped: t.Set[str] = set()
    for turn in range(job["rounds"]):
        for spec in job["rates"]:
            if spec["dtype"] in skipped:
                continue
            try:
                work = product(device, spec)
                timer.seconds(work, spec["warmup"])
                taken = timer.seconds(work, spec["iterations"])
            except Unsupported as error:
                skipped.add(spec["dtype"])
                wire.emit("rate", **shape(spec), state="unsupported", reason=str(error))
                continue
            median = statistics.median(taken)
            tflops = 2.0 * spec["m"] * spec["n"] * spec["k"] / median / 1e12
            wire.emit("rate", **shape(spec), state="ok", round=turn, seconds=median, best_s=min(taken), tflops=tflops)


def warm_up(device: Device, job: t.Mapping[str, t.Any]) -> None:
    """Until clocks and temperature have settled: ``warmup_s`` seconds of the first timed product."""
    if not job["rates"] or not job["warmup_s"]:
        return
    try:
        work = product(device, job["rates"][0])
    except Unsupported:
        return
    end = time.monotonic() + job["warmup_s"]
    while time.monotonic() < end:
        for _turn in range(8 if device.cuda else 1):
            work()
        device.wait()


def shape(spec: t.Mapping[str, t.Any]) -> t.Dict[str, t.Any]:
    """What names a product in an event."""
    names = ("dtype", "output", "m", "n", "k", "terms", "p", "q", "seed")
    return {name: spec[name] for name in names if name in spec}


def work_of(torch: t.Any, job: t.Mapping[str, t.Any], wire: Wire) -> None:
    """The whole job of one device."""
    if job.get("threads"):
        torch.set_num_threads(job["threads"])
    device = Device(torch, job["device"])
    if device.cuda:
        free, total = torch.cuda.mem_get_info()
        wire.emit("memory", free_mib=free >> 20, total_mib=total >> 20)
    wrong = [spec["dtype"] for spec in job["exact"] if run_exact(device, spec, wire) == "wrong"]
    for turn in range(1, _CONFIRMATIONS + 1):
        for spec in job["exact"]:
            if spec["dtype"] in wrong:
                run_exact(device, {**spec, "seed": spec["seed"] + 1000 * turn}, wire)
    wire.emit("ready")
    wire.wait()
    warm_up(device, job)
    rates(device, job, wire)
    wire.emit("libraries", libraries=loaded_libraries())


def run_exact(device: Device, spec: t.Mapping[str, t.Any], wire: Wire) -> str:
    """One exact product and its event; ``right``, ``wrong`` or ``none``."""
    begin = time.monotonic()
    try:
        found = exact(device, spec)
    except Unsupported as error:
        found = {"state": "unsupported", "reason": str(error)}
    except RuntimeError as error:
        if not _NOT_SUPPORTED.search(str(error)):
            raise
        found = {"state": "unsupported", "reason": str(error)[:300]}
    wire.emit("exact", **shape(spec), **found, seconds=round(time.monotonic() - begin, 3))
    return {"ok": "right", "unsupported": "none"}.get(found["state"], "wrong")


def main(job: t.Mapping[str, t.Any]) -> None:
    """Entry point of the worker."""
    serve(work_of, job)
