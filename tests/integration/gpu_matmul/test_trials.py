# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Detection in numbers: faults of each kind, all found by name, and healthy trials without an alarm."""

from __future__ import annotations

import random
import sys

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import wire
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.exact import FORMATS, widest
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.judge import judge
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.supervise import Supervisor, Worker, sources

#: Every type that the CPU multiplies, in every output it has there.
FORMS = [
    form
    for form in FORMATS.values()
    if form.name not in ("float64", "tf32") and (form.output != "float32" or "16" not in form.name)
]
SHAPE = {"m": 96, "n": 80, "k": 512}
#: Runs in the worker, after its own code: the real product and the real checks, with a fault between them.
TRIALS = """
import random
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.products import (
    operands, suspicious_rows, wrong_elements)

def spoil(torch, c, source, fault):
    row, column = source.randrange(c.shape[0]), source.randrange(c.shape[1])
    if fault == "nan":
        c[row, column] = float("nan")
    else:
        width = 8 * c.element_size()
        bits = c.view({16: torch.int16, 32: torch.int32}[width])
        bit = source.randrange(width)
        bits[row, column] ^= -(1 << bit) if bit == width - 1 else 1 << bit
    return row, column

def trials(torch, job, wire):
    torch.set_num_threads(1)
    device = Device(torch, "cpu")
    source = random.Random(job["seed"])
    for spec in job["specs"]:
        a, b = operands(torch, spec)
        c = device.multiply(device.cast(a, spec["dtype"]), device.cast(b, spec["dtype"], right=True),
                            spec["dtype"], spec["output"])
        most = spec["terms"] * spec["p"] * spec["q"]
        alarms = sum(bool(suspicious_rows(torch, a, b, c, most, turn)) for turn in range(job["healthy"]))
        alarms += bool(wrong_elements(torch, a, b, c, range(spec["m"])))
        missed = []
        for turn in range(job["faults"]):
            bad = c.clone()
            row, column = spoil(torch, bad, source, job["fault"])
            rows = suspicious_rows(torch, a, b, bad, most, turn)
            wrong = wrong_elements(torch, a, b, bad, rows)
            if rows != [row] or [(item["row"], item["column"]) for item in wrong] != [(row, column)]:
                missed.append([row, column, rows])
        wire.emit("trials", dtype=spec["dtype"], output=spec["output"], missed=missed, alarms=alarms)

def main(job):
    serve(trials, job)
"""


def run_trials(python, source, forms, fault, faults=100, healthy=10):
    specs = []
    for number, form in enumerate(forms):
        values = widest(form, SHAPE["k"], number)
        parts = {"terms": values.terms, "p": values.p, "q": values.q, "seed": number}
        specs.append({"dtype": form.name, "output": form.output, **SHAPE, **parts})
    job = {"specs": specs, "fault": fault, "faults": faults, "healthy": healthy, "seed": 20261201}
    (outcome,) = Supervisor(python, source, before=300).run([Worker("trials", job)])
    assert outcome.ended == "done", (outcome.events[-1:], outcome.stderr)
    return outcome.named("trials")


def test_one_flipped_bit_is_found_in_every_trial(torch_python, with_fault):
    """Any bit of any element, in a hundred trials for each type and output."""
    for event in run_trials(torch_python, with_fault(TRIALS), FORMS, "flip"):
        assert event["missed"] == [] and event["alarms"] == 0, event


def test_one_nan_is_found_in_every_trial(torch_python, with_fault):
    floats = [form for form in FORMS if form.output != "int32"]
    for event in run_trials(torch_python, with_fault(TRIALS), floats, "nan"):
        assert event["missed"] == [] and event["alarms"] == 0, event


def test_a_thousand_healthy_products_raise_no_alarm(torch_python, with_fault):
    """Of each type and output, whole products checked by a thousand different vectors."""
    for event in run_trials(torch_python, with_fault(TRIALS), FORMS, "flip", faults=0, healthy=1000):
        assert event["alarms"] == 0, event


#: A worker that ends as the job says; the errors are those that torch raises.
DOUBLE = """
import os, signal, time
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import Wire, serve
class OutOfMemoryError(RuntimeError):
    pass
def work(_torch, job, wire):
    fault = job["fault"]
    if fault == "hang":
        time.sleep(1000)
    elif fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "out_of_memory":
        raise OutOfMemoryError("CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0 has 79.10 GiB")
    elif fault == "cuda_error":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
def main(job):
    serve(work, job)
"""


FAULTS = ("hang", "crash", "killed", "out_of_memory", "cuda_error")
BATCHES, EACH, HEALTHY = 4, 25, 19


def test_a_hundred_workers_of_each_fault_are_named_and_no_healthy_one(tmp_path):
    (tmp_path / "torch.py").write_text("")
    source = [*sources([wire.__name__]), ("double", f"import sys\nsys.path.append({str(tmp_path)!r})\n" + DOUBLE)]
    order = random.Random(20261201)
    hits, alarms = dict.fromkeys(FAULTS, 0), 0
    for _batch in range(BATCHES):
        faults = [*FAULTS * EACH, *[""] * HEALTHY]
        order.shuffle(faults)
        workers = [Worker(str(key), {"fault": name}) for key, name in enumerate(faults)]
        outcomes = Supervisor(sys.executable, source, before=4).run(workers)
        devices = [Device("cuda", o.key, "GPU", o.ended, o.events, o.code, o.stderr, o.problem) for o in outcomes]
        named = {f.subject.key: f.evidence.get("fault") for f in judge(devices) if f.check == "matmul-run"}
        for key, expected in enumerate(faults):
            if expected:
                hits[expected] += named[str(key)] == expected
            else:
                alarms += named[str(key)] is not None
    assert (hits, alarms) == (dict.fromkeys(FAULTS, 100), 0)
