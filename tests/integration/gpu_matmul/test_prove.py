# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof with the real torch on CPU processes: healthy ones beside one of each fault, each of which is named."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import NOT_READY, fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import jobs
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import prove as module

CPU_PLAN = {"accelerator": "cpu", "torch": {"version": "2.13.0", "variant": "cpu"}}
#: A worker's job names its fault, a function below; `count` says how many products there were. What is timed sleeps, so
#: that other load on the machine does not show.
ONE = """
_original, _fault = Device.multiply, [None]
count, agreeing = [0], [False]
_agreement = agreement
def agreement(*told):
    agreeing[0] = True
    _agreement(*told)
    agreeing[0] = False
def _multiply(self, a, b, dtype, output, fast=False):
    c = _original(self, a, b, dtype, output, fast)
    count[0] += 1
    if count[0] > 8:
        time.sleep(0.03)
    _fault[0](c)
    return c
def main(job):
    _fault[0] = globals()[job["fault"] or "none"]
    Device.multiply = _multiply
    serve(work_of, job)

def none(c):
    pass

def bits(c):
    return c.view({2: c.new_empty(0).short().dtype, 4: c.new_empty(0).int().dtype}[c.element_size()])

def flip(c):
    if not agreeing[0]:
        bits(c)[3:131, 5:37] ^= 1 << 4

def unsteady(c):
    if agreeing[0] and count[0] % 3 == 0:
        bits(c)[0, 0] ^= 1

def disagrees(c):
    if agreeing[0]:
        bits(c)[0, 0] ^= 1

def flip_once(c):
    if count[0] == 1:
        bits(c)[3, 5] ^= 1

def nan(c):
    if c.is_floating_point() and not agreeing[0]:
        c[7, 9] = float("nan")

def hang(c):
    if count[0] == 3:
        time.sleep(1000)

def crash(c):
    if count[0] == 3:
        import os, signal
        os.kill(os.getpid(), signal.SIGSEGV)

def memory(c):
    if count[0] == 3:
        c.new_empty(1 << 50)

def sticky(c):
    if count[0] == 3:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

def slow(c):
    if count[0] > 8:
        time.sleep(0.06)
"""
FAULTS = ("", "flip", "flip_once", "nan", "hang", "crash", "memory", "sticky", "slow", "unsteady", "disagrees", "")
HEALTHY = tuple(str(key) for key, name in enumerate(FAULTS) if not name)


@pytest.fixture(scope="module")
def proved(torch_python, with_fault):
    """One proof: its workers side by side, each with its fault; the Findings by id."""
    places = module._places

    def faulty(settings, kind, report):
        found = places(settings, kind, report)
        return [{**place, "job": {**place["job"], "fault": name}} for place, name in zip(found, FAULTS)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_places", faulty)
        patched.setitem(jobs._CPU_HOT_S, "standard", 0.1)
        patched.setenv("CXX", "/no/such/compiler")  # torch.compile has tests of its own
        settings = module.Settings(
            python=torch_python, plan=CPU_PLAN, cpu_workers=len(FAULTS), timeout=30.0, level="standard"
        )
        proof, findings = module.prove(settings, with_fault(ONE))
    return proof, findings, {finding.id: finding for finding in findings}


def blamed(proved, check, fault):
    return proved[2][f"{check}/host/cpu{FAULTS.index(fault)}"]


def test_healthy_workers_are_whole_beside_any_fault(proved):
    proof, findings, found = proved
    assert fold(findings) == NOT_READY
    assert found["proof-device/host"].found == f"{len(FAULTS)} CPU processes at small sizes; no GPU was proved"
    assert [device["key"] for device in proof["devices"]] == [str(key) for key in range(len(FAULTS))]
    for key in HEALTHY:
        for check in ("run", "exact", "agreement"):
            assert found[f"matmul-{check}/host/cpu{key}"].state == "ok"
        device = proof["devices"][int(key)]
        assert {row["dtype"] for row in device["exact"]} == {"float32", "float16", "bfloat16", "int8"}
        assert {row["state"] for row in device["exact"]} == {"ok"}
        assert all(row["tflops"] > 0 for row in device["rates"])
    assert proof["environment"]["torch_version"] == "2.13.0+cpu"
    assert any(item["name"] == "libtorch_cpu.so" for item in proof["environment"]["libraries"])


@pytest.mark.parametrize(
    "fault, check, named, action",
    [
        ("flip", "matmul-exact", "mismatch", "replace"),
        ("nan", "matmul-exact", "not_finite", "replace"),
        ("hang", "matmul-run", "hang", "drain and inspect"),
        ("crash", "matmul-run", "crash", "drain and inspect"),
        ("memory", "matmul-run", "out_of_memory", "restart job"),
        ("sticky", "matmul-run", "cuda_error", "drain and inspect"),
        ("unsteady", "matmul-agreement", "unsteady", "drain and inspect"),
        ("disagrees", "matmul-agreement", "disagrees", "drain and inspect"),
    ],
)
def test_a_fault_is_found_by_name_in_its_worker_alone(proved, fault, check, named, action):
    finding = blamed(proved, check, fault)
    assert (finding.state, finding.evidence["fault"], finding.action) == ("fail", named, action)
    told = [item.id for item in proved[1] if item.evidence.get("fault") == named]
    assert told == ([finding.id] if fault != "flip" else [finding.id, blamed(proved, check, "flip_once").id])


def test_a_wrong_tile_is_located_with_its_bits(proved):
    finding = blamed(proved, "matmul-exact", "flip")
    first = finding.evidence["products"][0]["elements"][0]
    assert (first["row"], first["column"]) == (3, 5)
    assert int(first["found_bits"], 16) ^ int(first["expected_bits"], 16) == 1 << 4
    assert "rows 3 to 130, columns 5 to 36" in finding.found


def test_a_fault_that_does_not_come_again_is_a_warning(proved):
    finding = blamed(proved, "matmul-exact", "flip_once")
    assert (finding.state, finding.action, finding.evidence["wrong"]) == ("warn", "none", 1)


def test_a_slow_cpu_process_is_named_and_blocks_nothing(proved):
    finding = blamed(proved, "matmul-rate", "slow")
    assert (finding.state, finding.policy, finding.evidence["fault"]) == ("warn", "report", "slow")
