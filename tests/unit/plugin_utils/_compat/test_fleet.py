# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that share jobs get one release, one build and one Python, or are told why not."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer, fleet, loader
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat.request import request

DATA = loader.load()
H100, A100, V100, RTX5090 = (
    "NVIDIA H100 80GB HBM3",
    "NVIDIA A100-SXM4-40GB",
    "Tesla V100-SXM2-16GB",
    "NVIDIA GeForce RTX 5090",
)
K80, B200 = "Tesla K80", "NVIDIA B200"


def together(torch="latest", **hosts):
    requests = {name: request(torch, {"arch": "x86_64", **options}) for name, options in hosts.items()}
    return fleet.plan_group(requests, DATA)


def requirements(found):
    return {name: answer["torch"]["requirement"] for name, answer in found.items()}


@pytest.mark.parametrize(
    ("torch", "hosts", "requirement"),
    [
        ("latest", {"a": {"gpus": [H100]}, "b": {"gpus": [A100]}}, "torch==2.15.0+cu132"),
        # One V100 among them: the build that has code for all.
        ("latest", {"a": {"gpus": [H100]}, "b": {"gpus": [V100]}}, "torch==2.15.0+cu126"),
        # Volta and consumer Blackwell: only cu128 and cu129 up to 2.10 have code for both.
        ("latest", {"a": {"gpus": [RTX5090]}, "b": {"gpus": [V100]}}, "torch==2.10.0+cu128"),
        # One driver that must stay.
        ("latest", {"a": {"gpus": [H100]}, "b": {"gpus": [H100], "driver": "550.163.01", "driver_owner": "dgx_os"}},
         "torch==2.15.0+cu126"),
        ("2.8.0", {"a": {"gpus": [H100]}, "b": {"gpus": [A100], "driver": "535.261.03"}}, "torch==2.8.0+cu128"),
        ("2.9.0", {"a": {"gpus": [H100]}, "b": {"gpus": ["NVIDIA GH200 480GB"], "arch": "aarch64"}},
         "torch==2.9.0+cu128"),
    ],
)  # fmt: skip
def test_one_build_for_all(torch, hosts, requirement):
    found = together(torch, **hosts)
    assert requirements(found) == dict.fromkeys(hosts, requirement)
    assert len({answer["nccl"]["version"] for answer in found.values()}) == 1


def test_each_host_keeps_its_own_driver():
    found = together(a={"gpus": [H100], "driver": "595.58.03"}, b={"gpus": [V100]})
    drivers = {name: (answer["driver"]["branch"], answer["driver"]["action"]) for name, answer in found.items()}
    assert drivers == {"a": ("595", "keep"), "b": ("580", "install")}


@pytest.mark.parametrize("torch", ["latest", "2.8.0", ">=2.6"])
@pytest.mark.parametrize("gpu", [H100, V100, RTX5090])
@pytest.mark.parametrize("driver", ["", "550.163.01", "580.95.05"])
def test_alone_or_among_alike_hosts_a_host_has_its_own_plan_and_reasons(torch, gpu, driver):
    options = {"arch": "x86_64", "gpus": [gpu], "driver": driver}
    alone = answer.answer(torch, options)
    assert together(torch, a=options) == {"a": alone}
    assert together(torch, a=options, b=options) == {"a": alone, "b": alone}


def test_hosts_that_hold_others_back_are_named():
    found = together(a={"gpus": [H100]}, b={"gpus": [V100]}, c={"gpus": [A100]})
    reason = found["a"]["reasons"][0]
    assert reason["rule"] == "group-common"
    assert reason["says"] == (
        "torch 2.15.0+cu126: the best for all hosts that share jobs; alone this host would run torch 2.15.0+cu132, "
        f"which does not work on b ({V100})"
    )
    assert found["b"] == answer.answer("latest", {"arch": "x86_64", "gpus": [V100]})


def test_a_newer_release_that_a_group_cannot_have_says_because_of_whom():
    found = together(a={"gpus": [RTX5090]}, b={"gpus": [V100]})
    (warning,) = [line for line in found["a"]["warnings"] if "for the sake" in line]
    assert warning.endswith(f"does not run torch 2.15.0+cu132, which does not work on b ({V100})")
    assert not any("does not work here ()" in line for answer in found.values() for line in answer["warnings"])


def test_a_host_whose_driver_would_have_to_go_is_named():
    found = together(
        "2.15.0",
        a={"gpus": [H100]},
        b={"gpus": [H100], "driver": "550.163.01", "driver_owner": "package"},
    )
    assert found["a"]["torch"]["variant"] == "cu126"
    assert f"torch 2.15.0+cu132, which needs another driver on b ({H100})" in found["a"]["reasons"][0]["says"]


def test_equal_hosts_are_named_together_in_a_conflict():
    found = together(a={"gpus": [K80]}, b={"gpus": [B200], "kernel": "6.8.0"}, c={"gpus": [B200]})
    (cause,) = found["a"]["conflicts"]
    assert "b, c (NVIDIA B200)" in cause["found"]


def test_nothing_in_common_is_said_to_all_with_what_works():
    found = together(a={"gpus": [K80]}, b={"gpus": [H100]}, c={"gpus": [B200]})
    assert {answer["status"] for answer in found.values()} == {"conflict"}
    (cause,) = found["a"]["conflicts"]
    assert cause["rule"] == "fleet-not-coherent"
    assert "a (Tesla K80)" in cause["found"] and "c (NVIDIA B200)" in cause["found"]
    assert found["a"] == found["b"] == found["c"]
    assert found["a"]["remedies"] == [
        "groups that share no jobs (plan_group): a with torch 2.7.1+cu118; b, c with torch 2.15.0+cu132"
    ]


def test_a_wish_that_only_some_can_have():
    found = together("2.9.0", a={"gpus": [H100], "cuda": "13.0"}, b={"gpus": [V100], "cuda": "12.8"})
    assert found["a"]["conflicts"][0]["rule"] == "fleet-not-coherent"
    assert found["a"]["remedies"][0] == "torch latest and cuda auto for all: torch 2.15.0+cu126"


def test_one_python_for_all():
    found = together(
        "2.9.0", a={"gpus": [H100], "python": "3.11"}, b={"gpus": [A100], "python": "3.12"}, c={"gpus": [A100]}
    )
    (cause,) = found["a"]["conflicts"]
    assert (cause["rule"], cause["subject"]) == ("fleet-not-coherent", "python")
    assert cause["found"] == "3.11 on a; 3.12 on b"
    assert "Python 3.12 on all hosts: torch 2.9.0+cu128" in found["a"]["remedies"]


def test_a_host_without_a_plan_of_its_own_does_not_spoil_the_others():
    found = together("2.9.0", a={"gpus": [H100]}, b={"gpus": ["NVIDIA Z9000"]}, c={"gpus": []})
    assert found["a"]["status"] == "ok"
    assert [found[name]["conflicts"][0]["rule"] for name in "bc"] == ["unknown-gpu", "no-gpu"]


def test_hosts_without_gpus_and_hosts_with_are_no_fleet():
    found = together("2.9.0", a={"gpus": [H100]}, b={"accelerator": "cpu"})
    assert found["a"]["conflicts"][0]["rule"] == "fleet-not-coherent"


def test_a_group_of_one_and_of_none():
    assert requirements(together("2.9.0", a={"gpus": [H100]})) == {"a": "torch==2.9.0+cu128"}
    assert fleet.plan_group({}, DATA) == {}


def test_alike_hosts_are_resolved_once(monkeypatch):
    """A thousand hosts of two kinds are two to resolve."""
    calls = []
    real = fleet.resolve
    monkeypatch.setattr(fleet, "resolve", lambda *given: calls.append(given) or real(*given))
    hosts = {f"gpu{number:04}": {"gpus": [H100 if number % 2 else A100] * 8} for number in range(1000)}
    found = together("2.9.0", **hosts)
    assert len(found) == 1000
    assert len(calls) == 2
