# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of a play's hosts together: a table of fleets, and what each host is told."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet.planning import plan_hosts, wishes

H100, P100 = "NVIDIA H100 80GB HBM3", "Tesla P100-PCIE-16GB"


def host(gpus=8, name=H100, driver="580.95.05", **more):
    """What gpu_info sees of an Ubuntu host with so many GPUs and a driver of its packages."""
    pci = [
        {
            "address": f"0000:{number:02x}:00.0",
            "vendor": "10de",
            "device": "2330",
            "class": "0302",
            "driver": "nvidia",
            "role": "gpu",
        }
        for number in range(1, gpus + 1)
    ]
    return {
        "observed_at": "2026-12-01T00:00:00Z",
        "host": {
            "os": {"id": "ubuntu", "version": "24.04"},
            "kernel": "6.8.0-50-generic",
            "arch": "x86_64",
            "glibc": "2.39",
            "python": "3.12.3",
            "virtualization": "none",
            "secure_boot": "disabled",
            "dxg": False,
        },
        "pci": pci,
        "driver": {"owner": "package", "version": driver, "library_version": driver, "kernel_module": "open"},
        "nvml": {"state": "ok", "source": "nvml", "error": ""},
        "gpus": [
            {"index": number, "uuid": f"GPU-{number}", "pci_address": device["address"], "name": name, "state": "ok"}
            for number, device in enumerate(pci)
        ],
        "visibility": {"hidden_by": [], "device_nodes": [], "denied": []},
        "environment": {},
        "baseline_gpus": None,
        "errors": {},
        **more,
    }


def bare(**more):
    """A machine on which nothing speaks for a GPU."""
    nothing = {"owner": "nobody", "version": "", "library_version": "", "kernel_module": ""}
    nvml = {"state": "no_library", "source": "none", "error": ""}
    return {**host(0), "driver": nothing, "nvml": nvml, **more}


def planned(observations, **variables):
    return plan_hosts({name: dict(variables) for name in observations}, observations)


def test_alike_hosts_get_one_plan():
    found = planned({f"gpu{number}": host() for number in range(4)}, pytorch_version="2.13.0")
    assert {item.plan["torch"]["requirement"] for item in found.values()} == {"torch==2.13.0+cu130"}
    assert all(item.accelerator == "cuda" and not item.msg for item in found.values())


@pytest.mark.parametrize(
    ("counts", "failing"),
    [
        ({"a": 8, "b": 8, "c": 8}, set()),
        ({"a": 8, "b": 8, "c": 7}, {"c"}),
        ({"a": 8, "b": 7}, set()),
    ],
)
def test_a_host_is_measured_against_most_of_its_group(counts, failing):
    found = planned({name: host(count) for name, count in counts.items()}, pytorch_version="2.13.0")
    assert {name for name, item in found.items() for finding in item.findings if finding.state == "fail"} == failing


def test_what_the_user_states_counts_more_than_the_group():
    found = planned({name: host(8) for name in "abc"}, pytorch_version="2.13.0", gpus_expected=4)
    assert all(any(finding.check == "gpu-count" for finding in item.findings) for item in found.values())
    found = planned({name: host(4) for name in "abc"}, pytorch_version="2.13.0", gpus_expected=4)
    assert not any(finding.state == "fail" for item in found.values() for finding in item.findings)


@pytest.mark.parametrize(
    ("observed", "variables", "accelerator"),
    [
        (bare(), {"gpufleet_accelerator": "auto"}, "cpu"),
        (bare(), {}, "refuse"),
        (bare(), {"gpufleet_accelerator": "auto", "gpus_expected": 8}, "refuse"),
        (bare(baseline_gpus=8), {"gpufleet_accelerator": "auto"}, "refuse"),
        (bare(errors={"expected": "truncated"}), {"gpufleet_accelerator": "auto"}, "refuse"),
        (host(), {"gpufleet_accelerator": "auto"}, "cuda"),
    ],
)
def test_a_gpu_host_never_becomes_a_cpu_host(observed, variables, accelerator):
    found = planned({"one": observed}, pytorch_version="2.13.0", **variables)["one"]
    assert found.accelerator == accelerator
    assert bool(found.msg) is (accelerator == "refuse")
    assert found.plan.get("accelerator") == (None if accelerator == "refuse" else accelerator)


def test_hosts_that_share_no_jobs_are_planned_apart():
    observations = {"old": host(name=P100, driver="535.288.01"), "new": host()}
    hosts = {
        "old": {"pytorch_version": "2.9.0", "plan_group": "p100"},
        "new": {"pytorch_version": "2.9.0", "plan_group": "h100"},
    }
    found = plan_hosts(hosts, observations)
    assert found["old"].plan["torch"]["variant"] == "cu126"
    assert found["new"].plan["torch"]["variant"] == "cu128"


def test_every_conflict_is_told_at_once():
    found = planned({"a": host(driver="470.256.02", driver_policy="keep"), "b": host()}, pytorch_version="2.99.0")
    assert all("unknown-torch" in item.msg for item in found.values())


@pytest.mark.parametrize(
    ("variables", "environment", "torch", "options"),
    [
        ({}, {}, "latest", {"python": "3.12.3"}),
        ({"pytorch_version": "2.13.0"}, {"python_version": "3.11.2"}, "2.13.0", {"python": "3.11"}),
        (
            {"pytorch_python": "/opt/conda/bin/python"},
            {"python_version": "3.11.2", "torch_version": "2.9.1+cu128", "torch_cuda": "12.8"},
            "2.9.1",
            {"python": "3.11", "cuda": "12.8"},
        ),
        (
            {"pytorch_python": "/opt/conda/bin/python", "pytorch_version": "2.13.0"},
            {"python_version": "3.11.2", "torch_version": "2.13.0+cpu", "torch_cuda": None},
            "2.13.0",
            {"python": "3.11"},
        ),
    ],
)
def test_wishes(variables, environment, torch, options):
    asked, given = wishes(variables, host(environment=environment), "cuda")
    assert asked == torch
    assert {key: given[key] for key in options} == options
    assert given["accelerator"] == "cuda"
    assert ("cuda" in given) is ("cuda" in options)


@pytest.mark.parametrize(
    ("variables", "environment", "usable"),
    [
        ({}, {}, True),
        ({"pytorch_python": "/p"}, {"python": "/p", "error": "/p is a folder"}, False),
        (
            {"pytorch_python": "/p"},
            {"python": "/p", "python_version": "3.11.2", "error": "torch is not installed in it"},
            False,
        ),
        ({"pytorch_python": "/p"}, {"python": "/p", "python_version": "3.11.2", "torch_version": "2.13.0"}, True),
        ({"pytorch_base_python": "/b"}, {"python": "/b", "error": "/b is not there"}, False),
        (
            {"pytorch_base_python": "/b"},
            {"python": "/b", "python_version": "3.11.2", "error": "torch is not installed in it"},
            True,
        ),
    ],
)
def test_an_interpreter_that_cannot_be_used_is_no_plan(variables, environment, usable):
    found = planned({"one": host(environment=environment)}, pytorch_version="2.13.0", **variables)["one"]
    assert bool(found.plan) is usable
    assert bool(found.msg) is not usable
    if not usable:
        assert environment["error"] in found.msg and "the path of a Python" in found.msg


def image(**more):
    """What gpu_info sees of an image of Ubuntu: no device, and the kernel that it starts."""
    seen = bare(**more)
    seen["host"] = {**seen["host"], "secure_boot": "unknown", **more.get("host", {})}
    return seen


@pytest.mark.parametrize(
    ("variables", "driver", "fabric"),
    [
        ({"plan_gpus": [H100]}, ("open", "dkms", "install"), True),
        ({"plan_gpus": [H100], "plan_nvswitches": 0}, ("open", "dkms", "install"), False),
        ({"plan_gpus": [P100], "pytorch_version": "2.9.0"}, ("proprietary", "dkms", "install"), False),
        # Under Secure Boot only what the distribution built and signed is loaded.
        ({"plan_gpus": [H100], "plan_secure_boot": True}, ("open", "prebuilt", "install"), True),
    ],
)
def test_an_image_is_planned_for_the_gpus_that_will_run_it(variables, driver, fabric):
    found = planned({"img": image()}, gpufleet_mode="image", **{"pytorch_version": "2.12.0", **variables})["img"]
    assert found.msg == "" and found.accelerator == "cuda"
    part = found.plan["driver"]
    assert (part["kernel_module"], part["build"], part["action"]) == driver
    assert found.plan["fabric_manager"]["required"] is fabric
    # Never ready: nothing of it was proved.
    assert [(item.check, item.state) for item in found.findings] == [("never-proved", "unknown")]
    assert found.steps[-1] == "leave the proof to the first start"


def test_an_image_without_its_gpus_has_no_plan():
    for wish in ({}, {"plan_gpus": []}, {"gpufleet_accelerator": "auto"}):
        found = planned({"img": image()}, gpufleet_mode="image", pytorch_version="2.13.0", **wish)["img"]
        assert found.plan == {} and "plan_gpus is not set" in found.msg


def test_the_gpus_of_an_image_are_no_wish_of_a_host():
    found = planned({"one": bare()}, pytorch_version="2.13.0", plan_gpus=[H100])["one"]
    assert found.accelerator == "refuse" and found.plan == {}


def test_images_do_not_count_in_the_majority_of_hosts():
    observations = {"a": host(8), "b": host(8), "i1": image(), "i2": image(), "i3": image()}
    hosts = {name: {"pytorch_version": "2.13.0"} for name in observations}
    for name in ("i1", "i2", "i3"):
        hosts[name] |= {"gpufleet_mode": "image", "plan_gpus": [H100]}
    found = plan_hosts(hosts, observations)
    assert not any(item.state == "fail" for name in "ab" for item in found[name].findings)
    assert {found[name].plan["torch"]["variant"] for name in found} == {"cu130"}


@pytest.mark.parametrize("name", ["Talos (v1.11)", "Flatcar Container Linux", "Fedora CoreOS 43"])
def test_an_image_based_system_without_a_driver_is_refused_before_the_first_task(name):
    seen = host()
    seen["driver"] = {**bare()["driver"], "owner": "image_os", "owners": [{"owner": "image_os", "evidence": name}]}
    seen |= {"nvml": bare()["nvml"], "gpus": []}
    found = planned({"one": seen}, pytorch_version="2.13.0")["one"]
    assert found.plan["status"] == "conflict" and "driver-owned-elsewhere" in found.msg
    assert found.steps == []
