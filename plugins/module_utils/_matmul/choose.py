# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""On what to prove: GPUs where there may be any, CPU processes only where there are none."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.jobs import DTYPES

Facts = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Choice:
    """``kind``: ``cuda``, ``cpu``, or "" where nothing may be proved; ``finding`` says it in any case."""

    kind: str
    finding: Finding


def choose(report: Facts, asked: str, accelerator: t.Optional[str], workers: int) -> Choice:
    """Where the proof runs.

    ``report``: of the survey; ``asked``: auto, cuda or cpu; ``accelerator``: of
    the plan, None without one; ``workers``: CPU processes, should it come to that.
    """
    cuda = report["cuda"]
    count = len(cuda["devices"])
    wanted = accelerator or asked
    if asked == "cpu" or accelerator == "cpu" or (wanted == "auto" and not count and not _may_have_gpus(report)):
        return Choice(
            "cpu",
            Finding(
                "proof-device",
                "ok",
                found=f"{workers} CPU processes at small sizes; no GPU was proved",
                expected="the CPU, as planned" if accelerator == "cpu" else "",
                evidence={"kind": "cpu"},
            ),
        )
    if count:
        names = sorted({device["name"] for device in cuda["devices"]})
        return Choice(
            "cuda", Finding("proof-device", "ok", found=f"{count} x {', '.join(names)}", evidence={"kind": "cuda"})
        )
    return Choice(
        "",
        Finding(
            "proof-device",
            "fail",
            Subject("host"),
            found=f"torch sees no GPU: {why_no_gpu(report)}",
            expected="GPUs" if accelerator is None else "GPUs, as planned",
            action="fix configuration",
            reason="the CPU is never proved in a GPU's place",
            evidence={"cuda": dict(cuda)},
        ),
    )


def dtypes(kind: str, asked: t.Sequence[str]) -> t.List[Finding]:
    """What to say where some of the types asked for are none of this kind of device.

    Where all of them are, the wish is at fault and not the host: ``unknown``, and nothing is to be run.
    """
    lacking = [name for name in asked if name not in DTYPES[kind]]
    if not lacking:
        return []
    text = f"a CPU has no {', '.join(lacking)}"
    if len(lacking) < len(asked):
        return [Finding("proof-dtypes", "not_applicable", reason=f"{text}; the other types were proved")]
    return [
        Finding(
            "proof-dtypes",
            "unknown",
            found=f"nothing was run: {text}",
            expected=f"verify_dtypes with one or more of {', '.join(DTYPES[kind])}",
            action="fix configuration",
            reason="verify_dtypes asks for types of GPUs alone; the host was not judged",
        )
    ]


def _may_have_gpus(report: Facts) -> bool:
    cuda = report["cuda"]
    return bool(cuda["nvidia_pci"] or cuda["driver"]["kernel_module"] or cuda["hidden_by"])


def why_no_gpu(report: Facts) -> str:
    """One cause, the nearest to the root first."""
    cuda = report["cuda"]
    driver, hidden = cuda["driver"], cuda["hidden_by"]
    if report.get("torch_cuda") is None:
        return f"torch {report['torch_version']} is built without CUDA"
    if not driver["kernel_module"]:
        there = f"{len(cuda['nvidia_pci'])} NVIDIA GPUs on PCI, but " if cuda["nvidia_pci"] else ""
        return f"{there}no NVIDIA kernel module is loaded (/proc/driver/nvidia/version is not there)"
    if driver["libcuda"] != "ok":
        return f"the driver's library cannot be loaded: {driver['libcuda']}"
    if hidden:
        return "hidden by " + ", ".join(f"{name}={value!r}" for name, value in sorted(hidden.items()))
    return f"cuInit answers {driver['cu_init']}; torch says: {cuda['error'] or 'no device'}"
