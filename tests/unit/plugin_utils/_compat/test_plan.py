# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan's parts and the text of a conflict: packages by system and source, reasons, warnings, remedies."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer, host, loader, request, resolver
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import remedies as remedies_

DATA = loader.load()
H100, T4, V100, GTX1080 = "NVIDIA H100 80GB HBM3", "Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA GeForce GTX 1080 Ti"
NOBLE = {"os_id": "ubuntu", "os_version": "24.04", "arch": "x86_64"}


def ask(torch, *gpus, **options):
    return answer.answer(torch, {"gpus": list(gpus), **options})


@pytest.mark.parametrize(
    ("gpu", "options", "packages", "rest"),
    [
        (T4, NOBLE, ["nvidia-driver-pinning-580", "nvidia-open"], {"source": "nvidia", "build": "dkms"}),
        (GTX1080, NOBLE, ["nvidia-driver-pinning-580", "cuda-drivers"], {"kernel_module": "proprietary"}),
        (T4, {**NOBLE, "driver_policy": "570"}, ["nvidia-open-570"], {"branch": "570"}),
        (
            T4,
            {**NOBLE, "secure_boot": "enabled", "kernel": "6.8.0-1021-aws"},
            ["nvidia-driver-580-server-open", "linux-modules-nvidia-580-server-open-aws"],
            {"source": "os", "build": "prebuilt", "signed": True},
        ),
        (
            T4,
            {**NOBLE, "driver_source": "os", "kernel": "6.8.0-60-generic", "kernel_module": "proprietary"},
            ["nvidia-driver-580-server", "linux-modules-nvidia-580-server-generic"],
            {"signed": True},
        ),
        (
            T4,
            {"os_id": "debian", "os_version": "12", "driver_source": "os", "kernel_module": "open"},
            ["nvidia-open-kernel-dkms", "libcuda1", "nvidia-smi", "nvidia-persistenced"],
            {"version": "535.261.03", "build": "dkms", "signed": False},
        ),
        (T4, {"os_id": "rocky", "os_version": "9.6"}, ["nvidia-open"], {"stream": "nvidia-driver:580-open"}),
        (GTX1080, {"os_id": "rhel", "os_version": "8.10"}, ["cuda-drivers"], {"stream": "nvidia-driver:580-dkms"}),
        (T4, {"os_id": "almalinux", "os_version": "10.0"}, ["nvidia-open"], {"lock": "*nvidia*580*", "stream": ""}),
        # Newer kernels of an Ubuntu release, and flavours of more than one word.
        (
            T4,
            {**NOBLE, "driver_source": "os", "kernel": "6.14.0-24-generic"},
            ["nvidia-driver-580-server-open", "linux-modules-nvidia-580-server-open-generic-hwe-24.04"],
            {"signed": True},
        ),
        (
            T4,
            {**NOBLE, "os_version": "22.04", "driver_source": "os", "kernel": "6.8.0-60-generic"},
            ["nvidia-driver-580-server-open", "linux-modules-nvidia-580-server-open-generic-hwe-22.04"],
            {"signed": True},
        ),
        (
            T4,
            {**NOBLE, "driver_source": "os", "kernel": "6.8.0-1021-azure-fde"},
            ["nvidia-driver-580-server-open", "linux-modules-nvidia-580-server-open-azure-fde"],
            {"signed": True},
        ),
        (T4, {"os_id": "sles", "os_version": "15.6", "driver": "580.95.05"}, [], {"action": "keep"}),
        (T4, {**NOBLE, "driver": "580.95.05"}, [], {"action": "keep", "build": "none", "source": ""}),
    ],
)
def test_packages_of_a_driver(gpu, options, packages, rest):
    driver = ask("2.8.0", gpu, **options)["driver"]
    assert driver["packages"] == packages
    assert {key: driver[key] for key in rest} == rest


@pytest.mark.parametrize(
    ("gpus", "options", "expected"),
    [
        ([H100], NOBLE, ["nvidia-fabricmanager-580=580.*"]),
        ([H100], {**NOBLE, "driver": "570.133.20"}, ["nvidia-fabricmanager-570=570.133.20*"]),
        ([H100], {**NOBLE, "driver_policy": "595"}, ["nvidia-fabricmanager=595.*"]),
        ([H100], {"os_id": "rhel", "os_version": "9.4", "driver": "580.126.20"}, ["nvidia-fabricmanager-580.126.20*"]),
        (["NVIDIA B200"], NOBLE, ["nvidia-fabricmanager-580=580.*", "libnvsdm-580=580.*", "nvlsm", "infiniband-diags"]),
        (
            ["NVIDIA B200"],
            {**NOBLE, "driver": "595.58.03"},
            ["nvidia-fabricmanager=595.58.03*", "libnvsdm=595.58.03*", "nvlsm", "infiniband-diags"],
        ),
        # Of a branch alone no exact version is made up.
        ([H100], {**NOBLE, "driver": "580"}, ["nvidia-fabricmanager-580=580.*"]),
        (["NVIDIA GB200"], {**NOBLE, "arch": "aarch64"}, ["nvidia-imex-580=580.*"]),
        ([H100], {**NOBLE, "nvswitch": 0}, []),
        ([H100], {**NOBLE, "driver": "580.95.05", "driver_owner": "dgx_os"}, []),
        ([T4], NOBLE, []),
    ],
)
def test_packages_of_the_fabric(gpus, options, expected):
    assert ask("2.9.0", *gpus, **options)["fabric_manager"]["packages"] == expected


@pytest.mark.parametrize(
    ("gpu", "nvswitch", "expected"),
    [
        (H100, None, (True, "inferred", False, False)),
        (H100, 4, (True, "observed", False, False)),
        (H100, 0, (False, "observed", False, False)),
        ("NVIDIA H100 PCIe", None, (False, "inferred", False, False)),
        # NVSwitches of the fifth NVLink are not on the PCI bus of the host.
        ("NVIDIA B200", 0, (True, "inferred", True, False)),
        ("NVIDIA GB200", 0, (False, "inferred", False, True)),
        ("Tesla V100-SXM3-32GB", None, (True, "inferred", False, False)),
    ],
)
def test_what_the_fabric_needs(gpu, nvswitch, expected):
    found = ask("2.9.0", gpu, nvswitch=nvswitch)["fabric_manager"]
    assert (found["required"], found["basis"], found["nvlsm"], found["imex"]) == expected


@pytest.mark.parametrize(
    ("os_id", "os_version", "arch", "url", "key"),
    [
        ("debian", "13", "x86_64", "repos/debian13/x86_64/", "8793F200"),
        ("ubuntu", "24.04", "aarch64", "repos/ubuntu2404/sbsa/", "3BF863CC"),
        ("rocky", "9.6", "x86_64", "repos/rhel9/x86_64/", "D42D0685"),
        ("rhel", "10.1", "x86_64", "repos/rhel10/x86_64/", "CDF6BA43"),
    ],
)
def test_the_repository_comes_with_its_own_key(os_id, os_version, arch, url, key):
    found = ask("2.9.0", "NVIDIA A100 80GB PCIe", os_id=os_id, os_version=os_version, arch=arch)["repository"]
    assert found["url"].endswith(url)
    assert found["key"]["id"] == key
    assert found["key"]["url"].startswith(found["url"])


@pytest.mark.parametrize(
    ("torch", "arch", "requirement"),
    [
        ("2.8.0", "x86_64", "torch==2.8.0+cpu"),
        ("2.8.0", "aarch64", "torch==2.8.0+cpu"),
        ("2.5.1", "aarch64", "torch==2.5.1"),
        ("2.5.1", "x86_64", "torch==2.5.1+cpu"),
        ("latest", "", "torch==2.15.0+cpu"),
    ],
)
def test_the_build_without_cuda(torch, arch, requirement):
    plan = ask(torch, accelerator="cpu", arch=arch)
    assert (plan["status"], plan["accelerator"]) == ("ok", "cpu")
    assert plan["torch"]["requirement"] == requirement
    assert plan["torch"]["index_url"] == "https://download.pytorch.org/whl/cpu"
    assert set(plan) == {"status", "accelerator", "torch", "reasons", "warnings"}


def test_the_build_without_cuda_has_limits_too():
    found = ask("2.15.0", accelerator="cpu", python="3.10")
    assert [cause["rule"] for cause in found["conflicts"]] == ["no-wheel-for-python"]
    assert found["remedies"] == ["Python 3.15: torch 2.15.0+cpu runs here", "torch 2.14.1+cpu runs here"]


@pytest.mark.parametrize(
    ("torch", "gpu", "options", "words"),
    [
        ("2.8.0", H100, {}, "assumed, because not given: machine architecture x86_64"),
        ("2.8.0", H100, {"driver": "580"}, "driver 580.65.06, the first known of branch 580"),
        ("2.8.0", H100, {"driver": "550.163.01"}, "driver branch 550 gets no more fixes"),
        ("2.8.0", H100, {"driver": "570.133.20"}, "gets no more fixes (ended 2026-02)"),
        ("2.8.0", H100, {"driver": "550.163.01"}, "cudaErrorUnsupportedPtxVersion"),
        ("2.8.0", H100, {"driver": "600.10"}, "driver branch 600 is not in the data"),
        ("2.8.0", "NVIDIA B200", {"driver": "580.95.05"}, "which kernel module is installed is not known"),
        ("2.8.0", H100, {}, "whether Secure Boot is on is not known"),
        ("2.8.0", H100, {"driver": "580.95.05", "driver_policy": "570"}, "a downgrade, as wished"),
        ("2.3.1", H100, {}, "NCCL 2.20.5 of torch 2.3.1+cu121 can hang where collectives are captured in CUDA graphs"),
        ("2.11.0", "NVIDIA GB200", {}, "NCCL 2.28.9 of torch 2.11.0+cu130 leaks proxy slots on Arm"),
        ("latest", V100, {"cuda": "12.8"}, "torch 2.15.0 is newer, and does not work here"),
        ("2.8.0", T4, {}, "compute capability 7.5 of Tesla T4"),
        ("2.8.0", T4, {"cuda": "12.9"}, "the code for x86_64"),
        ("2.14.0", H100, {"cuda": "13.4"}, "that it is on the index"),
        ("2.8.0", H100, {"driver_policy": "620"}, "CUDA, the oldest GPUs, the newest GPUs of driver branch 620"),
        ("2.8.0", T4, {"os_id": "rhel", "os_version": "10.1"}, "its fingerprint is not known"),
        ("2.8.0", T4, {"os_id": "arch", "driver": "580.95.05"}, "its packages are not known"),
        ("2.5.1", T4, {"compiler": "gcc 14.2.0"}, "CUDA toolkit 12.4 compiles with GCC up to 13.2"),
    ],
)
def test_a_warning(torch, gpu, options, words):
    plan = ask(torch, gpu, **options)
    assert plan["status"] == "ok", answer.text(plan)
    assert words in "\n".join(plan["warnings"])


def test_a_plan_from_what_was_read_alone_has_no_warning():
    options = {**NOBLE, "driver": "580.95.05-open", "secure_boot": False, "glibc": "2.39", "python": "3.12"}
    assert ask("2.9.0", H100, **options)["warnings"] == []


def test_a_capability_that_was_observed_is_not_called_deduced():
    plan = answer.answer("2.8.0", {"gpus": [{"name": T4, "compute_capability": "7.5"}], "driver": "580.95.05"})
    assert "Tesla T4" not in "\n".join(plan["warnings"])


def test_the_least_driver_of_forward_compatibility_is_its_own():
    found = ask("2.9.0", "NVIDIA A100 80GB PCIe", driver="535.288.01", cuda="13.0", forward_compat=True, **NOBLE)
    assert found["driver"]["minimum"] == "535.54.03"
    assert ask("2.9.0", H100, cuda="13.0", **NOBLE)["driver"]["minimum"] == "580.65.06"


def test_reasons_name_the_next_best_and_their_source():
    plan = ask("2.8.0", H100, driver="550.163.01", **NOBLE)
    says = {reason["rule"]: reason["says"] for reason in plan["reasons"]}
    assert says["order-default-build"] == "torch 2.8.0+cu128: the default build of 2.8.0; next best: torch 2.8.0+cu126"
    assert says["order-driver-stays"].startswith(
        "driver 550.163.01 is installed and can stay; next best: driver branch 580"
    )
    assert "sm_90" in says["gpu-not-in-wheel"]
    assert all(reason["source"] for reason in plan["reasons"])


@pytest.mark.parametrize(
    "options", [{}, {"driver": "550.163.01"}, {"accelerator": "cpu", "gpus": []}, {"cuda": "13.0"}]
)
def test_an_answer_is_json(options):
    found = answer.answer("2.8.0", {"gpus": [H100], **options})
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("torch", "gpus", "options", "expected"),
    [
        (
            "2.9.0",
            ["NVIDIA A100 80GB PCIe"],
            {"driver": "570.133.20", "cuda": "cu130", "driver_policy": "keep"},
            [
                "upgrade the driver to 580 or newer",
                "let the driver be chosen (driver_policy: auto): torch 2.9.0+cu130 runs on driver 580",
                "torch 2.9.0+cu130 runs on driver 570.133.20 with cuda-compat (forward_compat: true)",
                "torch 2.9.0+cu128 runs on driver 570.133.20 (cuda: auto)",
                "torch 2.15.0+cu126 runs on driver 570.133.20 (cuda: auto)",
            ],
        ),
        (
            "2.9.0",
            [V100],
            {"cuda": "13.0"},
            ["torch 2.9.0+cu128 runs on driver 580 (cuda: auto)", "torch 2.15.0+cu126 runs on driver 580 (cuda: auto)"],
        ),
        (
            "2.8.0",
            [V100],
            {"driver": "595.58.03"},
            [
                "go back to driver branch 580 with the proprietary kernel module (driver_policy: '580'): "
                "torch 2.8.0+cu128 runs on driver 580"
            ],
        ),
        (
            "2.8.0",
            [V100],
            {"driver": "595.58.03", "driver_owner": "dgx_os"},
            ["DGX OS: go back to driver branch 580, with the proprietary kernel module"],
        ),
        (
            "2.8.0",
            ["NVIDIA GeForce RTX 5090"],
            {"os_id": "debian", "os_version": "13", "driver_source": "os"},
            [
                "take driver branch 580 with the open kernel module from NVIDIA's repository (driver_source: nvidia): "
                "torch 2.8.0+cu128 runs on driver 580"
            ],
        ),
        (
            "2.8.0",
            [V100, "NVIDIA B200"],
            {},
            [
                "a host with Tesla V100-SXM2-16GB only: torch 2.8.0+cu128 runs on driver 580",
                "a host with NVIDIA B200 only: torch 2.8.0+cu128 runs on driver 580",
            ],
        ),
        (
            "2.8.0",
            [T4],
            {"os_id": "amzn", "os_version": "2"},
            [
                "by the system's own means, install driver 580 or newer (driver_policy: external): "
                "torch 2.6.0+cu124 runs on driver 580.65.06",
                "an operating system with glibc 2.28 or newer",
            ],
        ),
        ("2.8.0", [], {}, []),
        ("2.8.0", ["NVIDIA Z9000"], {}, []),
        (
            "2.9.0",
            ["10de:2c3a"],
            {},
            [
                "where it is true, state {name: '10de:2c3a', compute_capability: '12.0'}: "
                "torch 2.9.0+cu128 runs on driver 580"
            ],
        ),
        (
            "2.9.0",
            [T4],
            {"python": "3.9", "glibc": "2.17"},
            ["torch 2.6.0+cu124 runs on driver 580"],
        ),
        # The conditions of a step belong to it: a last branch, a kernel module.
        (
            "2.8.0",
            [V100],
            {"driver": "450.248.02", "driver_owner": "dgx_os"},
            [
                "DGX OS: upgrade the driver to branch 580, the last with Volta, with the proprietary kernel module",
                "torch 2.7.1+cu118 runs on driver 450.248.02",
            ],
        ),
        (
            "2.8.0",
            ["NVIDIA GeForce RTX 5090"],
            {"driver": "550.163.01", "driver_owner": "runfile"},
            ["the .run installer: upgrade the driver to 580 or newer, with the open kernel module"],
        ),
        (
            "2.8.0",
            [H100],
            {
                "driver": "580.95.05",
                "driver_owner": "dgx_os",
                "driver_flavour": "proprietary",
                "kernel_module": "open",
            },
            [
                "DGX OS: install the open kernel module of driver 580.95.05",
                "driver branch 580 with the proprietary kernel module (kernel_module: auto): "
                "torch 2.8.0+cu128 runs on driver 580.95.05",
            ],
        ),
        # A branch that the owner does not have is a wish too many.
        (
            "2.8.0",
            [H100],
            {"driver": "550.163.01", "driver_owner": "cloud_image", "driver_policy": "580"},
            [
                "the cloud image: upgrade the driver to branch 580, as wished",
                "torch 2.8.0+cu128 runs on driver 550.163.01 (driver_policy: auto)",
            ],
        ),
        # A driver of somebody else and another build, together.
        (
            "2.9.0",
            [V100],
            {"cuda": "13.0", "driver": "450.248.02", "driver_owner": "dgx_os"},
            [
                "DGX OS: upgrade the driver to branch 580, the last with Volta, with the proprietary kernel module "
                "(cuda: auto): torch 2.9.0+cu128 runs on driver 580.65.06",
                "torch 2.7.1+cu118 runs on driver 450.248.02 (cuda: auto)",
            ],
        ),
        # An older branch, another module and another build are one step.
        (
            "2.9.0",
            [V100],
            {"driver": "595.58.03", "driver_owner": "dgx_os", "kernel_module": "open", "cuda": "13.0"},
            [
                "DGX OS: go back to driver branch 580, with the proprietary kernel module "
                "(cuda: auto, kernel_module: auto): torch 2.9.0+cu128 runs on driver 580.65.06"
            ],
        ),
        # The newest release needs what the wished one did not.
        (
            "2.1.1",
            ["NVIDIA GeForce RTX 5090"],
            {"glibc": "2.26", "python": "3.11", "driver": "595.84", "driver_owner": "runfile"},
            ["an operating system with glibc 2.28 or newer: torch 2.15.0+cu132 runs on driver 595.84"],
        ),
        # A step that is not needed is not asked for.
        (
            "2.8.0",
            [H100],
            {"driver": "550.163.01", "driver_owner": "cloud_image", "cuda": "13.0"},
            [
                "torch 2.8.0+cu128 runs on driver 550.163.01 (cuda: auto)",
                "torch 2.15.0+cu126 runs on driver 550.163.01 (cuda: auto)",
            ],
        ),
        # A wish that does not matter is not changed.
        ("2.8.0+cpu", [H100], {}, ["torch 2.8.0+cu128 runs on driver 580", "torch 2.15.0+cu132 runs on driver 580"]),
        # No single change is enough: another Python and another system.
        (
            "2.9.0",
            ["NVIDIA B200"],
            {"python": "3.9", "glibc": "2.17"},
            [
                "Python 3.14, and an operating system with glibc 2.28 or newer: torch 2.9.0+cu128 runs on driver 580",
                "an operating system with glibc 2.28 or newer: torch 2.8.0+cu128 runs on driver 580",
            ],
        ),
    ],
)
def test_remedies(torch, gpus, options, expected):
    found = answer.answer(torch, {"gpus": gpus, **options})
    assert found["status"] == "conflict"
    assert found["remedies"] == expected


def test_a_remedy_leads_to_a_plan():
    asked = request.request("2.9.0", {"gpus": [V100], "cuda": "13.0", "driver": "470.256.02", "driver_policy": "keep"})
    found = remedies_.remedies(resolver.resolve(host.host(asked, DATA)))
    assert found
    for remedy in found:
        assert answer.answer_request(remedy.request, DATA)["status"] == "ok", remedy.says


def test_a_conflict_as_text():
    found = ask(
        "2.9.0", "NVIDIA A100 80GB PCIe", driver="535.288.01", driver_owner="dgx_os", cuda="13.0", forward_compat=True
    )
    assert found["status"] == "ok"
    found = ask("2.9.0", "NVIDIA L4", driver="470.256.02", driver_owner="dgx_os")
    assert answer.text(found, "gpu01") == "\n".join(
        [
            "No plan for gpu01:",
            "  driver-lacks-gpu: NVIDIA L4: found driver 470.256.02 with the proprietary kernel module; "
            "needs branch 520 or newer for Ada",
            "  driver-too-old: driver: found driver 470.256.02 with the proprietary kernel module, "
            "which knows CUDA 11.4; needs driver 525.60.13 or newer for torch 2.9.0+cu128",
            "  driver-owned-elsewhere: driver: found a driver that belongs to DGX OS; needs its change by DGX OS",
            "What works instead:",
            "  1. DGX OS: upgrade the driver to 580 or newer",
        ]
    )
