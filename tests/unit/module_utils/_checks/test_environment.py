# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a survey's report means. The messages are real ones of torch's loader."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.environment import died, judge

SITE = "/opt/gpufleet/venv/lib/python3.11/site-packages"
CUDNN = SITE + "/nvidia/cudnn/lib/libcudnn.so.9"
WHOLE = {
    "python_version": "3.11.2",
    "damaged": [],
    "damaged_count": 0,
    "torch_version": "2.8.0+cu128",
    "torch_cuda": "12.8",
    "torch_hip": None,
    "folder": SITE,
    "shipped": {"libcudnn.so.9": CUDNN, "libgomp-a34b3233.so.1": SITE + "/torch/lib/libgomp-a34b3233.so.1"},
    "libraries": [{"name": "libcudnn.so.9", "path": CUDNN}],
    "ended": "done",
    "code": 0,
    "stderr": "",
    "problem": "",
}
PLAN = {"torch": {"version": "2.8.0", "variant": "cu128"}}


def states(report, planned=True):
    findings = judge(report, "/venv/bin/python", PLAN if planned else None, True)
    return {finding.check: finding.state for finding in findings}


def one(check, report, plan=None, owned=True):
    findings = judge(report, "/venv/bin/python", plan or PLAN, owned)
    return next(finding for finding in findings if finding.check == check)


def test_a_whole_environment_is_ok():
    assert set(states(WHOLE).values()) == {"ok"}
    assert len(states(WHOLE)) == 5


@pytest.mark.parametrize(
    "message, library",
    [
        ("libcudart.so.12: cannot open shared object file: No such file or directory", "libcudart.so.12"),
        (f"{SITE}/torch/lib/libc10.so: file too short", f"{SITE}/torch/lib/libc10.so"),
        (f"{SITE}/torch/lib/libtorch_cpu.so: invalid ELF header", f"{SITE}/torch/lib/libtorch_cpu.so"),
        (
            f"{SITE}/torch/lib/libtorch_cuda.so: undefined symbol: ncclCommWindowDeregister",
            f"{SITE}/torch/lib/libtorch_cuda.so",
        ),
        (
            f"{SITE}/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: "
            "__nvJitLinkComplete_12_4, version libnvJitLink.so.12",
            f"{SITE}/torch/lib/../../nvidia/cusparse/lib/libcusparse.so.12",
        ),
        ("No module named 'torch'", None),
    ],
)
def test_an_import_that_fails_names_the_library(message, library):
    report = {
        **{key: WHOLE[key] for key in ("python_version", "damaged", "damaged_count", "stderr", "problem")},
        "type": "ImportError",
        "message": message,
        "ended": "error",
        "code": 1,
    }
    finding = one("torch-import", report)
    assert (finding.state, finding.found) == ("fail", f"ImportError: {message}")
    assert finding.evidence.get("library") == library


def test_an_import_that_kills_the_interpreter():
    report = {"python_version": "3.11.2", "damaged": [], "damaged_count": 0, "ended": "crash", "code": -4, "stderr": ""}
    assert one("torch-import", report).found.endswith("(killed by signal 4)")


@pytest.mark.parametrize(
    "code, text", [(None, "its end is not known"), (3, "exit status 3"), (-11, "killed by signal 11")]
)
def test_died(code, text):
    assert died(code) == text


@pytest.mark.parametrize(
    "version, cuda, planned, owned, state",
    [
        ("2.8.0+cu128", "12.8", ("2.8.0", "cu128"), True, "ok"),
        ("2.14.1", "13.0", ("2.14.1", "cu130"), True, "ok"),  # the common index has no local label
        ("2.8.0+cpu", None, ("2.8.0", "cu128"), True, "fail"),
        ("2.8.0+cpu", None, ("2.8.0", "cu128"), False, "fail"),
        ("2.8.0+cu126", "12.6", ("2.8.0", "cu128"), True, "fail"),
        ("2.8.0+cu126", "12.6", ("2.8.0", "cu128"), False, "warn"),
        ("2.7.1+cu128", "12.8", ("2.8.0", "cu128"), True, "fail"),
        ("2.7.1+cu128", "12.8", ("2.8.0", "cu128"), False, "warn"),
        ("2.8.0a0+34c6371d24.nv25.08", "13.0", ("2.8.0", "cu128"), False, "warn"),
        ("2.13.0+cpu", None, ("2.13.0", "cpu"), True, "ok"),
    ],
)
def test_the_planned_build(version, cuda, planned, owned, state):
    plan = {"torch": {"version": planned[0], "variant": planned[1]}}
    report = {**WHOLE, "torch_version": version, "torch_cuda": cuda}
    finding = one("wheel-as-planned", report, plan, owned)
    assert finding.state == state
    assert version in finding.found and planned[0] in finding.expected and planned[1] in finding.expected


def test_without_a_plan_no_build_is_expected():
    assert "wheel-as-planned" not in states(WHOLE, planned=False)


@pytest.mark.parametrize(
    "name, path, state",
    [
        ("libcudnn.so.9", CUDNN, "ok"),
        ("libcudnn.so.9.1.0", "/usr/lib/x86_64-linux-gnu/libcudnn.so.9.1.0", "fail"),
        ("libcuda.so.570.86.15", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.86.15", "ok"),  # the driver's, in no wheel
        ("libgomp-a34b3233.so.1", "/opt/other/libgomp-a34b3233.so.1", "warn"),
    ],
)
def test_libraries_come_from_the_environment(name, path, state):
    finding = one("torch-libraries", {**WHOLE, "libraries": [{"name": name, "path": path}]})
    assert finding.state == state
    assert (path in finding.found) == (state != "ok")


def test_damaged_files_are_named_and_counted():
    damaged = [
        {"package": "torch", "path": f"{SITE}/torch/lib/lib{number}.so", "size": None, "expected_size": 9}
        for number in range(7)
    ]
    finding = one("environment-files", {**WHOLE, "damaged": damaged, "damaged_count": 70})
    assert finding.state == "fail"
    assert f"{SITE}/torch/lib/lib0.so is missing" in finding.found and finding.found.endswith(" and 65 more")
