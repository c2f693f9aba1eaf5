# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The tables that PyTorch and NVIDIA publish, row by row, out of the lookup as Ansible runs it."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest
import yaml

TABLE = yaml.safe_load((pathlib.Path(__file__).parent / "published.yml").read_text(encoding="utf-8"))["releases"]
HOST = {
    "os_id": "ubuntu",
    "os_version": "24.04",
    "arch": "x86_64",
    "glibc": "2.39",
    "kernel": "6.8.0-90-generic",
    "gpus": ["NVIDIA A100 80GB PCIe"],
    "driver": "",
    "driver_owner": "nobody",
    "secure_boot": False,
}


ROOT = pathlib.Path(__file__).resolve().parents[4]
#: Ansible's own loader in a process of its own: a question a line in, an answer a line out.
LOOKUP = """
import json, sys
from ansible.errors import AnsibleLookupError
from ansible.plugins.loader import init_plugin_loader, lookup_loader
init_plugin_loader([sys.argv[1]])
for line in sys.stdin:
    torch, options = json.loads(line)
    try:
        answer = lookup_loader.get("gpufleet.pytorch.compat").run([torch], variables={}, **options)[0]
    except AnsibleLookupError as problem:
        answer = {"error": str(problem)}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def lookup():
    command = [sys.executable, "-c", LOOKUP, str(ROOT / "collections")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def ask(torch, **options):
            given = {"on_conflict": "report", **HOST, **options}
            process.stdin.write(json.dumps([torch, given]) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def python_of(tag):
    return f"{tag[2]}.{tag[3:]}"


@pytest.mark.parametrize("version", TABLE)
def test_the_default_wheel_and_its_pins(lookup, version):
    """PyTorch: the build that `pip install torch` gives, cuDNN, NCCL, triton and companions in its metadata."""
    row = TABLE[version]
    plan = lookup(version, python=python_of(row["python_x86_64"][-1].rstrip("t")))
    pins = row["pins"]
    assert plan["status"] == "ok", plan
    assert (plan["torch"]["version"], plan["torch"]["variant"]) == (version, row["default"])
    assert (plan["cudnn"]["version"], plan["nccl"]["version"]) == (pins["cudnn"], pins["nccl"])
    assert plan["torch"]["triton"] == re.sub("^==", "", pins["triton"])
    assert plan["torch"]["torchvision"] in row["torchvision"]
    assert plan["torch"]["torchaudio"] in row["torchaudio"]
    assert plan["cuda"]["runtime"] == f"{row['default'][2:4]}.{row['default'][4:]}"


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize("version", TABLE)
def test_every_build_for_each_machine(lookup, version, arch):
    """PyTorch: each build by its name, on a GPU that it has code for; no other build."""
    row = TABLE[version]
    python = python_of(row[f"python_{arch}"][-1].rstrip("t"))
    for variant, codes in row["cuda"].items():
        gpu = (
            {"name": "any", "compute_capability": f"{max(codes[arch]) // 10}.{max(codes[arch]) % 10}"}
            if codes[arch]
            else {}
        )
        plan = lookup(version, cuda=variant, arch=arch, python=python, gpus=[gpu or "NVIDIA GH200 480GB"])
        if codes[arch]:
            assert (plan["status"], plan["torch"]["variant"]) == ("ok", variant), plan
            assert variant in plan["torch"]["index_url"]
        else:
            assert {cause["rule"] for cause in plan["conflicts"]} & {"no-wheel-for-arch", "gpu-not-in-wheel"}, plan
    other = "cu117" if "cu117" not in row["cuda"] else "cu121"
    refused = lookup(version, cuda=other, arch=arch, python=python)
    assert "variant-not-published" in {cause["rule"] for cause in refused["conflicts"]}


PYTHONS = [f"3.{minor}{suffix}" for minor in range(7, 17) for suffix in (("", "t") if minor >= 13 else ("",))]


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
@pytest.mark.parametrize("version", TABLE)
def test_every_python(lookup, version, arch):
    """PyTorch: a plan for each Python that has a wheel, a conflict by name for each that has none."""
    tags = TABLE[version][f"python_{arch}"]
    gpus = ["NVIDIA GH200 480GB"] if arch == "aarch64" else HOST["gpus"]
    has_cuda = any(codes[arch] for codes in TABLE[version]["cuda"].values())
    for python in (
        "3.7",
        "3.8",
        "3.9",
        "3.10",
        "3.11",
        "3.12",
        "3.13",
        "3.13t",
        "3.14",
        "3.14t",
        "3.15",
        "3.15t",
        "3.16",
    ):
        plan = lookup(version, python=python, arch=arch, gpus=gpus)
        if "cp" + python.replace(".", "") not in tags:
            assert "no-wheel-for-python" in {cause["rule"] for cause in plan["conflicts"]}, python
        elif has_cuda:
            assert plan["status"] == "ok", (python, plan)


#: NVIDIA, CUDA release notes, tables 2 and 3: the oldest driver of a major, and the release before it.
FLOORS = [
    ("cu118", "2.4.1", "450.80.02", "450.51.06"),
    ("cu121", "2.4.1", "525.60.13", "520.61.05"),
    ("cu128", "2.8.0", "525.60.13", "515.105.01"),
    ("cu130", "2.9.0", "580.65.06", "575.64.05"),
    ("cu132", "2.15.0", "580.65.06", "575.64.05"),
]


@pytest.mark.parametrize(("variant", "version", "least", "before"), FLOORS)
def test_least_driver_of_a_cuda_major(lookup, variant, version, least, before):
    options = {"cuda": variant, "python": "3.11", "driver_owner": "package", "driver_policy": "keep"}
    options["gpus"] = ["Tesla T4"]
    good = lookup(version, driver=least, **options)
    assert (good["status"], good["driver"]["action"], good["driver"]["minimum"]) == ("ok", "keep", least)
    bad = lookup(version, driver=before, **options)
    assert [cause["rule"] for cause in bad["conflicts"]] == ["driver-too-old"]


#: NVIDIA, toolkit, driver and architecture matrix, README of the open kernel modules, MIG guide: a GPU, its first and
#: last branch, the flavours of its module, and the releases of torch between which it has a build.
WINDOWS = [
    ("Tesla K80", None, "470", {"proprietary"}, "2.0.0", "2.7.1"),
    ("Tesla P100-PCIE-16GB", None, "580", {"proprietary"}, "2.0.0", "2.15.0"),
    ("Tesla V100-SXM2-32GB", None, "580", {"proprietary"}, "2.0.0", "2.15.0"),
    ("Tesla T4", None, None, {"open", "proprietary"}, "2.0.0", "2.15.0"),
    ("NVIDIA H100 80GB HBM3", "525", None, {"open", "proprietary"}, "2.0.0", "2.15.0"),
    ("NVIDIA B200", "570", None, {"open"}, "2.7.0", "2.15.0"),
    ("NVIDIA GeForce RTX 5090", "570", None, {"open"}, "2.7.0", "2.15.0"),
]
KEPT = {"470": "470.256.02", "525": "525.147.05", "570": "570.211.01", "580": "580.95.05", "595": "595.84"}


@pytest.mark.parametrize(("gpu", "first", "last", "flavours", "oldest", "newest"), WINDOWS)
def test_windows_of_a_gpu(lookup, gpu, first, last, flavours, oldest, newest):
    options = {"gpus": [gpu], "python": "3.11", "driver_owner": "package", "driver_policy": "keep"}
    for branch, driver in KEPT.items():
        plan = lookup("2.7.1", driver=driver, **options)
        rules = {cause["rule"] for cause in plan.get("conflicts", [])}
        if last and int(branch) > int(last):
            assert "driver-dropped-gpu" in rules, (branch, plan)
        elif first and int(branch) < int(first):
            assert "driver-lacks-gpu" in rules, (branch, plan)
        else:
            assert plan["status"] == "ok", (branch, plan)
    for flavour in ("open", "proprietary"):
        plan = lookup(newest, gpus=[gpu], python="3.11", kernel_module=flavour, driver="580.95.05-" + flavour)
        assert (plan["status"] == "ok") == (flavour in flavours and last != "470"), (flavour, plan)
    works = [version for version in TABLE if lookup(version, driver=KEPT[last or "580"], **options)["status"] == "ok"]
    assert (works[0], works[-1]) == (oldest, newest)


def test_a_conflict_is_a_readable_error(lookup):
    found = lookup("2.9.0+cu130", driver="550.163.01", driver_policy="keep", on_conflict="fail")
    assert re.search(r"driver-too-old: .*550\.163\.01.*\n.*instead:\n  1\. ", found["error"])
