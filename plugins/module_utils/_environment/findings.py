# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said of an environment: Findings, and the text of a difference. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.venv import Locked
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    Wanted,
    build_variant,
    mismatch,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject


def installed(venv: str, wanted: Wanted, packages: t.Sequence[Locked], repaired: t.Mapping[str, t.Any]) -> Finding:
    """The Finding on an environment of ours, which holds what was wanted by now."""
    return Finding(
        "environment-installed",
        "ok",
        Subject("environment", venv),
        found=f"{wanted.build} and {len(packages) - 1} more packages"
        + (f", repaired: {', '.join(sorted(repaired))}" if repaired else ""),
        expected=wanted.build,
        evidence={"packages": {item.name: item.version for item in packages}},
    )


def predicted(venv: str, wanted: Wanted, packages: t.Sequence[Locked], repaired: t.Mapping[str, t.Any]) -> Finding:
    """The Finding of check mode on an environment that a run would change: what is not made yet is not known."""
    return Finding(
        "environment-installed",
        "unknown",
        Subject("environment", venv),
        found=f"check mode: nothing was installed; {wanted.build} and {len(packages) - 1} more packages would be"
        + (f", repaired: {', '.join(sorted(repaired))}" if repaired else ""),
        expected="a run without check mode",
        evidence={"check_mode": True, "packages": {item.name: item.version for item in packages}},
    )


def as_planned(told: t.Mapping[str, t.Any], wanted: Wanted) -> Finding:
    """The Finding on the user's own environment.

    ``told`` has python, torch_version (None for no torch), torch_cuda, and
    error. An environment of the user's may hold another release than the
    plan, which is said; a build for another kind of device cannot do what
    the plan is for, and fails.
    """
    subject = Subject("environment", str(told["python"]))
    version, cuda = told.get("torch_version"), told.get("torch_cuda") or ""
    if not version:
        return Finding(
            "wheel-as-planned",
            "fail",
            subject,
            found=str(told.get("error") or "no torch"),
            expected=wanted.build,
            action="fix configuration",
        )
    found = f"torch {version}" + ("" if "+" in version else f" built for {'CUDA ' + cuda if cuda else 'the CPU'}")
    state = "ok"
    if mismatch(version, cuda, wanted.version, wanted.variant):
        state = "warn"
    if wanted.variant and (build_variant(cuda) == "cpu") != (wanted.variant == "cpu"):
        state = "fail"
    return Finding(
        "wheel-as-planned",
        state,
        subject,
        found=found,
        expected=wanted.build,
        action="fix configuration" if state == "fail" else "none",
        evidence={"torch_version": version, "torch_cuda": cuda},
    )


def listing(packages: t.Mapping[str, str]) -> str:
    """An environment's packages as lines, for a difference."""
    return "".join(f"{name}=={version}\n" for name, version in sorted(packages.items()))
