# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof with the real torch on CPU processes: healthy, and with one fault in one of four workers."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import NOT_READY, READY, fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.prove import Settings, prove

CPU_PLAN = {"accelerator": "cpu", "torch": {"version": "2.13.0", "variant": "cpu"}}
#: What each fault does to worker 2 of four, and what it must be called.
ONE = """
_original = Device.multiply
_count = [0]
def _multiply(self, a, b, dtype, output, fast=False):
    c = _original(self, a, b, dtype, output, fast)
    _count[0] += 1
    fault(c)
    return c
def main(job):
    if job["threads"] == 3:
        Device.multiply = _multiply
    serve(work_of, {**job, "threads": 1})
"""
FLIP = """
def fault(c):
    bits = c.view({2: c.new_empty(0).short().dtype, 4: c.new_empty(0).int().dtype}[c.element_size()])
    bits[3, 5] ^= 1 << 4
"""
FLIP_ONCE = """
def fault(c):
    if _count[0] == 1:
        c.view(c.new_empty(0).int().dtype)[3, 5] ^= 1
"""
NAN = """
def fault(c):
    if c.is_floating_point():
        c[7, 9] = float("nan")
"""
HANG = """
def fault(c):
    if _count[0] == 3:
        time.sleep(1000)
"""
CRASH = """
def fault(c):
    if _count[0] == 3:
        import os, signal
        os.kill(os.getpid(), signal.SIGSEGV)
"""
MEMORY = """
def fault(c):
    if _count[0] == 3:
        c.new_empty(1 << 50)
"""
STICKY = """
def fault(c):
    if _count[0] == 3:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
"""
SLEEP = """
def fault(c):
    if _count[0] > 8:
        time.sleep(0.1)
"""


@pytest.fixture
def proved(torch_python, monkeypatch, with_fault):
    """Prove on four CPU processes, the third with a fault."""

    def run(fault="", timeout=60.0):
        from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import prove as module

        places = module._places

        def marked(settings, kind, report):
            found = places(settings, kind, report)
            found[2]["job"] = {**found[2]["job"], "threads": 3}
            return found

        monkeypatch.setattr(module, "_places", marked)
        settings = Settings(python=torch_python, plan=CPU_PLAN, cpu_workers=4, timeout=timeout)
        return prove(settings, with_fault(fault + ONE) if fault else None)

    return run


def by_id(findings):
    return {finding.id: finding for finding in findings}


def test_a_healthy_machine_is_ready(proved):
    proof, findings = proved()
    assert {finding.state for finding in findings} == {"ok"} or all(
        finding.state == "ok" or finding.policy == "report" for finding in findings
    )
    assert fold(findings) == READY
    assert by_id(findings)["proof-device/host"].found == "4 CPU processes at small sizes; no GPU was proved"
    assert [device["key"] for device in proof["devices"]] == ["0", "1", "2", "3"]
    for device in proof["devices"]:
        assert {row["dtype"] for row in device["exact"]} == {"float32", "float16", "bfloat16", "int8"}
        assert {row["state"] for row in device["exact"]} == {"ok"}
        assert all(row["tflops"] > 0 for row in device["rates"])
    assert proof["environment"]["torch_version"] == "2.13.0+cpu"
    assert any(item["name"] == "libtorch_cpu.so" for item in proof["environment"]["libraries"])


@pytest.mark.parametrize(
    "fault, timeout, check, named, action",
    [
        pytest.param(FLIP, 60, "matmul-exact", "mismatch", "replace", id="flip"),
        pytest.param(NAN, 60, "matmul-exact", "not_finite", "replace", id="nan"),
        pytest.param(HANG, 6, "matmul-run", "hang", "drain and inspect", id="hang"),
        pytest.param(CRASH, 60, "matmul-run", "crash", "drain and inspect", id="crash"),
        pytest.param(MEMORY, 60, "matmul-run", "out_of_memory", "restart job", id="memory"),
        pytest.param(STICKY, 60, "matmul-run", "cuda_error", "drain and inspect", id="sticky"),
    ],
)
def test_a_fault_is_found_by_name_in_its_worker_alone(proved, fault, timeout, check, named, action):
    _proof, findings = proved(fault, timeout)
    found = by_id(findings)
    blamed = found[f"{check}/host/cpu2"]
    assert (blamed.state, blamed.evidence["fault"], blamed.action) == ("fail", named, action)
    assert fold(findings) == NOT_READY
    for key in ("cpu0", "cpu1", "cpu3"):
        assert found[f"matmul-run/host/{key}"].state == "ok"
        assert found[f"matmul-exact/host/{key}"].state == "ok"


def test_a_wrong_element_is_located_with_its_bits(proved):
    _proof, findings = proved(FLIP)
    blamed = by_id(findings)["matmul-exact/host/cpu2"]
    first = blamed.evidence["products"][0]["elements"][0]
    assert (first["row"], first["column"]) == (3, 5)
    assert int(first["found_bits"], 16) ^ int(first["expected_bits"], 16) == 1 << 4
    assert "rows 3 to 3, columns 5 to 5" in blamed.found


def test_a_fault_that_does_not_come_again_is_a_warning(proved):
    _proof, findings = proved(FLIP_ONCE)
    blamed = by_id(findings)["matmul-exact/host/cpu2"]
    assert (blamed.state, blamed.action, blamed.evidence["wrong"]) == ("warn", "none", 1)


def test_a_slow_cpu_process_is_named_and_blocks_nothing(proved):
    _proof, findings = proved(SLEEP)
    blamed = by_id(findings)["matmul-rate/host/cpu2"]
    assert (blamed.state, blamed.policy, blamed.evidence["fault"]) == ("warn", "report", "slow")
