# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the driver is one driver: one owner, one version of module and libraries, and it answers. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.patterns import lazy

Observation = t.Mapping[str, t.Any]


def check(observed: Observation) -> t.List[Finding]:
    """The Findings of the driver; none where there is no driver at all."""
    driver = observed["driver"]
    if "driver" in observed["errors"]:
        return [
            Finding(
                "driver-owners",
                "unknown",
                found=observed["errors"]["driver"],
                expected="an answer of the package database",
                action="fix configuration",
                reason="a driver whose owner is not known is not touched",
            )
        ]
    if driver["owner"] == "nobody":
        return []
    return [_owners(driver), *_libraries(driver), *_mismatch(observed), *_answers(observed), *_nodes(observed)]


def _owners(driver: t.Mapping[str, t.Any]) -> Finding:
    evidence = [claim["evidence"] for claim in driver["owners"]]
    owner = driver["owner"]
    names = sorted({claim["owner"] for claim in driver["owners"]})
    if owner == "multiple":
        return Finding(
            "driver-owners",
            "fail",
            found=f"{' and '.join(names)}: {'; '.join(evidence)}",
            expected="one owner of the driver",
            action="fix configuration",
            reason="two owners overwrite each other at the next upgrade; remove the one that is not wanted",
            evidence={"owners": [dict(claim) for claim in driver["owners"]]},
        )
    two = two_drivers(driver)
    if two is not None:
        return two
    return Finding(
        "driver-owners",
        "warn" if owner == "unknown" else "ok",
        found=f"{owner}: {'; '.join(evidence) or 'no trace of who installed it'}",
        expected="one owner of the driver",
        reason="a driver whose owner is not known is proved and never touched" if owner == "unknown" else "",
        evidence={"owners": [dict(claim) for claim in driver["owners"]]},
    )


#: As the probe says it: "libcuda1 535.261.03-1~deb12u1 owns /usr/lib/...". A kernel's number has no such form.
_PACKAGE = lazy(r"^(\S+) (?:\d+:)?(\d{3}\.\d+(?:\.\d+)?)\S* owns ")


def two_drivers(driver: t.Mapping[str, t.Any]) -> t.Optional[Finding]:
    """Packages of two drivers on one host, as copied commands leave them: a distribution's beside a vendor's."""
    claims = [claim["evidence"] for claim in driver["owners"] if claim["owner"] == "package"]
    found = [match for match in (_PACKAGE.match(evidence) for evidence in claims) if match]
    if len({match[2] for match in found}) < 2:
        return None
    named = dict.fromkeys(f"{match[1]} {match[2]}" for match in found)
    return Finding(
        "driver-owners",
        "fail",
        found=f"packages of two drivers: {', '.join(named)}",
        expected="packages of one driver",
        action="fix configuration",
        reason="remove one of them with the source that it came from, so that no upgrade brings it back; nothing is"
        " changed until then",
        evidence={"owners": [dict(claim) for claim in driver["owners"]]},
    )


def _libraries(driver: t.Mapping[str, t.Any]) -> t.List[Finding]:
    """Copies of two versions on the loader's path: which one a program gets depends on its environment."""
    named = [
        f"{library['name']} {library['version'] or 'of no stated version'} at {library['path']}"
        f" ({library['package'] or 'no package'})"
        for library in driver["libraries"]
    ]
    versions = {library["version"] for library in driver["libraries"] if library["version"]}
    if len(versions) < 2:
        return []
    return [
        Finding(
            "driver-libraries",
            "fail",
            found="; ".join(named),
            expected="libraries of one version",
            action="fix configuration",
            reason="remove the copies that do not belong to the loaded module",
            evidence={"libraries": [dict(library) for library in driver["libraries"]]},
        )
    ]


def _mismatch(observed: Observation) -> t.List[Finding]:
    """``Driver/library version mismatch``, by the whole versions of both (580.173.02 is not 580.178)."""
    driver = observed["driver"]
    loaded, library = driver["version"], driver["library_version"]
    differ = bool(loaded and library and loaded != library)
    if not differ and observed["nvml"]["state"] != "mismatch":
        return []
    return [
        Finding(
            "driver-library-mismatch",
            "fail",
            found=f"module {loaded or 'of unknown version'} is loaded, library {library or 'of unknown version'}",
            expected="module and library of one version",
            action="reboot",
            reason=observed["nvml"]["error"] or "the libraries were changed and the old module is still loaded",
            evidence={"module": loaded, "library": library},
        )
    ]


def _answers(observed: Observation) -> t.List[Finding]:
    nvml = observed["nvml"]
    if nvml["state"] not in ("timeout", "error"):
        return []
    hangs = nvml["state"] == "timeout"
    return [
        Finding(
            "driver-answers",
            "unknown",
            found=nvml["error"],
            expected="an answer of NVML",
            action="reboot" if hangs else "drain and inspect",
            reason="no second probe is started while one hangs" if hangs else "",
        )
    ]


def _nodes(observed: Observation) -> t.List[Finding]:
    """``/dev/nvidia0`` and so on: a scheduler or a container runtime that starts before them fails (gres.conf)."""
    if observed["host"]["dxg"] or observed["visibility"]["hidden_by"]:
        return []
    bound = [
        device["address"] for device in observed["pci"] if device["role"] == "gpu" and device["driver"] == "nvidia"
    ]
    nodes = observed["visibility"]["device_nodes"]
    there = [name for name in nodes if name[len("nvidia") :].isdigit()]
    if not bound:
        return []
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if name not in nodes]
    few = len(there) < len(bound)
    # nvidia-modprobe makes the last two at their first use, where it is installed with its setuid bit.
    return [
        Finding(
            "device-nodes",
            "fail" if few else "warn" if missing else "ok",
            found=f"{len(there)} of {len(bound)} GPUs have a device node"
            + (f"; /dev/{' and /dev/'.join(missing)} missing" if missing else ""),
            expected="/dev/nvidia0 and so on for each GPU, /dev/nvidiactl, /dev/nvidia-uvm",
            action="fix configuration" if few else "none",
            reason="nvidia-persistenced or nvidia-modprobe makes them; order it before what needs them" if few else "",
            evidence={"nodes": list(nodes)},
        )
    ]
