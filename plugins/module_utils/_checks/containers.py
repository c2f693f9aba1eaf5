# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Do container engines have the GPUs, and keep them over a daemon-reload? Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

Facts = t.Mapping[str, t.Any]


def judge(facts: Facts, wanted: t.Sequence[str]) -> t.List[Finding]:
    """``container-guard``, and what the wanted engines have. ``facts`` as of `_packages/containers.py`."""
    found = [_guard(facts)]
    runtimes = [name for name in wanted if name != "podman"]
    if runtimes:
        lacking = [name for name in runtimes if not facts["engines"][name]["runtime"]]
        found.append(
            Finding(
                "container-runtime",
                "fail" if lacking else "ok",
                found=f"no runtime nvidia in the settings of {', '.join(lacking)}" if lacking else ", ".join(runtimes),
                expected="a runtime nvidia",
                action="fix configuration" if lacking else "none",
            )
        )
    if "podman" in wanted:
        found.append(_cdi(facts))
    return found


def _guard(facts: Facts) -> Finding:
    nodes = ", ".join(f"/dev/{name}" for name in facts["unlinked"])
    return Finding(
        "container-guard",
        "warn" if nodes else "ok",
        found=f"no link in /dev/char for {nodes}" if nodes else "every GPU node has its link in /dev/char",
        expected="a link for each: else systemctl daemon-reload takes the GPUs out of running containers",
        action="fix configuration" if nodes else "none",
        reason="Failed to initialize NVML: Unknown Error in a container is then no fault of the GPU" if nodes else "",
    )


def _cdi(facts: Facts) -> Finding:
    cdi, driver = facts["cdi"], facts["driver"]
    if not driver:
        return Finding(
            "container-cdi", "not_applicable", reason="no driver is loaded whose files a container could get"
        )
    told = f"{' and '.join(cdi['paths'])} for driver {', '.join(cdi['drivers']) or 'that it does not name'}"
    right = len(cdi["paths"]) == 1 and cdi["drivers"] == [driver]
    return Finding(
        "container-cdi",
        "ok" if right else "fail",
        found=told if cdi["paths"] else "no description of the GPUs",
        expected=f"one description, of driver {driver}",
        action="none" if right else "fix configuration",
        reason=f"two descriptions of one device are refused by every engine: remove {cdi['paths'][0]}"
        if len(cdi["paths"]) > 1
        else "",
    )
