# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of one device: exact products, then the same hot and timed. `jobs.py` chooses how much, `judge.py` judges.

Runs in the environment's interpreter.
"""

from __future__ import annotations

import itertools
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.compiled import compiled
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.counters import Counters
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.device import Device
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.products import (
    agreement,
    attempt,
    memory_pattern,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.speed import Timer, copies, rates, warm_up
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.survey import loaded_libraries
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import Wire, serve

_CONFIRMATIONS = 2  # rounds of all shapes of a type, with new numbers, after one was wrong
_AGREE_EVERY = 20  # rounds of the soak
#: MiB. A GPU on which nobody computes holds less: a desktop, or nothing.
_IDLE_MIB = 1024


def work_of(torch: t.Any, job: t.Mapping[str, t.Any], wire: Wire) -> None:
    """The whole job of one device."""
    counters = Counters(job.get("uuid", ""))
    users = counters.users()
    wire.emit("before", **counters.read(), **users, problem=counters.problem)
    if "used_mib" not in users and job["device"] != "cpu":  # NVML does not say; with this worker's own context
        free, total = torch.cuda.mem_get_info()
        users["used_mib"] = (total - free) >> 20
    if not job["share"] and (users.get("pids") or users.get("used_mib", 0) > _IDLE_MIB):
        wire.emit("busy", **users)
        return
    if job.get("threads"):
        torch.set_num_threads(job["threads"])
    device = Device(torch, job["device"])
    wrong = set()
    for spec in job["exact"]:
        found = attempt(device, spec)
        wire.emit("exact", **found)
        if found["state"] not in ("ok", "unsupported"):
            wrong.add(spec["dtype"])
    for turn in range(1, _CONFIRMATIONS + 1):
        for spec in job["exact"]:
            if spec["dtype"] in wrong:
                wire.emit("exact", **attempt(device, {**spec, "seed": spec["seed"] + 1000 * turn}))
    if job["memory_percent"]:
        memory_pattern(device, _memory_mib(device, job["memory_percent"]), job["seed"], wire)
    wire.emit("ready")
    wire.wait()
    warm_up(device, job, job["warmup_s"])
    timer = Timer(device, counters)
    rates(device, timer, job, wire)
    copies(device, timer, job, wire)
    if job["compile"]:
        compiled(device, wire)
    soak(device, job, wire)
    wire.emit("after", **counters.read())
    wire.emit("libraries", libraries=_libraries(device))


def soak(device: Device, job: t.Mapping[str, t.Any], wire: Wire) -> None:
    """Hot for ``soak_s`` seconds: exact products in many rounds, and random ones that must agree bit for bit."""
    end = time.monotonic() + job["soak_s"]
    right: t.Dict[int, t.Dict[str, t.Any]] = {}
    for turn in itertools.count(1):
        if time.monotonic() >= end:
            break
        warm_up(device, job, job["heat_s"])
        for spec in job["agreements"] if turn % _AGREE_EVERY == 1 else ():
            agreement(device, spec, job["exact_rounds"], wire)
        for number, spec in enumerate(job["exact"]):
            if time.monotonic() >= end:
                break
            warm_up(device, job, job["heat_s"])
            found = attempt(device, {**spec, "seed": spec["seed"] + 100_000 * turn}, job["exact_rounds"])
            if found["state"] == "ok":  # of hours of them one event a product is enough
                for name in ("rounds", "seconds"):
                    found[name] += right.get(number, {}).get(name, 0)
                right[number] = found
            elif found["state"] != "unsupported":
                wire.emit("exact", **found)
    for found in right.values():
        wire.emit("exact", **found)


def _memory_mib(device: Device, percent: int) -> int:
    """MiB to test: a share of what is free on a GPU; on the CPU a token, since others need its memory."""
    if not device.cuda:
        return 128
    free, _total = device.torch.cuda.mem_get_info()
    return int(free >> 20) * percent // 100


def _libraries(device: Device) -> t.List[t.Dict[str, str]]:
    """All that torch loads, also what it loads only when asked for a convolution."""
    if device.cuda and device.torch.backends.cudnn.is_available():
        image = device.torch.ones((1, 1, 8, 8), device=device.name)
        device.torch.nn.functional.conv2d(image, image[..., :3, :3])
        device.wait()
    return loaded_libraries()


def main(job: t.Mapping[str, t.Any]) -> None:
    """Entry point of the worker."""
    serve(work_of, job)
