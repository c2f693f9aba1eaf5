# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would work instead: changes of the request, each resolved again before it is named.

A proposal is a change of the request with a sentence; one that does not lead
to a plan is dropped. Pairs are tried where no single change is enough.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from . import gpu, model, version
from .host import FLAVOURS, OURS, Host, host
from .request import Request
from .resolver import Outcome, resolve
from .rules_host import owner_name

MOST = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Remedy:
    """A sentence for a person, and the request that it leads to, which has a plan."""

    says: str
    request: Request


@dataclasses.dataclass(frozen=True, slots=True)
class _Proposal:
    """``changes`` of the request; ``says`` makes the sentence from the outcome that they lead to."""

    changes: t.Mapping[str, t.Any]
    says: t.Callable[[Outcome], str]


def remedies(outcome: Outcome) -> list[Remedy]:
    """What would work, best first, each checked by resolving."""
    asked = outcome.host
    proposals = list(_proposals(outcome))
    found = [remedy for proposal in proposals if (remedy := _check(asked, (proposal,)))]
    if not found:
        for pair in itertools.combinations(proposals, 2):
            if set(pair[0].changes) & set(pair[1].changes):
                continue
            if remedy := _check(asked, pair):
                found.append(remedy)
            if len(found) == MOST:
                break
    unlike = {remedy.says: remedy for remedy in reversed(found)}
    return list(reversed(unlike.values()))[:MOST]


def _check(asked: Host, proposals: tuple[_Proposal, ...]) -> Remedy | None:
    changes: dict[str, t.Any] = {}
    for proposal in proposals:
        changes |= proposal.changes
    request = dataclasses.replace(asked.request, **changes)
    outcome = resolve(host(request, asked.data), explain=False)
    if outcome.best is None:
        return None
    return Remedy(", and ".join(proposal.says(outcome) for proposal in proposals), request)


def _works(asked: Host, changes: dict[str, t.Any]) -> bool:
    changed = host(dataclasses.replace(asked.request, **changes), asked.data)
    return resolve(changed, explain=False).best is not None


def _proposals(outcome: Outcome) -> t.Iterator[_Proposal]:
    rules = {cause.rule for cause in outcome.causes}
    asked = outcome.host
    yield from _drivers(asked, rules)
    yield from _torch(asked)
    if rules & {"no-wheel-for-python"}:
        yield from _pythons(asked)
    if rules & {"no-common-driver", "gpu-not-in-wheel", "driver-dropped-gpu", "driver-lacks-gpu"}:
        yield from _fewer_gpus(asked)
    yield from _host(asked, rules)


def _runs(outcome: Outcome) -> str:
    wheel, driver = outcome.chosen.wheel, outcome.chosen.driver
    if driver is None:
        return f"{wheel} runs here"
    return f"{wheel} runs on driver {driver.version or driver.branch}"


def _branch(outcome: Outcome) -> str:
    driver = outcome.chosen.base
    return f"{driver.branch} with the {driver.flavour or 'installed'} kernel module"


def _drivers(asked: Host, rules: set[str]) -> t.Iterator[_Proposal]:
    request = asked.request
    if asked.installed and asked.fixed_driver:
        yield from _by_the_owner(asked, rules)
    if request.driver_policy != "auto" and asked.owner in OURS:
        yield _Proposal(
            {"driver_policy": "auto"},
            lambda o: f"let the driver be chosen (driver_policy: auto): {_runs(o)}",
        )
    if request.driver_source != "auto" or "os-package-too-old" in rules:
        yield _Proposal(
            {"driver_source": "nvidia"},
            lambda o: f"take driver branch {_branch(o)} from NVIDIA's repository (driver_source: nvidia)",
        )
    if request.driver_source == "nvidia":
        yield _Proposal(
            {"driver_source": "auto"},
            lambda o: f"take driver branch {_branch(o)}, {_signed(o)}, from the distribution (driver_source: auto)",
        )
    if request.kernel_module != "auto":
        yield _Proposal({"kernel_module": "auto"}, lambda o: f"driver branch {_branch(o)} (kernel_module: auto)")
    if not asked.fixed_driver and asked.installed and "driver-dropped-gpu" in rules:
        older = [row for row in asked.data.branches.values() if row.branch < asked.installed[0]]
        for row in sorted(older, key=lambda row: (not row.supported, -row.branch)):
            changes: dict[str, t.Any] = {"driver_policy": str(row.branch), "kernel_module": "auto"}
            if _works(asked, changes):
                step = f"(driver_policy: '{row.branch}')"
                yield _Proposal(changes, lambda o, step=step: f"go back to driver branch {_branch(o)} {step}")  # type: ignore[misc]
                break
    virtual = any(match.vgpu for match in asked.gpus)
    if "driver-too-old" in rules and not request.forward_compat and not virtual:
        yield _Proposal({"forward_compat": True}, lambda o: f"with cuda-compat (forward_compat: true) {_runs(o)}")


def _signed(outcome: Outcome) -> str:
    return "prebuilt and signed" if outcome.chosen.base.signed else "built here"


def _by_the_owner(asked: Host, rules: set[str]) -> t.Iterator[_Proposal]:
    """The oldest driver that works, installed by whoever looks after it."""
    who = "" if asked.owner in OURS else f"{owner_name(asked)}: "
    for kind in FLAVOURS:
        if f"{kind}-module-required" in rules:
            text = f"{who}install the {kind} kernel module of driver {asked.request.driver}"
            yield _Proposal({"driver_flavour": kind}, lambda _o, text=text: text)  # type: ignore[misc]
    # An older branch only where the GPU needs one, and then the newest of them.
    down = "driver-dropped-gpu" in rules
    for branch in sorted(asked.data.branches.values(), key=lambda row: -row.branch if down else row.branch):
        least = [branch.first] + [match.gpu.driver_min for match in asked.gpus]
        of_branch = [number for number in least if number and version.major(number) == branch.branch]
        if not of_branch:
            continue
        driver = max(of_branch, key=version.parse)
        shown = str(branch.branch) if driver == branch.first else driver
        if version.parse(driver) > asked.installed:
            step = f"{who}upgrade the driver to {shown} or newer"
        elif down and branch.branch < asked.installed[0]:
            step = f"{who}go back to driver branch {branch.branch}"
        else:
            continue
        changes: dict[str, t.Any] = {"driver": driver, "driver_flavour": ""}
        if _works(asked, changes):
            yield _Proposal(changes, lambda _o, step=step: step)  # type: ignore[misc]
            return


def _torch(asked: Host) -> t.Iterator[_Proposal]:
    request = asked.request
    plain = request.torch.split("+")[0]
    if request.cuda != "auto" or plain != request.torch:
        yield _Proposal({"torch": plain, "cuda": "auto"}, lambda o: f"{_runs(o)} (cuda: auto)")
    if request.torch.lower() != "latest":
        if request.cuda != "auto":
            yield _Proposal({"torch": "latest"}, lambda o: f"{_runs(o)} (with cuda {o.host.request.cuda} as wished)")
        yield _Proposal({"torch": "latest", "cuda": "auto"}, _runs)


def _pythons(asked: Host) -> t.Iterator[_Proposal]:
    tags = {tag for release in asked.torch.releases for tag in release.wheels.get(asked.arch, ())}
    plain = sorted((tag for tag in tags if tag[-1] != "t"), key=version.parse, reverse=True)
    for tag in plain[:1]:
        yield _Proposal({"python": tag}, lambda o, tag=tag: f"Python {tag}: {_runs(o)}")  # type: ignore[misc]


def _fewer_gpus(asked: Host) -> t.Iterator[_Proposal]:
    """Hosts with like GPUs only."""
    if len(asked.gpus) < 2:
        return
    for match in asked.gpus:
        alone = tuple(wish for wish in asked.request.gpus if wish == match.wish)
        yield _Proposal({"gpus": alone}, lambda o, m=match: f"a host with {m.label} only: {_runs(o)}")  # type: ignore[misc]


def _host(asked: Host, rules: set[str]) -> t.Iterator[_Proposal]:
    request = asked.request
    if "secure-boot-unsigned-module" in rules:
        text = "enrol a key that signs the module which is built (mok_enrolled: true)"
        yield _Proposal({"mok_enrolled": True}, lambda _o: text)
    if "headers-unavailable" in rules:
        yield _Proposal({"headers": "available"}, lambda _o: f"headers of kernel {request.kernel}")
    if "kernel-too-new-for-driver" in rules:
        yield _Proposal({"kernel": ""}, lambda _o: f"a kernel older than {request.kernel}, on which the driver builds")
    if "glibc-too-old" in rules:
        needs = max((release.glibc.get(asked.arch, "0") for release in asked.torch.releases), key=version.parse)
        changes = {"glibc": needs, "os_id": "", "os_version": ""}
        yield _Proposal(changes, lambda _o: f"an operating system with glibc {needs} or newer")
    if "fabric-manager-mismatch" in rules and asked.installed:
        who = "" if asked.owner in OURS else f"{owner_name(asked)}: "
        text = f"{who}install fabric manager {request.driver}, the driver's own version"
        yield _Proposal({"fabric_manager": request.driver}, lambda _o: text)
    if "gpus-hidden" in rules:
        yield _Proposal({"hidden_by": ""}, lambda _o: "look at the host from outside the job")
    if "gpu-planned-as-cpu" in rules:
        yield _Proposal({"accelerator": "cuda"}, lambda o: f"accelerator cuda: {_runs(o)}")
    if "contradictory-wish" in rules:
        yield _Proposal(
            {"accelerator": "auto", "torch": request.torch.split("+")[0]}, lambda o: f"{_runs(o)} (accelerator: auto)"
        )
        yield _Proposal({"cuda": "auto"}, lambda o: f"{_runs(o)} (cuda: auto)")
    if "unknown-gpu" in rules:
        yield from _stated_capability(asked)


def _stated_capability(asked: Host) -> t.Iterator[_Proposal]:
    """The compute capability of chips around an unknown id: a suggestion that a person must confirm."""
    for unknown in asked.unknown_gpus:
        capability = _capability_hint(unknown, asked.data)
        if not capability:
            continue
        stated = gpu.Wish(unknown.wish.name, capability)
        wishes = tuple(stated if wish == unknown.wish else wish for wish in asked.request.gpus)
        text = f"where it is true, state {{name: '{stated.name}', compute_capability: '{capability}'}}"
        yield _Proposal({"gpus": wishes}, lambda o, text=text: f"{text}: {_runs(o)}")  # type: ignore[misc]


def _capability_hint(unknown: gpu.Unknown, data: model.Data) -> str:
    number = gpu.pci_number(unknown.wish.name)
    if number is None:
        return ""
    return next((row.compute_capability for row in data.chips if row.low <= number <= row.high), "")
