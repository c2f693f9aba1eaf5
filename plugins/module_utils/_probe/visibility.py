# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What keeps GPUs from this very process, and the device nodes through which it would reach them.

A probe inside a job sees the job's share, not the host: it must say so.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

SLURM_JOB = ("SLURM_JOB_ID", "SLURM_JOBID")
SLURM_GPUS = ("SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "GPU_DEVICE_ORDINAL")


#: What systemd-detect-virt calls containers, and what says so of itself.
CONTAINERS = frozenset("docker podman lxc lxc-libvirt systemd-nspawn oci kubernetes containerd crio rkt".split())


def probe(runner: Runner, host: t.Mapping[str, t.Any], pci: t.Sequence[t.Mapping[str, t.Any]]) -> t.Dict[str, t.Any]:
    """The ``visibility`` part of an Observation."""
    nodes = [name for name in runner.listdir("/dev") if re.match(r"^nvidia(?:\d+|ctl|-uvm)$", name)]
    denied = [name for name in nodes if not runner.access(f"/dev/{name}")]
    hidden = _environment(runner.env) + _cgroup(runner, denied) + _container(host, pci, nodes)
    return {"hidden_by": hidden, "device_nodes": nodes, "denied": denied}


def _environment(env: t.Mapping[str, str]) -> t.List[t.Dict[str, str]]:
    hidden = []
    if "CUDA_VISIBLE_DEVICES" in env:
        hidden.append({"how": "CUDA_VISIBLE_DEVICES", "found": env["CUDA_VISIBLE_DEVICES"]})
    # CUDA's images set "all" for every container, whether it was given GPUs or not.
    if env.get("NVIDIA_VISIBLE_DEVICES", "all") != "all":
        hidden.append({"how": "NVIDIA_VISIBLE_DEVICES", "found": env["NVIDIA_VISIBLE_DEVICES"]})
    job = next((env[name] for name in SLURM_JOB if env.get(name)), None)
    if job is not None:
        gpus = next((f"{name}={env[name]}" for name in SLURM_GPUS if name in env), "no GPU asked for")
        hidden.append({"how": "slurm", "found": f"job {job}, {gpus}"})
    return hidden


def _cgroup(runner: Runner, denied: t.Sequence[str]) -> t.List[t.Dict[str, str]]:
    """Nodes that the device cgroup refuses: access is denied although the permission bits allow it."""
    refused = []
    for name in denied:
        mode = runner.mode(f"/dev/{name}")
        if runner.uid() == 0 or (mode is not None and mode & 0o006 == 0o006):
            refused.append(f"/dev/{name}")
    return [{"how": "cgroup", "found": " ".join(refused)}] if refused else []


def _container(
    host: t.Mapping[str, t.Any], pci: t.Sequence[t.Mapping[str, t.Any]], nodes: t.Sequence[str]
) -> t.List[t.Dict[str, str]]:
    """A container shows every PCI device of its host, and the nodes of those alone that it was given."""
    if host["virtualization"] not in CONTAINERS:
        return []
    bound = sum(1 for device in pci if device["role"] == "gpu" and device["driver"] == "nvidia")
    given = sum(1 for name in nodes if name[len("nvidia") :].isdigit())
    if given >= bound:
        return []
    found = f"{given} of {bound} GPUs have a device node in this container ({host['virtualization']})"
    return [{"how": "cgroup", "found": found}]


#: Of a look that failed: ``errors`` says so, and nothing may be concluded.
UNKNOWN: t.Dict[str, t.Any] = {"hidden_by": [], "device_nodes": [], "denied": []}
