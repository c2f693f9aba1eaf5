# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host is a CUDA host or may be a CPU host. A GPU host never becomes a CPU host.

Pure: an Observation and the policy in, a decision and Findings out.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

CUDA = "cuda"
CPU = "cpu"
#: Neither may be planned; the Findings say why.
REFUSE = "refuse"

VENDORS = {"1002": "AMD", "8086": "Intel", "1d0f": "Amazon", "1ae0": "Google", "10de": "NVIDIA"}

#: Parts of an Observation without which nothing may be decided.
DECIDING = ("host", "pci", "visibility")

Observation = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Policy:
    """What the inventory says. None is "not stated", zero is "none, and that is meant"."""

    accelerator: str = CUDA
    gpus_expected: t.Optional[int] = None
    expected_majority: t.Optional[int] = None
    baseline_gpus: t.Optional[int] = None

    def __post_init__(self) -> None:
        if self.accelerator not in ("auto", CUDA):
            raise ValueError(f"accelerator {self.accelerator!r} is none of auto, {CUDA}")

    @property
    def expected(self) -> t.Tuple[t.Optional[int], str]:
        """How many GPUs there should be and who says so: the user, the proof of this host, the group."""
        for count, source in (
            (self.gpus_expected, "gpus_expected"),
            (self.baseline_gpus, "the host's baseline"),
            (self.expected_majority, "most hosts of the group"),
        ):
            if count is not None:
                return count, source
        return None, ""


@dataclass(frozen=True)
class Decision:
    """``accelerator`` is ``cuda``, ``cpu`` or ``refuse``."""

    accelerator: str
    findings: t.Tuple[Finding, ...]


def decide(observed: Observation, policy: Policy) -> Decision:
    """What this host is planned for, with the Findings that say why."""
    by_role = {
        role: [device for device in observed["pci"] if device["role"] == role]
        for role in ("gpu", "accelerator", "display")
    }
    findings = _foreign(by_role["accelerator"]) + _hidden(observed, by_role["gpu"])
    unread = [f"{part}: {observed['errors'][part]}" for part in DECIDING if part in observed["errors"]]
    if unread:
        return Decision(REFUSE, (_unread(unread),) + tuple(findings))
    if by_role["gpu"] or _elsewhere(observed):
        findings = _driver(observed, by_role["gpu"]) + _count(observed, by_role["gpu"], policy) + findings
        return Decision(REFUSE if by_role["accelerator"] and not by_role["gpu"] else CUDA, tuple(findings))
    reasons = _why_no_cpu(observed, by_role["accelerator"], policy)
    if reasons:
        return Decision(REFUSE, (_absent(by_role["display"], policy, reasons),) + tuple(findings))
    named = f" ({_names(by_role['display'])})" if by_role["display"] else ""
    present = Finding(
        "accelerator-present",
        "not_applicable",
        found=f"no GPU and no accelerator{named}",
        expected="accelerator auto allows the CPU build",
        reason="accelerator auto, and nothing on this machine speaks for a GPU",
    )
    return Decision(CPU, (present,))


def _elsewhere(observed: Observation) -> bool:
    """GPUs that are no PCI device here: beside WSL, or shown by NVML alone."""
    return bool(observed["host"]["dxg"] or observed["gpus"])


def _why_no_cpu(observed: Observation, accelerators: t.Sequence[t.Mapping[str, t.Any]], policy: Policy) -> t.List[str]:
    """What forbids the CPU build on a machine without a visible NVIDIA GPU; nothing where it is allowed."""
    reasons = []
    if policy.accelerator != "auto":
        reasons.append("the inventory wants GPUs (accelerator cuda)")
    if accelerators:
        reasons.append(f"another vendor's accelerator is there: {_names(accelerators)}")
    reasons += [f"{item['how']} may hide GPUs ({item['found']})" for item in observed["visibility"]["hidden_by"]]
    if policy.baseline_gpus:
        reasons.append(f"this host was proved with {policy.baseline_gpus} GPUs")
    if policy.gpus_expected:
        reasons.append(f"gpus_expected is {policy.gpus_expected}")
    return reasons


def _absent(displays: t.Sequence[t.Mapping[str, t.Any]], policy: Policy, reasons: t.Sequence[str]) -> Finding:
    count, source = policy.expected
    named = f"; {_names(displays)}" if displays else ""
    return Finding(
        "accelerator-present",
        "fail" if count else "unknown",
        found=f"found 0 NVIDIA GPUs on the PCI bus{named}",
        expected=f"{count} GPUs by {source}" if count else "an NVIDIA GPU, or gpus_expected: 0",
        action="drain and inspect" if count else "fix configuration",
        reason="; ".join(reasons),
    )


def _foreign(accelerators: t.Sequence[t.Mapping[str, t.Any]]) -> t.List[Finding]:
    if not accelerators:
        return []
    return [
        Finding(
            "foreign-accelerator",
            "fail",
            found=_names(accelerators),
            expected="accelerators of NVIDIA only",
            action="fix configuration",
            reason="this collection plans for CUDA; a host with another vendor's accelerator is not made a CPU host either",
            evidence={"addresses": [device["address"] for device in accelerators]},
        )
    ]


def _hidden(observed: Observation, gpus: t.Sequence[t.Mapping[str, t.Any]]) -> t.List[Finding]:
    hidden = [item for item in observed["visibility"]["hidden_by"] if _hides(item, len(gpus))]
    if not hidden:
        return []
    return [
        Finding(
            "gpus-hidden",
            "unknown",
            found="; ".join(f"{item['how']}: {item['found'] or 'empty'}" for item in hidden),
            expected="a look from outside of any job, with every GPU of the host",
            action="fix configuration",
            reason=f"this process may not see every GPU of the host ({len(gpus)} on the PCI bus)",
            evidence={"hidden_by": [dict(item) for item in hidden]},
        )
    ]


def _hides(item: t.Mapping[str, str], count: int) -> bool:
    """Whether a variable shows fewer GPUs than there are; a job or a cgroup hides by being there."""
    if not item["how"].endswith("_VISIBLE_DEVICES"):
        return True
    shown = [part.strip() for part in item["found"].split(",")]
    # CUDA stops reading at the first invalid entry, -1 by habit.
    valid = shown[: next((place for place, part in enumerate(shown) if part in ("", "-1", "void", "none")), len(shown))]
    return count == 0 or len(set(valid)) < count


def _driver(observed: Observation, gpus: t.Sequence[t.Mapping[str, t.Any]]) -> t.List[Finding]:
    nvml = observed["nvml"]
    if nvml["state"] not in ("no_library", "no_driver"):
        return []
    driver = observed["driver"]
    bound = sorted({str(gpu["driver"]) for gpu in gpus if gpu["driver"] and gpu["driver"] != "nvidia"})
    missing = "no libnvidia-ml.so.1" if nvml["state"] == "no_library" else "the module nvidia is not loaded"
    return [
        Finding(
            "gpu-without-driver",
            "fail",
            found=missing + (f"; the GPUs are bound to {', '.join(bound)}" if bound else ""),
            expected=f"a driver for {_names(gpus)}" if gpus else "a driver",
            action="fix configuration",
            reason=f"driver_owner {driver['owner']}",
            evidence={"addresses": [gpu["address"] for gpu in gpus], "bound_to": bound},
        )
    ]


def _count(observed: Observation, gpus: t.Sequence[t.Mapping[str, t.Any]], policy: Policy) -> t.List[Finding]:
    """``gpu-count``: the bus against NVML, and both against what there should be."""
    usable = [gpu for gpu in observed["gpus"] if gpu["state"] == "ok"]
    shown = {gpu["pci_address"] for gpu in usable}
    functions = [gpu["address"] for gpu in gpus]
    lost = sorted(set(functions) - shown)
    expected, source = policy.expected
    on_bus = len(functions) if functions else len(usable)
    want = on_bus if expected is None else expected
    by = source or "the PCI bus"
    evidence = {"pci": functions, "nvml": sorted(shown), "not_in_nvml": lost}
    if on_bus != want:
        missing = on_bus < want
        text = f"found {on_bus}, expected {want}"
        return [
            Finding(
                "gpu-count",
                "fail" if missing or policy.gpus_expected is not None else "warn",
                found=f"{text}: {', '.join(functions) or 'none'} on the PCI bus",
                expected=f"{want} by {by}",
                action="drain and inspect" if missing else "fix configuration",
                reason="" if missing else "more GPUs than stated",
                evidence=evidence,
            )
        ]
    state = observed["nvml"]["state"]
    if state != "ok":
        if state in ("no_library", "no_driver"):
            return []  # gpu-without-driver says it
        return [
            Finding(
                "gpu-count",
                "fail" if state == "mismatch" else "unknown",
                found=f"NVML: {observed['nvml']['error'] or state}; {on_bus} on the PCI bus",
                expected=f"{want} by {by}",
                action="reboot" if state in ("mismatch", "timeout") else "drain and inspect",
                evidence=evidence,
            )
        ]
    if len(usable) < want:
        return [
            Finding(
                "gpu-count",
                "unknown" if observed["visibility"]["hidden_by"] else "fail",
                found=f"found {len(usable)}, expected {want}: NVML does not show {', '.join(lost) or 'them all'}",
                expected=f"{want} by {by}",
                action="drain and inspect",
                evidence=evidence,
            )
        ]
    return [Finding("gpu-count", "ok", found=f"{len(usable)} GPUs", expected=f"{want} by {by}", evidence=evidence)]


def _unread(unread: t.Sequence[str]) -> Finding:
    return Finding(
        "accelerator-present",
        "unknown",
        found=f"a part of the host could not be read: {'; '.join(unread)}",
        expected="a host whose devices can be listed",
        action="fix configuration",
        reason="what was not read is not taken for absent",
    )


def _names(devices: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    return ", ".join(
        f"{VENDORS.get(device['vendor'], 'vendor ' + device['vendor'])} {device['vendor']}:{device['device']}"
        f" (class {device['class']}) at {device['address']}"
        for device in devices
    )
