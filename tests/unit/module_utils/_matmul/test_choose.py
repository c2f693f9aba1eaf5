# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU host is never proved on its CPU, and where no GPU can be proved the cause is told."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.choose import choose, dtypes
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.prove import (
    SURVEY_S,
    Settings,
    _places,
    _supervisor,
)

H100 = {"name": "NVIDIA H100 80GB HBM3", "uuid": "GPU-1", "index": 0}
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Release Build"


def report(
    torch_cuda="12.8", devices=(), module=MODULE, libcuda="ok", cu_init=0, pci=("0000:1b:00.0",), error="", **env
):
    return {
        "torch_version": "2.8.0",
        "torch_cuda": torch_cuda,
        "cuda": {
            "devices": list(devices),
            "error": error,
            "nvidia_pci": list(pci),
            "hidden_by": env,
            "driver": {"kernel_module": module, "libcuda": libcuda, "cu_init": cu_init},
        },
    }


NO_GPU = report(torch_cuda=None, module=None, libcuda="libcuda.so.1: cannot open", pci=())


@pytest.mark.parametrize(
    "facts, asked, accelerator, kind",
    [
        (report(devices=[H100]), "auto", None, "cuda"),
        (report(devices=[H100]), "auto", "cuda", "cuda"),
        (report(devices=[H100]), "cuda", None, "cuda"),
        (report(devices=[H100]), "cpu", None, "cpu"),
        (NO_GPU, "auto", None, "cpu"),
        (NO_GPU, "auto", "cpu", "cpu"),
        (NO_GPU, "cpu", None, "cpu"),
        (NO_GPU, "auto", "cuda", ""),
        (NO_GPU, "cuda", None, ""),
        (report(torch_cuda=None), "auto", None, ""),  # a GPU on PCI, and the CPU build
        (report(pci=()), "auto", None, ""),  # a driver and no device: a container that was given none
        (report(module=None, pci=(), CUDA_VISIBLE_DEVICES=""), "auto", None, ""),
    ],
)
def test_where_the_proof_runs(facts, asked, accelerator, kind):
    chosen = choose(facts, asked, accelerator, 2)
    assert chosen.kind == kind
    assert chosen.finding.state == ("ok" if kind else "fail")


@pytest.mark.parametrize(
    "facts, says",
    [
        (report(torch_cuda=None), "torch 2.8.0 is built without CUDA"),
        (report(module=None), "1 NVIDIA GPUs on PCI, but no NVIDIA kernel module is loaded"),
        (report(libcuda="libcuda.so.1: cannot open shared object file"), "the driver's library cannot be loaded"),
        (report(CUDA_VISIBLE_DEVICES=""), "hidden by CUDA_VISIBLE_DEVICES=''"),
        (
            report(cu_init=802, error="RuntimeError: Error 802: system not yet initialized"),
            "cuInit answers 802; torch says: RuntimeError: Error 802: system not yet initialized",
        ),
    ],
)
def test_why_there_is_no_gpu(facts, says):
    assert says in choose(facts, "auto", "cuda", 2).finding.found


@pytest.mark.parametrize(
    "kind, asked, state, action, says",
    [
        ("cpu", ["tf32"], "unknown", "fix configuration", "nothing was run: a CPU has no tf32"),
        (
            "cpu",
            ["tf32", "float8_e5m2"],
            "unknown",
            "fix configuration",
            "nothing was run: a CPU has no tf32, float8_e5m2",
        ),
        ("cpu", ["tf32", "float32"], "not_applicable", "none", "a CPU has no tf32; the other types were proved"),
        ("cpu", ["int8"], None, None, None),
        ("cpu", [], None, None, None),
        ("cuda", ["tf32"], None, None, None),
    ],
)
def test_types_that_a_cpu_has_not_are_a_fault_of_the_wish(kind, asked, state, action, says):
    found = [(item.state, item.action, item.found or item.reason) for item in dtypes(kind, asked)]
    assert found == ([(state, action, says)] if state else [])


@pytest.mark.parametrize(
    "uuid, index, visible, named",
    [
        ("GPU-1", 1, "2,3", "GPU-1"),
        ("MIG-1", 0, "MIG-1", "MIG-1"),
        ("", 1, "2, 3", "3"),  # torch's 1 is the host's 3
        ("", 1, "", "1"),
        ("", 5, "2,3", "5"),
    ],
)
def test_the_gpu_that_is_meant_and_no_other(uuid, index, visible, named):
    device = {**H100, "uuid": uuid, "index": index, "compute_capability": "9.0", "multiprocessors": 132}
    facts = report(devices=[{**device, "pci_address": "0000:1b:00.0"}], CUDA_VISIBLE_DEVICES=visible)
    (place,) = _places(Settings(python="/p"), "cuda", facts)
    assert place["key"] == place["env"]["CUDA_VISIBLE_DEVICES"] == named
    assert place["pci_address"] == "0000:1b:00.0"


@pytest.mark.parametrize("timeout, survey, device", [(0.5, 30.0, 0.25), (60.0, 30.0, 30.0), (600.0, 120.0, 120.0)])
def test_a_short_limit_is_one_of_devices_and_not_of_the_environment(timeout, survey, device):
    settings = Settings(python="/p", timeout=timeout)
    assert (_supervisor(settings, [], least=SURVEY_S).before, _supervisor(settings, []).before) == (survey, device)


def test_a_proof_on_the_cpu_says_so():
    assert choose(NO_GPU, "auto", "cpu", 4).finding.found == "4 CPU processes at small sizes; no GPU was proved"
