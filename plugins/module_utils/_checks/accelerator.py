# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host is a CUDA host or may be a CPU host. A GPU host never becomes a CPU host.

Pure: an Observation and the policy in, a decision and Findings out.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

CUDA = "cuda"
CPU = "cpu"
#: Neither may be planned; the Findings say why.
REFUSE = "refuse"

VENDORS = {"1002": "AMD", "8086": "Intel", "1d0f": "Amazon", "1ae0": "Google", "10de": "NVIDIA"}

STATED = "gpus_expected"

#: Parts without which nothing may be decided; "expected" is the baseline, where it is there and cannot be read.
DECIDING = ("host", "pci", "visibility", "expected")

Observation = t.Mapping[str, t.Any]
Devices = t.Sequence[t.Mapping[str, t.Any]]


class _Policy(t.NamedTuple):
    accelerator: str = CUDA
    gpus_expected: t.Optional[int] = None
    expected_majority: t.Optional[int] = None
    baseline_gpus: t.Optional[int] = None


class Policy(_Policy):
    """What the inventory says. None is "not stated", zero is "none, and that is meant"."""

    __slots__ = ()

    if not t.TYPE_CHECKING:

        def __new__(cls, *values, **named):
            made = super().__new__(cls, *values, **named)
            if made.accelerator not in ("auto", CUDA):
                raise ValueError(f"accelerator {made.accelerator!r} is none of auto, {CUDA}")
            return made

    @property
    def expected(self) -> t.Tuple[t.Optional[int], str]:
        """How many GPUs there should be and who says so: the user, the proof of this host, the group."""
        for count, source in (
            (self.gpus_expected, STATED),
            (self.baseline_gpus, "the host's baseline"),
            (self.expected_majority, "most hosts of the group"),
        ):
            if count is not None:
                return count, source
        return None, ""


class Decision(t.NamedTuple):
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
        own = [*_driver(observed, by_role["gpu"]), _count(observed, by_role["gpu"], policy)]
        return Decision(CUDA, tuple(own + findings))
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


def _why_no_cpu(observed: Observation, accelerators: Devices, policy: Policy) -> t.List[str]:
    """What forbids the CPU build on a machine without a visible NVIDIA GPU; nothing where it is allowed."""
    reasons = []
    if policy.accelerator != "auto":
        reasons.append("the inventory wants GPUs (accelerator cuda)")
    if accelerators:
        reasons.append(f"another vendor's accelerator is there: {_names(accelerators)}")
    reasons += [f"{item['how']} may hide GPUs ({item['found']})" for item in observed["visibility"]["hidden_by"]]
    if "expected" in observed["errors"]:
        reasons.append(f"whether it was proved with GPUs cannot be read: {observed['errors']['expected']}")
    if any(device["role"] == "nvswitch" for device in observed["pci"]):
        reasons.append("NVSwitches are there, and the GPUs that belong to them are not")
    if policy.baseline_gpus:
        reasons.append(f"this host was proved with {policy.baseline_gpus} GPUs")
    if policy.gpus_expected:
        reasons.append(f"gpus_expected is {policy.gpus_expected}")
    if policy.expected_majority and policy.gpus_expected is None:
        reasons.append(f"most hosts of the group have {policy.expected_majority} GPUs")
    return reasons


def _absent(displays: Devices, policy: Policy, reasons: t.Sequence[str]) -> Finding:
    count, source = policy.expected
    named = f"; {_names(displays)}" if displays else ""
    none = "gpufleet_accelerator: auto" if policy.accelerator != "auto" else "gpus_expected: 0"
    return Finding(
        "accelerator-present",
        "fail" if count else "unknown",
        found=f"found 0 NVIDIA GPUs on the PCI bus{named}",
        expected=f"{count} GPUs by {source}" if count else f"an NVIDIA GPU, or {none} where none is meant",
        action="drain and inspect" if count else "fix configuration",
        reason="; ".join(reasons),
    )


def _foreign(accelerators: Devices) -> t.List[Finding]:
    if not accelerators:
        return []
    return [
        Finding(
            "foreign-accelerator",
            "fail",
            found=_names(accelerators),
            expected="accelerators of NVIDIA only",
            action="fix configuration",
            reason="only CUDA is planned here, and a host with another vendor's accelerator is no CPU host",
            evidence={"addresses": [device["address"] for device in accelerators]},
        )
    ]


def _hidden(observed: Observation, gpus: Devices) -> t.List[Finding]:
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


def _driver(observed: Observation, gpus: Devices) -> t.List[Finding]:
    nvml = observed["nvml"]
    if nvml["state"] not in ("no_library", "no_driver"):
        return []
    driver = observed["driver"]
    if driver["version"] and any(item["how"] == "cgroup" for item in observed["visibility"]["hidden_by"]):
        return []  # a container without GPUs on a host whose driver is loaded: gpus-hidden says it
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


def _count(observed: Observation, gpus: Devices, policy: Policy) -> Finding:
    """``gpu-count``: the bus against what there should be, and NVML against the bus."""
    on_bus = [gpu["address"] for gpu in gpus]
    usable = {gpu["pci_address"] for gpu in observed["gpus"] if gpu["state"] == "ok"}
    present = len(on_bus) or len(observed["gpus"])
    expected, source = _expected(observed, present, policy)
    want = present if expected is None else expected
    troubled = _troubled(observed, gpus)
    nvml = observed["nvml"]
    state, action, reason = "ok", "none", ""
    if present != want:
        state, action, reason = "fail", "drain and inspect", ""
        if present > want:
            state, action = ("fail" if source == STATED else "warn"), "fix configuration"
            reason = "more GPUs than there should be"
        found = f"found {present}, expected {want}: {', '.join(on_bus) or 'none'} on the PCI bus"
    elif nvml["state"] != "ok":
        state, action = "unknown", "fix configuration"
        found = f"{present} on the PCI bus; NVML: {nvml['error'] or nvml['state']}"
    elif len(usable) < want:
        hidden = bool(observed["visibility"]["hidden_by"])
        hanging = sum(1 for gpu in observed["gpus"] if gpu["state"] == "timeout")
        state = "unknown" if hidden or want - len(usable) <= hanging else "fail"
        action = "fix configuration" if hidden else "reboot" if state == "unknown" else "drain and inspect"
        if {gpu["state"] for gpu in observed["gpus"]} - {"ok"} == {"reset_required"}:
            action = "reset GPU"
        found = f"found {len(usable)}, expected {want}: {', '.join(troubled)}"
    else:
        found = f"{len(usable)} GPUs"
        if expected is None and present > 1 and present % 2:
            state, action = "unknown", "fix configuration"
            reason = f"an odd number of GPUs, and nothing says how many there should be; gpus_expected: {present} does"
    return Finding(
        "gpu-count",
        state,
        found=found,
        expected=f"{want} by {source}" if source else "as many in NVML as on the PCI bus",
        action=action,
        reason=reason,
        evidence={"pci": on_bus, "nvml": sorted(usable), "troubled": troubled},
    )


def _expected(observed: Observation, present: int, policy: Policy) -> t.Tuple[t.Optional[int], str]:
    """What is stated or learnt; else what the board tells: NVSwitches join 8 GPUs, or 16.

    A virtual machine is given a partition of them: 1, 2 or 4.
    """
    count, source = policy.expected
    if count is None and any(device["role"] == "nvswitch" for device in observed["pci"]):
        sizes = (8, 16) if observed["host"]["virtualization"] == "none" else (1, 2, 4, 8, 16)
        return next((size for size in sizes if size >= present), present), "the board's NVSwitches"
    return count, source


def _troubled(observed: Observation, gpus: Devices) -> t.List[str]:
    """GPUs that cannot be used, by address where it is known, with what is the matter."""
    states = {gpu["pci_address"]: gpu["state"] for gpu in observed["gpus"] if gpu["pci_address"]}
    nameless = [gpu for gpu in observed["gpus"] if not gpu["pci_address"]]
    unseen = [gpu for gpu in gpus if gpu["address"] not in states]
    words = {gpu["state"] for gpu in nameless}
    if len(nameless) == len(unseen) and len(words) == 1:
        # A GPU that answers nothing does not say its address: it is the one that is left.
        states.update(dict.fromkeys((gpu["address"] for gpu in unseen), words.pop()))
        nameless = []
    for gpu in unseen:
        bound = gpu["driver"]
        states.setdefault(gpu["address"], "not in NVML" if bound in (None, "nvidia") else f"bound to {bound}")
    named = [f"{address} ({state})" for address, state in sorted(states.items()) if state != "ok"]
    return named + [f"NVML's GPU {gpu['index']} ({gpu['state']})" for gpu in nameless]


def _unread(unread: t.Sequence[str]) -> Finding:
    return Finding(
        "accelerator-present",
        "unknown",
        found=f"a part of the host could not be read: {'; '.join(unread)}",
        expected="a host whose devices can be listed",
        action="fix configuration",
        reason="what was not read is not taken for absent",
    )


def _names(devices: Devices) -> str:
    return ", ".join(
        f"{VENDORS.get(device['vendor'], 'vendor ' + device['vendor'])} {device['vendor']}:{device['device']}"
        f" (class {device['class']}) at {device['address']}"
        for device in devices
    )
