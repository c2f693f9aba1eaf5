# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A table of changes to a proved host, and what drift says of each."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import accept, drift
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.baseline import baseline, same_identity
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import fold

H100 = "NVIDIA H100 80GB HBM3"


def gpu(number, name=H100):
    return {
        "uuid": f"GPU-{number}",
        "serial": str(number),
        "name": name,
        "vbios": "96.00.74.00.01",
        "gsp_firmware": "580.95.05",
        "power": {"limit_w": 700.0},
        "pcie": {"width": 16},
        "nvlink": {"active": 18},
        "ecc": {"current": True},
        "mig": {"current": False},
        "pci_address": f"0000:{number:02x}:00.0",
    }


CMDLINE = "BOOT_IMAGE=/boot/vmlinuz-6.8.0-50 root=/dev/sda1 ro initrd=/boot/initrd-6.8.0-50 iommu=pt"
OBSERVED = {
    "host": {
        "os": {"id": "ubuntu", "version": "24.04"},
        "kernel": "6.8.0-50",
        "command_line": CMDLINE,
        "arch": "x86_64",
        "glibc": "2.39",
    },
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
BASELINE = baseline("cuda", OBSERVED, ENVIRONMENT, {"devices": [{"key": "GPU-0", "rates": [{"tflops": 700.0}]}]})
EXPECTED = {"baseline": BASELINE, "written_at": "2026-12-01T00:00:00Z"}


def drifted(change):
    observed, environment = copy.deepcopy(OBSERVED), copy.deepcopy(ENVIRONMENT)
    change(observed, environment)
    return drift.compare(EXPECTED, baseline("cuda", observed, environment, {}), environment)


def set_in(part, key, value):
    return lambda observed, environment: (environment if part == "environment" else observed[part]).update({key: value})


def set_gpu(key, value):
    return lambda observed, environment: observed["gpus"][3].update({key: value})


CASES = {
    "nothing": (lambda o, e: None, "ready", {("drift", "ok")}),
    "kernel newer than proved": (
        set_in("host", "kernel", "6.8.0-51"),
        "ready",
        {("drift-kernel", "warn"), ("proof-due", "warn"), ("drift", "ok")},
    ),
    "the same kernel from another file": (
        set_in("host", "command_line", CMDLINE.replace("6.8.0-50", "6.8.0-51")),
        "ready",
        {("drift", "ok")},
    ),
    "another command line": (
        set_in("host", "command_line", CMDLINE.replace("iommu=pt", "iommu=off")),
        "ready",
        {("drift-command-line", "warn"), ("proof-due", "warn"), ("drift", "ok")},
    ),
    "a driver that somebody else owns now": (
        set_in("driver", "owner", "runfile"),
        "ready",
        {("drift-driver-owner", "warn"), ("drift", "ok")},
    ),
    "another Python": (
        set_in("environment", "python_version", "3.13.1"),
        "not_ready",
        {("drift-python-version", "fail")},
    ),
    "lanes lost": (set_gpu("pcie", {"width": 8}), "not_ready", {("drift-pcie-width", "fail")}),
    "lanes won": (set_gpu("pcie", {"width": 32}), "ready", {("drift", "ok")}),
    "lanes not to be read": (set_gpu("pcie", {"width": None}), "unknown", {("drift-pcie-width", "unknown")}),
    "an NVLink down": (set_gpu("nvlink", {"active": 17}), "not_ready", {("drift-nvlink", "fail")}),
    "ECC off": (set_gpu("ecc", {"current": False}), "not_ready", {("drift-ecc", "fail")}),
    "MIG on": (set_gpu("mig", {"current": True}), "not_ready", {("drift-mig", "fail")}),
    "power capped": (
        set_gpu("power", {"limit_w": 500.0}),
        "ready",
        {("drift-power-limit", "warn"), ("proof-due", "warn"), ("drift", "ok")},
    ),
    "GSP firmware updated": (
        set_gpu("gsp_firmware", "580.105.08"),
        "ready",
        {("drift-gsp-firmware", "warn"), ("proof-due", "warn"), ("drift", "ok")},
    ),
    "in another slot": (
        set_gpu("pci_address", "0000:ff:00.0"),
        "ready",
        {("drift-gpu-place", "warn"), ("drift", "ok")},
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
        {("drift-torch", "fail"), ("drift-torch-cuda", "fail")},
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
    "one GPU that does not answer": (
        lambda o, e: o["gpus"].__setitem__(3, {"index": 3, "uuid": None, "state": "timeout", "error": "hangs"}),
        "unknown",
        {("drift-gpu-missing", "unknown")},
    ),
    "a driver that does not answer": (
        lambda o, e: o.update(gpus=[], nvml={"state": "timeout", "error": "a probe still waits"}),
        "unknown",
        {("drift-gpu-missing", "unknown")},
    ),
    "one GPU swapped for its kind": (
        lambda o, e: o["gpus"].__setitem__(3, gpu(9)),
        "ready",
        {("drift-gpu-swapped", "warn"), ("proof-due", "warn"), ("drift", "ok")},
    ),
    "one GPU swapped for another kind": (
        lambda o, e: o["gpus"].__setitem__(3, gpu(9, "NVIDIA A100-SXM4-80GB")),
        "not_ready",
        {("drift-gpu-missing", "fail"), ("drift-gpu-new", "warn"), ("proof-due", "warn")},
    ),
    "one GPU more": (
        lambda o, e: o["gpus"].append(gpu(9)),
        "ready",
        {("drift-gpu-new", "warn"), ("proof-due", "warn"), ("drift", "ok")},
    ),
    "VBIOS updated": (
        lambda o, e: o["gpus"][0].update(vbios="97"),
        "ready",
        {("drift-vbios", "warn"), ("proof-due", "warn"), ("drift", "ok")},
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
    again = baseline("cuda", OBSERVED, ENVIRONMENT, {"devices": []})
    assert same_identity(BASELINE, again)
    assert BASELINE["rates"] == [{"device": "GPU-0", "tflops": 700.0}]
    other = baseline("cuda", {**OBSERVED, "gpus": []}, ENVIRONMENT, {})
    assert not same_identity(BASELINE, other)


def test_an_unreadable_environment_fails_with_its_reason():
    held = {"python": "/opt/v/bin/python", "error": "/opt/v/bin/python cannot be run: the command is not there"}
    findings = drift.compare(EXPECTED, baseline("cuda", OBSERVED, held, {}), held)
    whole = [finding for finding in findings if finding.check == "environment-whole"]
    assert whole[0].state == "fail" and "cannot be run" in whole[0].found


def test_a_record_of_an_older_collection_has_fewer_values_to_compare():
    old = copy.deepcopy(BASELINE)
    del old["host"]["command_line"]
    for card in old["gpus"]:
        del card["power_limit_w"]
    findings = drift.compare({**EXPECTED, "baseline": old}, BASELINE, ENVIRONMENT)
    assert [(finding.check, finding.state) for finding in findings] == [("drift", "ok")]


def test_a_record_that_was_edited_by_hand_is_unknown():
    findings = drift.compare({**EXPECTED, "edited": True}, BASELINE, ENVIRONMENT)
    assert [finding.check for finding in findings] == ["expected-edited"]
    assert fold(findings) == "unknown"


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("nothing", "lanes won")])
def test_what_is_accepted_is_no_difference_any_more(name):
    observed, environment = copy.deepcopy(OBSERVED), copy.deepcopy(ENVIRONMENT)
    CASES[name][0](observed, environment)
    now = baseline("cuda", observed, environment, {})
    found = drift.compare(EXPECTED, now, environment)
    ids = [item.id for item in found if item.check.startswith("drift-") and item.state in ("warn", "fail")]
    if not ids:
        return
    content = accept.accept(EXPECTED, now, environment, ids, "Jo", "reviewed", "2026-12-01T00:00:00Z")
    assert [entry["id"] for entry in content["accepted"]] == ids
    assert {entry["by"] for entry in content["accepted"]} == {"Jo"}
    again = drift.compare(content, now, environment)
    assert not {item.id for item in again} & set(ids)
    # A second run changes nothing, and does not fail for what is no difference any more.
    assert accept.accept(content, now, environment, ids, "Jo", "reviewed", "later") == content


@pytest.mark.parametrize(
    ("change", "ids", "by", "reason", "says"),
    [
        ("VBIOS updated", ["drift-vbios/gpu/GPU-7"], "Jo", "why", "no finding of this look"),
        ("VBIOS updated", ["drift-vbios/gpu/GPU-0"], "", "why", "drift_accept_by"),
        ("VBIOS updated", ["drift-vbios/gpu/GPU-0"], "Jo", " ", "drift_accept_reason"),
        ("driver not to be read", ["drift-driver/host"], "Jo", "why", "it is unknown"),
        ("a shared object deleted", ["environment-whole/environment/x"], "Jo", "why", "no finding"),
        ("a shared object deleted", ["environment-whole/environment//opt/v/bin/python"], "Jo", "why", "no difference"),
        ("VBIOS updated", ["proof-due/host"], "Jo", "why", r"can be accepted on this host: drift-vbios/gpu/GPU-0$"),
    ],
)
def test_what_is_not_accepted_is_said_and_nothing_is_taken(change, ids, by, reason, says):
    observed, environment = copy.deepcopy(OBSERVED), copy.deepcopy(ENVIRONMENT)
    CASES[change][0](observed, environment)
    with pytest.raises(accept.NotAccepted, match=says):
        accept.accept(EXPECTED, baseline("cuda", observed, environment, {}), environment, ids, by, reason, "now")


def test_of_two_changes_the_one_that_is_not_accepted_stays():
    observed = copy.deepcopy(OBSERVED)
    observed["gpus"][0]["vbios"] = "97"
    observed["gpus"][1]["vbios"] = "97"
    now = baseline("cuda", observed, ENVIRONMENT, {})
    content = accept.accept(EXPECTED, now, ENVIRONMENT, ["drift-vbios/gpu/GPU-1"], "Jo", "why", "now")
    left = [item.id for item in drift.compare(content, now, ENVIRONMENT) if item.check == "drift-vbios"]
    assert left == ["drift-vbios/gpu/GPU-0"]
