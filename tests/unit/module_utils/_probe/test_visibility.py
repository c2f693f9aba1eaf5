# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import visibility

METAL = {"virtualization": "none"}
DOCKER = {"virtualization": "docker"}
GPUS = [{"role": "gpu", "driver": "nvidia"}] * 2


@pytest.mark.parametrize(
    ("env", "hidden"),
    [
        ({}, []),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, [("CUDA_VISIBLE_DEVICES", "0,1")]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [("CUDA_VISIBLE_DEVICES", "")]),
        ({"NVIDIA_VISIBLE_DEVICES": "all"}, []),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, [("NVIDIA_VISIBLE_DEVICES", "void")]),
        ({"SLURM_JOB_ID": "17"}, [("slurm", "job 17, no GPU asked for")]),
        ({"SLURM_JOB_ID": "17", "SLURM_JOB_GPUS": "0,1"}, [("slurm", "job 17, SLURM_JOB_GPUS=0,1")]),
        ({"SLURM_JOBID": "9", "GPU_DEVICE_ORDINAL": "3"}, [("slurm", "job 9, GPU_DEVICE_ORDINAL=3")]),
        ({"SLURM_CONF": "/etc/slurm.conf"}, []),
    ],
)
def test_environment(machine: t.Any, env: t.Dict[str, str], hidden: t.List[t.Tuple[str, str]]) -> None:
    seen = visibility.probe(machine.runner(**env), METAL, GPUS)
    assert [(item["how"], item["found"]) for item in seen["hidden_by"]] == hidden


@pytest.mark.parametrize(
    ("host", "nodes", "found"),
    [
        (DOCKER, [], "0 of 2 GPUs have a device node in this container (docker)"),
        (DOCKER, ["nvidia1"], "1 of 2 GPUs have a device node in this container (docker)"),
        (DOCKER, ["nvidia0", "nvidia1"], None),
        (METAL, [], None),  # of a host, "device-nodes" says it
        ({"virtualization": "kvm"}, [], None),
    ],
)
def test_container(machine: t.Any, host: t.Dict[str, str], nodes: t.List[str], found: t.Optional[str]) -> None:
    for name in nodes:
        machine.file(f"/dev/{name}")
    hidden = visibility.probe(machine.runner(), host, GPUS)["hidden_by"]
    assert hidden == ([{"how": "cgroup", "found": found}] if found else [])


def test_container_on_a_host_whose_gpus_are_bound_to_something_else(machine: t.Any) -> None:
    pci = [{"role": "gpu", "driver": "vfio-pci"}, {"role": "gpu", "driver": None}, {"role": "display", "driver": "ast"}]
    assert visibility.probe(machine.runner(), DOCKER, pci)["hidden_by"] == []


def test_nodes(machine: t.Any) -> None:
    for name in ("nvidia0", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/x", "null"):
        machine.file(f"/dev/{name}")
    assert visibility.probe(machine.runner(), METAL, [])["device_nodes"] == [
        "nvidia-uvm",
        "nvidia0",
        "nvidia10",
        "nvidiactl",
    ]
