# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Products and copies for time.

Runs in the environment's interpreter.
"""

from __future__ import annotations

import statistics
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.counters import Counters
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.device import Device, Unsupported
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.products import shape
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import Wire

#: Larger than the L2 cache of every GPU (H100: 50 MB, B200: 126 MB).
_FLUSH_BYTES = 256 << 20
_TIMED_OUTPUT = {"int8": "int32", "tf32": "float32", "float8_e4m3fn": "bfloat16", "float8_e5m2": "bfloat16"}


class Timer:
    """Seconds of single calls: by the GPU's own events, since the clock of the host sees launches too.

    ``readings`` are the counters while the GPU was busy with the last ones.
    """

    def __init__(self, device: Device, counters: Counters) -> None:
        self.device = device
        self.counters = counters
        self.readings: t.Dict[str, t.Any] = {}
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
        self.readings = self.counters.read()
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
    return lambda: device.multiply(a, b, dtype, output, fast=True)


def rates(device: Device, timer: Timer, job: t.Mapping[str, t.Any], wire: Wire) -> None:
    """Every shape once a round, so that two rounds of one shape are apart in time. Events ``rate``."""
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
            wire.emit(
                "rate",
                **shape(spec),
                state="ok",
                round=turn,
                seconds=median,
                best_s=min(taken),
                tflops=tflops,
                counters=timer.readings,
            )


def copies(device: Device, timer: Timer, job: t.Mapping[str, t.Any], wire: Wire) -> None:
    """GB/s of the device's memory (read and written), and of pinned memory to the device and back. Events ``copy``."""
    torch, sizes = device.torch, job["copies"]
    mib = sizes["device_mib"]
    source = torch.ones(mib << 20, dtype=torch.int8, device=device.name)
    target = torch.empty_like(source)
    ways = {"memory": (lambda: target.copy_(source), 2 * mib)}
    if device.cuda:
        mib = sizes["host_mib"]
        host = torch.ones(mib << 20, dtype=torch.int8, pin_memory=True)
        ways["host_to_device"] = (lambda: target[: mib << 20].copy_(host, non_blocking=True), mib)
        ways["device_to_host"] = (lambda: host.copy_(target[: mib << 20], non_blocking=True), mib)
    for turn in range(job["rounds"]):
        for way, (work, moved) in ways.items():
            timer.seconds(work, 2)
            taken = timer.seconds(work, sizes["iterations"])
            rate = (moved << 20) / statistics.median(taken) / 1e9
            wire.emit("copy", way=way, mib=mib, round=turn, gbs=rate, counters=timer.readings)


def warm_up(device: Device, job: t.Mapping[str, t.Any], seconds: float) -> None:
    """Keep the device busy with the first timed product that it has for ``seconds``: clocks and temperature settle."""
    work = next(_supported(device, job["rates"]), None) if seconds else None
    if work is None:
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _turn in range(8 if device.cuda else 1):
            work()
        device.wait()


def _supported(device: Device, specs: t.Iterable[t.Mapping[str, t.Any]]) -> t.Iterator[t.Callable[[], t.Any]]:
    for spec in specs:
        try:
            work = product(device, spec)
            work()
        except Unsupported:
            continue
        yield work
