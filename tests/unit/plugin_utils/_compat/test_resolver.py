# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which build and which driver a host gets: the order, what may be done to a driver, and why there is none."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer, host, loader, request, resolver
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat.rules_wheel import runs_on

DATA = loader.load()
H100, A100, V100, T4 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB", "Tesla T4"
RTX5090, GTX1080, B200, K80 = "NVIDIA GeForce RTX 5090", "NVIDIA GeForce GTX 1080 Ti", "NVIDIA B200", "Tesla K80"


def plan(torch, *gpus, **options):
    found = answer.answer(torch, {"gpus": list(gpus), **options})
    assert found["status"] == "ok", answer.text(found)
    return found


def rules(torch, *gpus, **options):
    found = answer.answer(torch, {"gpus": list(gpus), **options})
    assert found["status"] == "conflict", found
    return [cause["rule"] for cause in found["conflicts"]]


@pytest.mark.parametrize(
    ("torch", "gpu", "options", "requirement", "branch", "action"),
    [
        # The default build of the release, a long-lived branch.
        ("2.8.0", H100, {}, "2.8.0+cu128", "580", "install"),
        ("2.15.0", H100, {}, "2.15.0+cu132", "580", "install"),
        ("latest", H100, {}, "2.15.0+cu132", "580", "install"),
        # A driver that can stay comes before the default build.
        ("2.15.0", H100, {"driver": "550.163.01"}, "2.15.0+cu126", "550", "keep"),
        ("2.8.0", H100, {"driver": "550.163.01"}, "2.8.0+cu128", "550", "keep"),
        ("2.9.0", A100, {"driver": "535.261.03"}, "2.9.0+cu128", "535", "keep"),
        ("2.11.0", A100, {"driver": "595.58.03"}, "2.11.0+cu130", "595", "keep"),
        # latest is the newest release before all else; a range lets the driver come first.
        ("latest", A100, {"driver": "470.256.02"}, "2.15.0+cu132", "580", "upgrade"),
        (">=2.0", A100, {"driver": "470.256.02"}, "2.7.1+cu118", "470", "keep"),
        (">=2.6", A100, {"driver": "535.261.03"}, "2.15.0+cu126", "535", "keep"),
        ("2.8", H100, {}, "2.8.0+cu128", "580", "install"),
        ("2.9", H100, {}, "2.9.1+cu128", "580", "install"),
        (">=2.6,<2.9", H100, {}, "2.8.0+cu128", "580", "install"),
        # GPUs that the default build has no code for.
        ("2.8.0", GTX1080, {}, "2.8.0+cu126", "580", "install"),
        ("2.8.0", V100, {}, "2.8.0+cu128", "580", "install"),
        ("2.15.0", V100, {}, "2.15.0+cu126", "580", "install"),
        ("latest", K80, {}, "2.7.1+cu118", "470", "install"),
        # A wish is kept.
        ("2.8.0", H100, {"cuda": "12.6"}, "2.8.0+cu126", "580", "install"),
        ("2.8.0+cu126", H100, {}, "2.8.0+cu126", "580", "install"),
        ("2.8.0", H100, {"driver_policy": "570"}, "2.8.0+cu128", "570", "install"),
        ("2.8.0", H100, {"driver": "580.95.05", "driver_policy": "570"}, "2.8.0+cu128", "570", "downgrade"),
        ("2.8.0", H100, {"driver": "570.133.20", "driver_policy": "570"}, "2.8.0+cu128", "570", "keep"),
        # A GPU that needs a newer release of the same branch.
        ("2.9.0", "NVIDIA B300 SXM6 AC", {"driver": "580.65.06"}, "2.9.0+cu128", "580", "upgrade"),
        # The other kernel module.
        ("2.8.0", RTX5090, {"driver": "575.51.03", "driver_flavour": "proprietary"}, "2.8.0+cu128", "580", "upgrade"),
        ("2.8.0", "Tesla P4", {"driver": "580.178.04-open"}, "2.8.0+cu126", "580", "upgrade"),
        # aarch64: no default before 2.11, so the newest CUDA.
        ("2.9.0", "NVIDIA GB200", {"arch": "aarch64"}, "2.9.0+cu128", "580", "install"),
        ("2.11.0", "NVIDIA GB200", {}, "2.11.0+cu130", "580", "install"),
        ("2.5.1", "NVIDIA GH200 480GB", {"arch": "aarch64"}, "2.5.1+cu124", "580", "install"),
    ],
)
def test_the_best(torch, gpu, options, requirement, branch, action):
    found = plan(torch, gpu, **options)
    assert found["torch"]["requirement"] == f"torch=={requirement}"
    assert (found["driver"]["branch"], found["driver"]["action"]) == (branch, action)


@pytest.mark.parametrize(
    "owner", ["runfile", "dgx_os", "bcm", "gpu_operator", "vgpu_guest", "wsl", "multiple", "unknown"]
)
def test_a_driver_that_is_not_ours_is_never_touched(owner):
    kept = plan("2.15.0", H100, driver="550.163.01", driver_owner=owner)
    assert kept["driver"]["action"] == "external"
    assert kept["driver"]["packages"] == kept["fabric_manager"]["packages"] == []
    asked = {"driver": "550.163.01", "driver_owner": owner}
    assert rules("2.15.0", H100, cuda="13.0", **asked) == ["driver-too-old", "driver-owned-elsewhere"]
    assert rules("2.15.0", H100, driver_policy="580", **asked) == ["driver-owned-elsewhere"]
    assert rules("2.15.0", H100, driver_owner=owner) == ["driver-owned-elsewhere"]


@pytest.mark.parametrize(
    ("options", "action"),
    [
        ({"driver_owner": "package"}, "keep"),
        ({"driver_owner": "package", "driver_policy": "external"}, "external"),
        ({"driver_owner": "package", "virtualization": "docker"}, "external"),
        ({"driver_owner": "nobody", "virtualization": "wsl"}, "external"),
        ({"kernel": "6.6.87.2-microsoft-standard-WSL2"}, "external"),
        ({"virtualization": "kvm"}, "keep"),
    ],
)
def test_who_looks_after_the_driver(options, action):
    assert plan("2.8.0", T4, driver="580.95.05", **options)["driver"]["action"] == action


def test_a_vgpu_is_external_by_its_name():
    assert plan("2.8.0", "GRID A100-10C", driver="550.144.06", driver_owner="package")["driver"]["action"] == "external"


@pytest.mark.parametrize(
    ("torch", "gpus", "options", "expected"),
    [
        ("9.9.9", [H100], {}, ["unknown-torch"]),
        ("two point nine", [H100], {}, ["unknown-torch"]),
        (">=3.0", [H100], {}, ["unknown-torch"]),
        ("2.8.0", [H100], {"os_id": "alpine", "os_version": "3.22"}, ["not-glibc"]),
        ("2.8.0", ["NVIDIA GH200 480GB"], {"arch": "x86_64"}, ["gpu-on-other-machine"]),
        ("2.8.0", [], {}, ["no-gpu"]),
        ("2.8.0", [], {"accelerator": "cuda"}, ["no-gpu"]),
        ("2.8.0", ["NVIDIA DGX Display"], {}, ["no-gpu"]),
        ("2.8.0", ["NVIDIA Z9000"], {}, ["unknown-gpu"]),
        ("2.8.0", [H100], {"accelerator": "cpu"}, ["gpu-planned-as-cpu"]),
        ("2.8.0+cpu", [H100], {}, ["contradictory-wish"]),
        ("2.8.0+cu126", [H100], {"cuda": "12.8"}, ["contradictory-wish"]),
        ("2.8.0", [], {"accelerator": "cpu", "cuda": "12.8"}, ["contradictory-wish"]),
        ("2.8.0+cu126", [], {"accelerator": "cpu"}, ["contradictory-wish"]),
        ("2.8.0", [H100], {"cuda": "13.0"}, ["variant-not-published"]),
        ("2.8.0", [V100, B200], {}, ["no-common-driver"]),
        ("2.6.0", [K80, RTX5090], {}, ["no-common-driver", "no-common-driver"]),
        ("2.8.0", [H100], {"driver_policy": "keep"}, ["no-driver-to-keep"]),
        ("2.8.0", [H100], {"driver_policy": "999"}, ["driver-not-offered"]),
        ("2.8.0", [H100], {"driver_policy": "620", "kernel_module": "proprietary"}, ["driver-not-offered"]),
        ("2.8.0", [H100], {"os_id": "arch", "os_version": "rolling"}, ["driver-not-offered"]),
        ("2.8.0", [H100], {"os_id": "sles", "os_version": "15.6"}, ["driver-not-offered"]),
        (
            "2.8.0",
            [H100],
            {"os_id": "opensuse-leap", "os_version": "15.6", "kernel_module": "proprietary"},
            ["driver-not-offered"],
        ),
        ("2.8.0", [H100], {"python": "3.14"}, ["no-wheel-for-python"]),
        ("2.8.0", [H100], {"glibc": "2.17"}, ["glibc-too-old"]),
        ("2.8.0", [H100], {"arch": "aarch64", "cuda": "12.8"}, ["no-wheel-for-arch"]),
        ("2.6.0", [RTX5090], {}, ["gpu-not-in-wheel"]),
        ("2.9.0", [T4], {"arch": "aarch64"}, ["gpu-not-in-wheel"]),
        ("2.9.0", [V100], {"cuda": "13.0"}, ["toolkit-dropped-gpu", "gpu-not-in-wheel", "cudnn-dropped-gpu"]),
        ("2.8.0", [RTX5090], {"driver": "550.163.01", "driver_policy": "keep"}, ["driver-lacks-gpu"]),
        ("2.8.0", [V100], {"driver": "595.58.03"}, ["driver-dropped-gpu"]),
        ("2.8.0", [RTX5090], {"kernel_module": "proprietary"}, ["open-module-required"]),
        ("2.8.0", [GTX1080], {"kernel_module": "open"}, ["proprietary-module-required"]),
        (
            "2.8.0",
            [T4],
            {"driver": "580.95.05-open", "driver_policy": "keep", "kernel_module": "proprietary"},
            ["module-not-as-wished"],
        ),
        ("2.9.0", [A100], {"driver": "570.133.20", "cuda": "13.0", "driver_policy": "keep"}, ["driver-too-old"]),
        (
            "2.11.0",
            ["NVIDIA GeForce RTX 3090"],
            {"driver": "535.288.01", "cuda": "13.0", "driver_policy": "keep", "forward_compat": True},
            ["driver-too-old", "forward-compat-unsupported"],
        ),
        (
            "2.8.0",
            [RTX5090],
            {"os_id": "debian", "os_version": "13", "driver_source": "os"},
            ["os-package-too-old"],
        ),
        (
            "2.11.0",
            [A100],
            {"os_id": "debian", "os_version": "12", "driver_source": "os", "cuda": "13.0"},
            ["fabric-manager-mismatch", "os-package-too-old"],
        ),
        (
            "2.8.0",
            [T4],
            {"os_id": "debian", "os_version": "13", "driver_source": "os", "kernel": "6.12.117+deb13-amd64"},
            ["kernel-too-new-for-driver"],
        ),
        ("2.8.0", [T4], {"driver_source": "nvidia", "secure_boot": True}, ["secure-boot-unsigned-module"]),
        (
            "2.8.0",
            [T4],
            {"os_id": "ubuntu", "os_version": "24.04", "driver_source": "os", "kernel": "6.19.3-061903-generic"},
            ["module-not-prebuilt"],
        ),
        ("2.8.0", [T4], {"headers": "missing"}, ["headers-unavailable"]),
        ("2.8.0", [B200], {"kernel": "3.10.0-1160.el7.x86_64"}, ["kernel-too-old-for-driver"]),
        (
            "2.8.0",
            [H100],
            {"driver": "550.107.02", "driver_owner": "dgx_os", "nvswitch": 4, "fabric_manager": "550.90.07"},
            ["fabric-manager-mismatch", "driver-owned-elsewhere"],
        ),
        ("2.8.0", [H100], {"hidden_by": "slurm (42)"}, ["gpus-hidden"]),
        ("2.8.0", [T4], {"os_id": "amzn", "os_version": "2"}, ["glibc-too-old", "driver-not-offered"]),
    ],
)
def test_a_conflict_names_its_rules(torch, gpus, options, expected):
    assert rules(torch, *gpus, **options) == expected


def test_every_rule_has_a_case_above():
    marks = test_a_conflict_names_its_rules.pytestmark[0].args[1]
    named = {rule for _torch, _gpus, _options, expected in marks for rule in expected}
    assert {rule.id for rule in resolver.ALL_RULES} - named == set()
    for rule in resolver.ALL_RULES:
        assert rule.says.endswith(".") and rule.source


@pytest.mark.parametrize(
    ("kernel", "driver", "builds"),
    [
        ("6.12.117+deb13-amd64", "550.163.01", False),
        ("6.12.94+deb13-amd64", "550.163.01", True),
        ("6.12.117-generic", "550.163.01", True),
        ("6.17.13-2-pve", "550.163.01", False),
        ("5.14.0-687.5.1.el9_8.x86_64", "575.57.08", False),
        ("5.14.0-570.12.1.el9_6.x86_64", "575.57.08", True),
        ("5.14.0-687.5.1.el9_8.x86_64", "580.95.05", True),
        ("7.1.0_1", "580.142", False),
        ("7.1.0_1", "580.159.04", True),
        ("7.0.12_1", "580.142", True),
    ],
)
def test_kernels_that_a_driver_is_known_not_to_build_on(kernel, driver, builds):
    found = answer.answer("2.8.0", {"gpus": [T4], "driver": driver, "driver_policy": "keep", "kernel": kernel})
    assert (found["status"] == "ok") is builds
    if not builds:
        assert [cause["rule"] for cause in found["conflicts"]] == ["kernel-too-new-for-driver"]


@pytest.mark.parametrize(
    ("sm", "capability", "cuda", "runs"),
    [
        (60, (6, 1), "12.6", True),
        (60, (6, 2), "12.6", False),
        (70, (7, 2), "12.8", False),
        (70, (7, 2), "13.2", True),
        (75, (8, 0), "13.0", False),
        (80, (8, 6), "12.8", True),
        (80, (8, 7), "12.8", False),
        (80, (8, 7), "13.2", True),
        (86, (8, 0), "12.8", False),
        (86, (8, 9), "12.8", True),
        (90, (10, 0), "12.8", False),
        (100, (10, 3), "12.8", True),
        (100, (10, 1), "12.8", False),
        (110, (11, 0), "13.0", True),
        (110, (12, 0), "13.0", False),
        (120, (12, 1), "12.8", True),
        (120, (10, 0), "12.8", False),
        (101, (10, 1), "12.8", False),
    ],
)
def test_native_code_runs_where_torch_itself_says(sm, capability, cuda, runs):
    assert runs_on(sm, capability, cuda, DATA) is runs


def test_forward_compatibility_is_used_only_where_it_must():
    asked = {"driver": "535.288.01", "forward_compat": True, "os_id": "ubuntu", "os_version": "24.04"}
    without = plan("2.9.0", A100, **asked)
    assert (without["torch"]["variant"], without["cuda"]["forward_compat"]) == ("cu128", False)
    with_it = plan("2.9.0", A100, cuda="13.0", **asked)
    assert with_it["cuda"]["packages"] == ["cuda-toolkit-13-0", "cuda-compat-13-0"]
    assert (with_it["cuda"]["forward_compat"], with_it["driver"]["action"]) == (True, "keep")


def test_the_nearest_miss_explains_and_not_all_of_them():
    """Of five builds and forty drivers, the build with one fault on the driver that stays."""
    found = answer.answer("2.9.0", {"gpus": [A100], "driver": "470.256.02", "driver_policy": "keep"})
    (cause,) = found["conflicts"]
    assert cause["rule"] == "driver-too-old"
    assert "525.60.13" in cause["needs"]


def test_alike_hosts_are_resolved_once(monkeypatch):
    calls = []
    real = resolver.resolve
    monkeypatch.setattr(answer, "resolve", lambda *given: calls.append(given) or real(*given))
    asked = request.request("2.8.0", {"gpus": [H100] * 8, "kernel": "alike-hosts"})
    first = answer.answer_request(asked, DATA)
    assert answer.answer_request(asked, DATA) == first
    assert len(calls) == 1


def test_an_outcome_is_the_same_for_any_order_of_gpus():
    one = resolver.resolve(host.host(request.request("latest", {"gpus": [V100, T4]}), DATA))
    other = resolver.resolve(host.host(request.request("latest", {"gpus": [T4, V100]}), DATA))
    assert one.best == other.best
