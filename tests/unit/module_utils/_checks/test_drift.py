# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A table of changes to a proved host, and what drift says of each."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import drift
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import fold

H100 = "NVIDIA H100 80GB HBM3"


def gpu(number, name=H100):
    return {
        "uuid": f"GPU-{number}",
        "serial": str(number),
        "name": name,
        "vbios": "96.00.74.00.01",
        "pci_address": f"0000:{number:02x}:00.0",
    }


OBSERVED = {
    "host": {"os": {"id": "ubuntu", "version": "24.04"}, "kernel": "6.8.0-50", "arch": "x86_64", "glibc": "2.39"},
    "driver": {"owner": "package", "version": "580.95.05", "library_version": "580.95.05", "kernel_module": "open"},
    "gpus": [gpu(number) for number in range(8)],
}
ENVIRONMENT = {
    "python": "/opt/v/bin/python",
    "python_version": "3.12.3",
    "torch_version": "2.13.0+cu130",
    "torch_cuda": "13.0",
    "packages": {"torch": "2.13.0+cu130", "numpy": "2.4.6", "sympy": "1.14.0"},
    "files": 16000,
    "missing": [],
}
BASELINE = drift.baseline("cuda", OBSERVED, ENVIRONMENT, {"devices": [{"key": "GPU-0", "rates": [{"tflops": 700.0}]}]})
EXPECTED = {"baseline": BASELINE, "written_at": "2026-12-01T00:00:00Z"}


def drifted(change):
    observed, environment = copy.deepcopy(OBSERVED), copy.deepcopy(ENVIRONMENT)
    change(observed, environment)
    return drift.compare(EXPECTED, drift.baseline("cuda", observed, environment, {}), environment)


def set_in(part, key, value):
    return lambda observed, environment: (environment if part == "environment" else observed[part]).update({key: value})


CASES = {
    "nothing": (lambda o, e: None, "ready", {("drift", "ok")}),
    "kernel newer than proved": (
        set_in("host", "kernel", "6.8.0-51"),
        "ready",
        {("drift-kernel", "warn"), ("drift", "ok")},
    ),
    "driver changed": (set_in("driver", "version", "580.105.08"), "not_ready", {("drift-driver", "fail")}),
    "driver gone": (set_in("driver", "version", ""), "not_ready", {("drift-driver", "fail")}),
    "driver not to be read": (set_in("driver", "version", None), "unknown", {("drift-driver", "unknown")}),
    "library newer than module": (
        set_in("driver", "library_version", "580.105.08"),
        "not_ready",
        {("drift-driver-library", "fail")},
    ),
    "another module flavour": (
        set_in("driver", "kernel_module", "proprietary"),
        "not_ready",
        {("drift-driver-module", "fail")},
    ),
    "torch replaced by the CPU build": (
        lambda o, e: e.update(torch_version="2.13.0+cpu", torch_cuda=None),
        "not_ready",
        {("drift-torch", "fail")},
    ),
    "a shared object deleted": (
        lambda o, e: e["missing"].append("torch/lib/libtorch_cuda.so"),
        "not_ready",
        {("environment-whole", "fail")},
    ),
    "a package upgraded by hand": (
        lambda o, e: e["packages"].update(sympy="1.15.0"),
        "not_ready",
        {("drift-packages", "fail")},
    ),
    "a package gone": (lambda o, e: e["packages"].pop("numpy"), "not_ready", {("drift-packages", "fail")}),
    "one GPU gone": (lambda o, e: o["gpus"].pop(3), "not_ready", {("drift-gpu-missing", "fail")}),
    "one GPU swapped for its kind": (
        lambda o, e: o["gpus"].__setitem__(3, gpu(9)),
        "ready",
        {("drift-gpu-swapped", "warn"), ("drift", "ok")},
    ),
    "one GPU swapped for another kind": (
        lambda o, e: o["gpus"].__setitem__(3, gpu(9, "NVIDIA A100-SXM4-80GB")),
        "not_ready",
        {("drift-gpu-missing", "fail"), ("drift-gpu-new", "warn")},
    ),
    "one GPU more": (lambda o, e: o["gpus"].append(gpu(9)), "ready", {("drift-gpu-new", "warn"), ("drift", "ok")}),
    "VBIOS updated": (
        lambda o, e: o["gpus"][0].update(vbios="97"),
        "ready",
        {("drift-vbios", "warn"), ("drift", "ok")},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_drift(name):
    change, state, found = CASES[name]
    findings = drifted(change)
    assert {(finding.check, finding.state) for finding in findings} == found
    judged = [finding for finding in findings if finding.policy == "block"]
    assert fold(findings) == state
    assert all(finding.expected for finding in judged if finding.state == "fail")


def test_a_host_never_proved_is_unknown():
    findings = drift.compare(None, {}, {})
    assert [finding.check for finding in findings] == ["never-proved"]
    assert fold(findings) == "unknown"


def test_measured_rates_vary_and_do_not_make_another_host():
    again = drift.baseline("cuda", OBSERVED, ENVIRONMENT, {"devices": []})
    assert drift.same_identity(BASELINE, again)
    assert BASELINE["rates"] == [{"device": "GPU-0", "tflops": 700.0}]
    other = drift.baseline("cuda", {**OBSERVED, "gpus": []}, ENVIRONMENT, {})
    assert not drift.same_identity(BASELINE, other)


def test_an_unreadable_environment_fails_with_its_reason():
    held = {"python": "/opt/v/bin/python", "error": "/opt/v/bin/python cannot be run: the command is not there"}
    findings = drift.compare(EXPECTED, drift.baseline("cuda", OBSERVED, held, {}), held)
    whole = [finding for finding in findings if finding.check == "environment-whole"]
    assert whole[0].state == "fail" and "cannot be run" in whole[0].found
