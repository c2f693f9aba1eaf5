# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock: made, read again, held against later plans."""

from __future__ import annotations

import copy

import pytest
import yaml

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import lock

SHA = "a" * 64
PLAN = {
    "status": "ok",
    "torch": {
        "version": "2.15.0",
        "variant": "cu132",
        "requirement": "torch==2.15.0",
        "index_url": "",
        "torchvision": "0.29.2",
        "torchaudio": "2.11.1",
        "triton": "~=3.9.0",
    },
    "driver": {
        "branch": "580",
        "version": "580.178.04",
        "kernel_module": "open",
        "action": "install",
        "packages": ["a"],
    },
    "cuda": {"runtime": "13.2", "toolkit": "13.2", "packages": []},
    "cudnn": {"version": "9.26.0.51"},
    "nccl": {"version": "2.30.7"},
    "fabric_manager": {"required": False, "version": "", "nvlsm": False, "imex": False},
    "reasons": [{"rule": "x", "says": "y"}],
    "warnings": [],
}
TARGET = {"python": "3.12", "arch": "x86_64", "glibc": "2.39"}
WHEELS = (f"torch==2.15.0 --hash=sha256:{SHA}", f"filelock==4.3.1 --hash=sha256:{SHA}")


def host(plan=None, wheels=WHEELS, **target):
    return {"plan": plan or PLAN, "target": {**TARGET, **target}, "wheels": wheels}


def changed(path, value, plan=None):
    plan = copy.deepcopy(plan or PLAN)
    *parents, last = path.split(".")
    cell = plan
    for key in parents:
        cell = cell[key]
    cell[last] = value
    return plan


def test_the_text_is_sorted_and_the_same_for_the_same_fleet():
    one = lock.build({"gpu02": host(), "gpu01": host(wheels=WHEELS[::-1])})
    two = lock.build({"gpu01": host(), "gpu02": host()})
    assert one == two
    content = yaml.safe_load(one)
    name = "torch-2.15.0+cu132 driver-580.178.04 python-3.12 x86_64"
    assert content["hosts"] == {"gpu01": name, "gpu02": name}
    assert content["plans"][name]["wheels"] == sorted(WHEELS)


def test_one_changed_hash_is_one_changed_line():
    before = lock.build({"gpu01": host()}).splitlines()
    after = lock.build({"gpu01": host(wheels=[WHEELS[0], WHEELS[1].replace("a" * 64, "b" * 64)])}).splitlines()
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_unlike_hosts_of_the_same_name_keep_apart():
    text = lock.build(
        {"gpu01": host(), "gpu02": host(changed("nccl.version", "2.29.7")), "gpu03": host(arch="aarch64")}
    )
    content = yaml.safe_load(text)
    assert content["hosts"]["gpu02"] == content["hosts"]["gpu01"] + " (2)"
    assert content["hosts"]["gpu03"].endswith("aarch64")
    assert lock.check(text, "gpu02", changed("nccl.version", "2.29.7"), TARGET) == ([], sorted(WHEELS))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("driver.action", "keep"),
        ("driver.packages", []),
        ("reasons", []),
        ("warnings", ["branch 580 ends in 2028"]),
    ],
)
def test_what_changes_once_a_host_is_converged_is_no_difference(path, value):
    text = lock.build({"gpu01": host()})
    assert lock.check(text, "gpu01", changed(path, value), TARGET) == ([], sorted(WHEELS))


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("torch.version", "2.14.1", "gpu01: torch.version is locked at 2.15.0, planned is 2.14.1"),
        ("torch.variant", "cu130", "gpu01: torch.variant is locked at cu132, planned is cu130"),
        ("driver.version", "580.159.03", "gpu01: driver.version is locked at 580.178.04, planned is 580.159.03"),
        (
            "driver.kernel_module",
            "proprietary",
            "gpu01: driver.kernel_module is locked at open, planned is proprietary",
        ),
        ("nccl.version", "2.29.7", "gpu01: nccl.version is locked at 2.30.7, planned is 2.29.7"),
        ("fabric_manager.required", True, "gpu01: fabric_manager.required is locked at False, planned is True"),
        ("status", "conflict", "gpu01: status is locked at ok, planned is conflict"),
    ],
)
def test_a_difference_is_named_and_nothing_is_to_be_installed(path, value, line):
    found, wheels = lock.check(lock.build({"gpu01": host()}), "gpu01", changed(path, value), TARGET)
    assert (lock.describe(found), wheels) == ([line], [])


def test_another_python_is_a_difference():
    found, _wheels = lock.check(lock.build({"gpu01": host()}), "gpu01", PLAN, {**TARGET, "python": "3.13"})
    assert lock.describe(found) == ["gpu01: target.python is locked at 3.12, planned is 3.13"]


def test_a_host_that_is_not_in_the_lock_is_a_difference():
    found, _wheels = lock.check(lock.build({"gpu01": host()}), "gpu02", PLAN, TARGET)
    assert lock.describe(found) == ["gpu02: not in the lock; make the lock again with this host in it"]


@pytest.mark.parametrize(("path", "value"), [("driver.version", ""), ("driver.kernel_module", "unknown")])
def test_what_was_not_known_binds_nothing(path, value):
    text = lock.build({"gpu01": host(changed(path, value))})
    assert lock.check(text, "gpu01", PLAN, TARGET)[0] == []


def test_a_host_of_another_name_has_what_was_locked_for_its_like():
    text = lock.build({"gpu01": host(), "gpu02": host(changed("torch.version", "2.14.0"))})
    assert lock.check_any(text, "far01", PLAN, TARGET) == ([], sorted(WHEELS))
    found, lines = lock.check_any(text, "far01", changed("torch.variant", "cu126"), TARGET)
    assert lines == [] and lock.describe(found) == ["gpu01: torch.variant is locked at cu132, planned is cu126"]
    # Its own name counts first.
    found, lines = lock.check_any(text, "gpu02", PLAN, TARGET)
    assert lines == [] and [item["cell"] for item in found] == ["torch.version"]


def test_a_host_without_gpu_has_no_driver_to_lock():
    plan = {"status": "ok", "accelerator": "cpu", "torch": {**PLAN["torch"], "variant": "cpu"}, "driver": None}
    text = lock.build({"localhost": host(plan)})
    assert lock.check(text, "localhost", plan, TARGET) == ([], sorted(WHEELS))
    assert "torch-2.15.0+cpu python-3.12 x86_64" in text


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        ({"b": host(changed("status", "conflict")), "a": host(changed("status", "conflict"))}, "no plan: a, b"),
        ({"a": host(wheels=[])}, "a: no wheels"),
    ],
)
def test_what_cannot_be_locked(hosts, says):
    with pytest.raises(lock.LockProblem, match=says):
        lock.build(hosts)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no `schema`"),
        ("- a", "no `schema`"),
        ("{", "not YAML"),
        ("schema: 2", "schema 2, this release reads 1"),
        ("schema: 1\nhosts: []\nplans: {}", "`hosts` and `plans`"),
        ("schema: 1\nhosts: {a: b}\nplans: {}", "host a: its plan 'b'"),
        ("schema: 1\nhosts: {a: b}\nplans: {b: {parts: {}, target: {}, wheels: [torch==1]}}", "'torch==1' is no"),
    ],
)
def test_what_is_no_lock(text, says):
    with pytest.raises(lock.LockProblem, match=says):
        lock.check(text, "a", PLAN, TARGET)
