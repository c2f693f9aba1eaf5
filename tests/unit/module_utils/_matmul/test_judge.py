# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what workers sent to Findings: names, weights and actions."""

from __future__ import annotations

import random

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.judge import judge
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.pace import short_of
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device

NAME = "NVIDIA H100 80GB HBM3"
SHAPES = ((4096, 4096, 4096), (2048, 6144, 8192))
RATES = (8192, 4096)


def exact(shape, state="ok", **more):
    m, n, k = shape
    return {"event": "exact", "dtype": "bfloat16", "output": "float32", "m": m, "n": n, "k": k, "state": state, **more}


def rate(size, turn, tflops):
    return {
        "event": "rate", "dtype": "bfloat16", "m": size, "n": size, "k": size, "state": "ok", "round": turn,
        "tflops": tflops,
    }  # fmt: skip


def device(key, speed=790.0, spread=0.0, source=None, bad=(), state="mismatch", kind="cuda", name=NAME, **more):
    """A GPU of ``speed`` TFLOPS; ``bad``: numbers of the shapes that come out wrong; ``spread``: of single measures."""
    events = [exact(shape, state if index in bad else "ok") for index, shape in enumerate(SHAPES)]
    for turn in range(2):
        for size in RATES:
            noise = 1 + source.uniform(-spread / 2, spread / 2) if source else 1.0
            events.append(rate(size, turn, speed * noise))
    return Device(kind, key, name, **{"ended": "done", "events": events, "code": 0, **more})


def found(devices):
    return {(finding.check, finding.subject.key): finding for finding in judge(devices)}


def test_healthy_devices_are_ok():
    findings = judge([device(f"GPU-{number}") for number in range(8)])
    assert len(findings) == 24 and {finding.state for finding in findings} == {"ok"}


@pytest.mark.parametrize(
    "bad, siblings_bad, siblings, state, action",
    [
        ((0,), (), 3, "warn", "none"),
        ((0, 1), (), 3, "fail", "replace"),
        ((0, 1), (), 0, "fail", "drain and inspect"),
        ((0, 1), (0, 1), 3, "fail", "fix configuration"),
        ((0, 1), (0,), 1, "fail", "fix configuration"),
    ],
)
@pytest.mark.parametrize("kind_of_wrong", ["mismatch", "not_finite"])
def test_a_wrong_product(bad, siblings_bad, siblings, state, action, kind_of_wrong):
    devices = [device("GPU-a", bad=bad, state=kind_of_wrong)]
    devices += [device(f"GPU-{number}", bad=siblings_bad) for number in range(siblings)]
    finding = found(devices)["matmul-exact", "GPU-a"]
    assert (finding.state, finding.action, finding.evidence["fault"]) == (state, action, kind_of_wrong)


@pytest.mark.parametrize(
    "ended, more, fault, action",
    [
        ("hang", {"seconds": 61.0}, "hang", "drain and inspect"),
        ("stuck", {"seconds": 66.0}, "hang", "reboot"),
        ("crash", {"code": -11}, "crash", "drain and inspect"),
        ("crash", {"code": 1}, "crash", "drain and inspect"),
        ("crash", {"code": -9}, "killed", "restart job"),
        ("not_started", {"problem": "/x/python: No such file or directory"}, "not_started", "fix configuration"),
    ],
)
def test_a_worker_without_an_end(ended, more, fault, action):
    finding = found([device("GPU-a", ended=ended, **more), device("GPU-b")])["matmul-run", "GPU-a"]
    assert (finding.state, finding.evidence["fault"], finding.action) == ("fail", fault, action)
    assert found([device("GPU-a", ended=ended, **more), device("GPU-b")])["matmul-run", "GPU-b"].state == "ok"


@pytest.mark.parametrize(
    "kind, action",
    [("out_of_memory", "restart job"), ("cuda_error", "reset GPU"), ("error", "drain and inspect")],
)
def test_an_error_keeps_its_name(kind, action):
    event = {"event": "error", "kind": kind, "type": "RuntimeError", "message": "CUDA error: unspecified\nmore"}
    finding = found([device("GPU-a", ended="error", events=[exact(SHAPES[0]), event])])["matmul-run", "GPU-a"]
    assert (finding.evidence["fault"], finding.action) == (kind, action)
    assert finding.found == "RuntimeError: CUDA error: unspecified, after bfloat16 4096x4096x4096"


def test_what_a_device_does_not_have_is_told():
    """An A100 has no fp8: the proof is good, and says what it did not try."""
    lacking = {**exact(SHAPES[0], "unsupported", reason="compute capability 8.0 has no fp8"), "dtype": "float8_e4m3fn"}
    one = device("GPU-a")
    item = found([Device("cuda", "GPU-a", NAME, "done", [*one.events, lacking])])["matmul-exact", "GPU-a"]
    assert item.state == "ok" and item.found.endswith("; this device or torch has no float8_e4m3fn")
    assert list(item.evidence["unsupported"].values()) == ["compute capability 8.0 has no fp8"]


@pytest.mark.parametrize(
    "kind, dtype, state, exact_is, rate_is, reason",
    [
        # A CPU's whole numbers are exact, and not timed.
        (
            "cpu",
            "int8",
            "ok",
            ("ok", "none"),
            "not_applicable",
            "on a CPU only float32 is timed, and verify_dtypes asks",
        ),
        # An A100 with verify_dtypes: [float8_e4m3fn].
        (
            "cuda",
            "float8_e4m3fn",
            "unsupported",
            ("unknown", "fix configuration"),
            "not_applicable",
            "has no float8_e4m3fn",
        ),
        # What should have been timed and was not is unknown still.
        ("cpu", "float32", "ok", ("ok", "none"), "unknown", ""),
        ("cuda", "int8", "ok", ("ok", "none"), "unknown", ""),
    ],
)
def test_types_asked_for_that_are_not_there_or_not_timed(kind, dtype, state, exact_is, rate_is, reason):
    events = [{**exact(shape, state, reason="there is none"), "dtype": dtype} for shape in SHAPES]
    if state == "unsupported":
        events.append({**rate(4096, 0, 0.0), "dtype": dtype, "state": state, "reason": "there is none"})
    findings = {item.check: item for item in judge([Device(kind, "0", NAME, "done", events)])}
    assert (findings["matmul-exact"].state, findings["matmul-exact"].action) == exact_is
    assert findings["matmul-rate"].state == rate_is and reason in findings["matmul-rate"].reason


def test_products_that_were_not_computed_are_not_ok():
    findings = found(
        [device("GPU-a", ended="hang", events=[exact(SHAPES[0])]), device("GPU-b", ended="hang", events=[])]
    )
    for key in ("GPU-a", "GPU-b"):
        assert findings["matmul-exact", key].state == findings["matmul-rate", key].state == "unknown"


@pytest.mark.parametrize(
    "own, others, slow",
    [
        (100, [100] * 7, False),
        (93, [100] * 7, False),
        (91, [100] * 7, True),
        (91, [96, 97, 98, 100, 102, 103, 104], False),  # their own deviation is 3 %
        (85, [96, 97, 98, 100, 102, 103, 104], True),
        (110, [100] * 7, False),
    ],
)
def test_short_of_siblings(own, others, slow):
    assert bool(short_of(own, others)) is slow


def test_slow_in_one_round_only_is_no_finding():
    devices = [device(f"GPU-{number}") for number in range(8)]
    devices[3].events[2]["tflops"] = 500.0
    assert {finding.state for finding in judge(devices)} == {"ok"}


def test_a_slow_gpu_fails_and_a_slow_cpu_process_is_reported():
    slow = {
        kind: found([device(str(number), 790 if number else 700, kind=kind) for number in range(8)])
        for kind in ("cuda", "cpu")
    }
    gpu, cpu = slow["cuda"]["matmul-rate", "0"], slow["cpu"]["matmul-rate", "cpu0"]
    assert (gpu.state, gpu.policy, gpu.action) == ("fail", "block", "drain and inspect")
    assert (cpu.state, cpu.policy) == ("warn", "report")
    assert gpu.evidence["fault"] == cpu.evidence["fault"] == "slow"


def test_gpus_of_another_kind_are_no_siblings():
    devices = [device(f"GPU-{number}") for number in range(3)] + [device("GPU-old", 150, name="NVIDIA A10")]
    assert {finding.state for finding in judge(devices)} == {"ok"}


def test_no_false_alarm_in_a_thousand_healthy_trials():
    """Eight GPUs, each with a lasting difference and a noise of its own that together spread over 5 %."""
    source = random.Random(20261201)
    alarms = 0
    for _trial in range(1000):
        speeds = [790 * (1 + source.uniform(-0.0125, 0.0125)) for _gpu in range(8)]
        devices = [device(f"GPU-{number}", speed, 0.025, source) for number, speed in enumerate(speeds)]
        alarms += any(finding.state != "ok" for finding in judge(devices))
    assert alarms == 0


def test_a_tenth_slower_is_found_in_a_hundred_of_a_hundred_trials():
    source = random.Random(20261201)
    hits = 0
    for trial in range(100):
        culprit = trial % 8
        devices = [
            device(f"GPU-{number}", 790 * (0.9 if number == culprit else 1), 0.02, source) for number in range(8)
        ]
        slow = [finding.subject.key for finding in judge(devices) if finding.state == "fail"]
        hits += slow == [f"GPU-{culprit}"]
    assert hits == 100


@pytest.mark.parametrize(
    "event, state, policy, says",
    [
        ({"state": "ok"}, "ok", "block", ""),
        ({"state": "mismatch"}, "fail", "block", ""),
        ({"state": "unsupported", "reason": "triton is not in this environment"}, "not_applicable", "report", "triton"),
        (
            {"state": "error", "type": "InductorError", "message": "Python.h: No such file or directory"},
            "warn",
            "report",
            "Python.h",
        ),
    ],
)
def test_what_torch_compile_makes(event, state, policy, says):
    device = Device("cuda", "GPU-1", "NVIDIA L4", "done", [{"event": "compile", **event}])
    (finding,) = [item for item in judge([device]) if item.check == "torch-compile"]
    assert (finding.state, finding.policy) == (state, policy)
    assert says in finding.found + finding.reason
