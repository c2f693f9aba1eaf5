# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of all hosts of a play at once: who may have one, and which.

Hosts are planned together so that hosts that share jobs get one build, alike
hosts are resolved once, and a host is measured against the others.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import accelerator
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject, stamp
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer, fleet, loader, observed, request
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet.majority import gpu_count, majority
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet.steps import steps

#: The check of an interpreter that the user names.
INTERPRETER = "interpreter-usable"
#: The check of an image that does not say which GPUs it is for.
TARGET = "image-gpus"
#: What an image is until a host that starts it was proved.
UNPROVED = "never-proved"

#: What a machine shows and an image is told: variables and the options of the resolver.
TARGETS = {"plan_nvswitches": "nvswitch", "plan_secure_boot": "secure_boot"}

Vars = t.Mapping[str, t.Any]
Plan = dict[str, t.Any]


@dataclasses.dataclass
class Planned:
    """What was decided for one host. ``plan`` is empty where there may be none; ``msg`` says why, or is ""."""

    accelerator: str
    findings: list[Finding]
    plan: Plan = dataclasses.field(default_factory=dict)
    msg: str = ""
    steps: list[str] = dataclasses.field(default_factory=list)

    @property
    def unusable(self) -> bool:
        """Whether what the user names, or does not, keeps the host from having a plan."""
        return any(finding.check in (INTERPRETER, TARGET) for finding in self.findings)


def plan_hosts(hosts: t.Mapping[str, Vars], observations: t.Mapping[str, Vars]) -> dict[str, Planned]:
    """Decide and plan for every host that was observed.

    ``hosts``: the variables of each host, which hold its wishes; ``observations``: what gpu_info saw of it.
    """
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for name in observations:
        alone = hosts[name].get("plan_scope", "group") == "host"
        groups[f"host {name}" if alone else f"group {hosts[name].get('plan_group') or ''}"].append(name)
    planned: dict[str, Planned] = {}
    for names in groups.values():
        usual = majority([gpu_count(observations[name]) for name in names if not is_image(hosts[name])])
        requests: dict[str, request.Request] = {}
        for name in names:
            decision = _decide(hosts[name], observations[name], usual)
            planned[name] = decision
            decision.findings += _interpreter(hosts[name], observations[name])
            if decision.accelerator == accelerator.REFUSE or decision.unusable:
                decision.msg = _refusal(decision.findings)
                continue
            torch, options = wishes(hosts[name], observations[name], decision.accelerator)
            try:
                requests[name] = request.request(torch, options)
            except request.BadOptions as bad:
                decision.plan = answer.refusal(bad)
        for name, found in fleet.plan_group(requests, loader.load()).items():
            planned[name].plan = found
            planned[name].steps = steps(found, observations[name], hosts[name])
        for name in names:
            if planned[name].plan.get("status") == answer.CONFLICT:
                planned[name].msg = answer.text(planned[name].plan, name)
    return planned


def wishes(variables: Vars, seen: Vars, decided: str) -> tuple[t.Any, dict[str, t.Any]]:
    """The release that is asked for and the resolver's options for one host.

    An environment that the user already has decides its Python, and its torch where nobody asked for another.
    """
    options = observed.options({**variables, "gpufleet_observed": seen})
    options["accelerator"] = decided
    if is_image(variables):
        options["gpus"] = list(variables.get("plan_gpus") or ())
        for variable, option in TARGETS.items():
            options.pop(option, None)
            if variables.get(variable) is not None:
                options[option] = variables[variable]
    held = seen.get("environment") or {}
    if held.get("python_version"):
        options["python"] = ".".join(str(held["python_version"]).split(".")[:2])
    torch = variables.get("pytorch_version")
    if variables.get("pytorch_python") and held.get("torch_version"):
        if torch is None:
            torch = str(held["torch_version"]).split("+", 1)[0]
        if held.get("torch_cuda"):
            options.setdefault("cuda", held["torch_cuda"])
    return "latest" if torch is None else torch, options


def is_image(variables: Vars) -> bool:
    """Whether what is planned is an image, a chroot or a build container, and no machine that runs."""
    return variables.get("gpufleet_mode") == "image"


def _target(variables: Vars, seen: Vars) -> Planned:
    """An image has no GPUs: for which ones it is, the user says, and nobody else can."""
    if variables.get("plan_gpus"):
        found = Finding(
            UNPROVED,
            "unknown",
            found=f"an image for {', '.join(str(name) for name in dict.fromkeys(variables['plan_gpus']))}:"
            " nothing was loaded and nothing was proved",
            expected="the proof at the first start of each host that runs it",
            evidence={"image": True},
        )
    else:
        found = Finding(
            TARGET,
            "fail",
            found="gpufleet_mode is image, and plan_gpus is not set",
            expected="the GPUs of the hosts that will run it, such as plan_gpus: [NVIDIA H100 80GB HBM3]",
            action="fix configuration",
        )
    return Planned(accelerator.CUDA, stamp([found], str(seen.get("observed_at", ""))))


def _decide(variables: Vars, seen: Vars, usual: int | None) -> Planned:
    if is_image(variables):
        return _target(variables, seen)
    policy = accelerator.Policy(
        accelerator=variables.get("gpufleet_accelerator") or accelerator.CUDA,
        gpus_expected=None if variables.get("gpus_expected") is None else int(variables["gpus_expected"]),
        baseline_gpus=seen.get("baseline_gpus"),
        expected_majority=usual,
    )
    decision = accelerator.decide(seen, policy)
    return Planned(decision.accelerator, stamp(decision.findings, str(seen.get("observed_at", ""))))


def _interpreter(variables: Vars, seen: Vars) -> list[Finding]:
    """What is wrong with pytorch_python, which must have a torch, or pytorch_base_python, which must run."""
    held = seen.get("environment") or {}
    own = variables.get("pytorch_python")
    if not held.get("error") or not (own or not held.get("python_version")):
        return []
    named, needs = ("pytorch_python", "with torch in it") if own else ("pytorch_base_python", "to make the environment")
    subject = Subject("environment", str(held.get("python") or ""))
    found = Finding(
        INTERPRETER,
        "fail",
        subject,
        found=str(held["error"]),
        expected=f"{named}: the path of a Python {needs}",
        action="fix configuration",
    )
    return stamp([found], str(seen.get("observed_at", "")))


def _refusal(findings: t.Iterable[Finding]) -> str:
    return "No plan: " + "; ".join(
        f"{finding.check}: {finding.found} (expected {finding.expected})"
        for finding in findings
        if finding.state in ("fail", "unknown")
    )
