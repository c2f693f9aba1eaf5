# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would work instead: changes of the request, each resolved again before it is named.

A proposal is a change of the request; one that does not lead to a plan is
dropped. Pairs are tried where no single change is enough. What leaves the
wishes as they are comes first, then what changes least of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from . import driver as drivers
from . import gpu, model, packages, rules_driver, version
from .host import FLAVOURS, OURS, Host, architecture, host
from .owner_steps import driver_steps
from .request import Request
from .resolver import Candidate, Outcome, resolve
from .rules_host import owner_name

MOST = 5
#: What a user wishes; everything else of a request is a fact about the host.
WISHES = ("torch", "accelerator", "cuda", "driver_policy", "driver_source", "kernel_module", "forward_compat", "python")
#: Those that a sentence says by their name.
_NAMED = tuple(wish for wish in WISHES if wish not in ("torch", "python"))
Changes = t.Mapping[str, t.Any]
_OF_A_GPU = {
    "no-common-driver",
    "gpu-not-in-wheel",
    "gpu-on-other-machine",
    "driver-dropped-gpu",
    "driver-lacks-gpu",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Remedy:
    """A sentence for a person, and the request that it leads to, which has a plan."""

    says: str
    request: Request


@dataclasses.dataclass(frozen=True, slots=True)
class _Proposal:
    """``changes`` of the request; ``does`` says what is to be done, "" where the wish alone changes.

    ``far``: how far it is from what was asked: 0 where every wish stays, 4 for another host.
    """

    changes: Changes
    does: str | t.Callable[[Candidate], str] = ""
    far: int = 1

    def says(self, best: Candidate) -> str:
        """What is to be done, where the proposals lead to this candidate."""
        return self.does if isinstance(self.does, str) else self.does(best)


def remedies(outcome: Outcome) -> list[Remedy]:
    """What would work, closest to the wish first, each checked by resolving."""
    asked = outcome.host
    unlike = {tuple(sorted(p.changes.items(), key=str)): p for p in reversed(list(_proposals(outcome)))}
    proposals = [p for p in reversed(unlike.values()) if _differs(asked, p.changes)]
    proposals.sort(key=lambda proposal: proposal.far)
    found: dict[t.Any, Remedy] = {}
    for proposal in proposals:
        _check(asked, (proposal,), found)
    if not found:
        pairs = itertools.combinations(proposals, 2)
        for pair in sorted(pairs, key=lambda pair: pair[0].far + pair[1].far):
            if len(found) < MOST and not set(pair[0].changes) & set(pair[1].changes):
                _check(asked, pair, found)
    return list(found.values())[:MOST]


def _differs(asked: Host, changes: Changes) -> bool:
    return any(getattr(asked.request, key) != value for key, value in changes.items())


def _check(asked: Host, proposals: tuple[_Proposal, ...], found: dict[t.Any, Remedy]) -> None:
    """Keep the remedy where it leads to a plan, and to another than those that are kept."""
    changes: dict[str, t.Any] = {}
    for proposal in proposals:
        changes |= proposal.changes
    changed = dataclasses.replace(asked.request, **changes)
    best = resolve(host(changed, asked.data), explain=False).best
    if best is None:
        return
    facts = frozenset((key, str(value)) for key, value in changes.items() if key not in WISHES)
    found.setdefault((best.wheel, best.driver, facts), Remedy(_sentence(asked, proposals, changed, best), changed))


def _sentence(asked: Host, proposals: tuple[_Proposal, ...], changed: Request, best: Candidate) -> str:
    said = ", and ".join(text for proposal in proposals if (text := proposal.says(best)))
    names = [name for name in _NAMED if getattr(changed, name) != getattr(asked.request, name)]
    wishes = ", ".join(f"{name}: {_yaml(getattr(changed, name))}" for name in names)
    wishes = f" ({wishes})" if wishes else ""
    kept = all(getattr(changed, name) == getattr(asked.request, name) for name in WISHES)
    if said and kept and len(asked.torch.releases) == 1 and changed.gpus == asked.request.gpus:
        return said
    return f"{said}{wishes}: {_runs(best)}" if said else f"{_runs(best)}{wishes}"


def _yaml(value: t.Any) -> str:
    return f"'{value}'" if str(value)[0].isdigit() else str(value).lower()


def _runs(best: Candidate) -> str:
    wheel, driver = best.wheel, best.driver
    if driver is None:
        return f"{wheel} runs here"
    over = " with cuda-compat" if best.forward else ""
    return f"{wheel} runs on driver {driver.version or driver.branch}{over}"


def _branch(best: Candidate) -> str:
    return f"{best.base.branch} with the {best.base.flavour or 'installed'} kernel module"


def _proposals(outcome: Outcome) -> t.Iterator[_Proposal]:
    rules = {cause.rule for cause in outcome.causes}
    asked = outcome.host
    if rules & {"not-glibc", "unknown-torch"}:
        yield from _torch(asked)
        return
    yield from _drivers(asked, rules)
    yield from _torch(asked)
    yield from _pythons(asked)
    if rules & _OF_A_GPU:
        yield from _fewer_gpus(asked)
    yield from _host(outcome, rules)


def _drivers(asked: Host, rules: set[str]) -> t.Iterator[_Proposal]:
    request = asked.request
    yield from _by_the_owner(asked, rules)
    if request.driver_policy != "auto" and (asked.owner in OURS or request.driver_policy.isdigit()):
        yield _Proposal({"driver_policy": "auto"}, "let the driver be chosen" if asked.owner in OURS else "")
    if request.driver_source != "auto" or "os-package-too-old" in rules:
        yield _Proposal(
            {"driver_source": "nvidia"}, lambda best: f"take driver branch {_branch(best)} from NVIDIA's repository"
        )
    if request.driver_source == "nvidia":
        yield _Proposal(
            {"driver_source": "auto"},
            lambda best: f"take driver branch {_branch(best)}, {_signed(best)}, from the distribution",
        )
    yield _Proposal({"kernel_module": "auto"}, lambda best: f"driver branch {_branch(best)}")
    if not asked.fixed_driver and asked.installed and "driver-dropped-gpu" in rules:
        older = [row for row in asked.data.branches.values() if row.branch < asked.installed[0]]
        ways: list[Changes] = [
            {"driver_policy": str(row.branch), "kernel_module": "auto"}
            for row in sorted(older, key=lambda row: (not row.supported, -row.branch))
        ]
        if changes := _first(asked, ways):
            yield _Proposal(changes, lambda best: f"go back to driver branch {_branch(best)}")
    virtual = any(match.vgpu for match in asked.gpus)
    if "driver-too-old" in rules and not virtual:
        yield _Proposal({"forward_compat": True})


def _signed(best: Candidate) -> str:
    return "prebuilt and signed" if best.base.signed else "built here"


def _other_wishes(asked: Host) -> list[dict[str, t.Any]]:
    """Wishes from those that there are to any build and any module."""
    builds: list[dict[str, t.Any]] = [{}, {"torch": _plain(asked), "cuda": "auto"}, {"torch": "latest", "cuda": "auto"}]
    modules: list[dict[str, t.Any]] = [{}, {"kernel_module": "auto"}]
    found = [{**build, **module} for build in builds for module in modules]
    return [changes for changes in found if not changes or _differs(asked, changes)]


def _first(asked: Host, ways: t.Sequence[Changes]) -> dict[str, t.Any]:
    """The first of the ways that works, with as little change of other wishes as can be; {} where none does."""
    for build in _other_wishes(asked):
        if build and resolve(host(dataclasses.replace(asked.request, **build), asked.data), explain=False).best:
            return {}  # that is enough, without anything else
        for way in ways:
            changed = host(dataclasses.replace(asked.request, **{**way, **build}), asked.data)
            if resolve(changed, explain=False).best is not None:
                return {**way, **build}
    return {}


def _by_the_owner(asked: Host, rules: set[str]) -> t.Iterator[_Proposal]:
    """Another driver or another module, installed by whoever looks after it."""
    if asked.board:
        return  # the driver is a part of the board's software: no other one can be put in its place
    who = "" if asked.owner in OURS else f"{owner_name(asked)}: "
    wish = asked.request.kernel_module
    for kind in FLAVOURS:
        needed = f"{kind}-module-required" in rules or ("module-not-as-wished" in rules and wish == kind)
        if needed and asked.installed and asked.fixed_driver:
            text = f"{who}install the {kind} kernel module of driver {asked.request.driver}"
            yield _Proposal({"driver_flavour": kind}, text, 0)
            if _first(asked, [{"driver_flavour": kind}]).keys() == {"driver_flavour"}:
                return
    unpackaged = asked.request.os_id != "" and not asked.fixed_driver and not _packaged(asked)
    if not unpackaged and not (asked.fixed_driver and (asked.installed or asked.owner not in OURS)):
        return
    policies: list[dict[str, t.Any]] = [{"driver_policy": "external"}] if unpackaged else [{}]
    if wish_for_branch := asked.request.driver_policy.isdigit():
        policies.append({"driver_policy": "auto"})
    for policy in policies:
        without = host(dataclasses.replace(asked.request, **policy), asked.data)
        down = "driver-dropped-gpu" in rules or (wish_for_branch and _dropped(without))
        steps = {step.driver: step for step in driver_steps(without, down)}
        changes = _first(asked, [{"driver": driver, "driver_flavour": "", **policy} for driver in steps])
        if changes:
            by = "by the system's own means, " if unpackaged else ""
            yield _Proposal(changes, f"{who}{by}{steps[changes['driver']].says}", 0 if len(changes) == 2 else 2)
            return


def _dropped(asked: Host) -> bool:
    """Whether the installed driver is of a branch that no longer drives one of the GPUs."""
    rows = [architecture(match.gpu.compute_capability, asked.data) for match in asked.gpus]
    return any(row and 0 < row.last_driver < max(asked.installed[:1], default=0) for row in rows)


def _packaged(asked: Host) -> bool:
    """Whether packages of any driver are known for the system."""
    return any(packages.driver_row(asked, other) for other in drivers.changes(asked))


def _plain(asked: Host) -> str:
    """The wish for torch without its build."""
    return asked.request.torch.split("+", 1)[0]


def _torch(asked: Host) -> t.Iterator[_Proposal]:
    yield _Proposal({"torch": _plain(asked), "cuda": "auto"}, far=2)
    yield _Proposal({"torch": "latest"}, far=3)
    yield _Proposal({"torch": "latest", "cuda": "auto"}, far=3)


def _pythons(asked: Host) -> t.Iterator[_Proposal]:
    if not asked.request.python:
        return
    for releases in (asked.torch.releases, tuple(asked.data.releases.values())):
        tags = {tag for release in releases for tag in release.wheels.get(asked.arch, ()) if tag[-1] != "t"}
        if tags:
            newest = max(tags, key=version.parse)
            yield _Proposal({"python": newest}, f"Python {newest}", 2)


def _fewer_gpus(asked: Host) -> t.Iterator[_Proposal]:
    """Hosts with like GPUs only."""
    if len(asked.gpus) < 2:
        return
    for match in asked.gpus:
        alone = tuple(wish for wish in asked.request.gpus if wish == match.wish)
        yield _Proposal({"gpus": alone}, f"a host with {match.label} only", 4)


def _host(outcome: Outcome, rules: set[str]) -> t.Iterator[_Proposal]:
    asked = outcome.host
    request = asked.request
    if "secure-boot-unsigned-module" in rules:
        yield _Proposal(
            {"mok_enrolled": True},
            "enrol a key that signs the module which is built (driver_mok_enroll: true)",
            0,
        )
    if "headers-unavailable" in rules:
        yield _Proposal({"headers": "available"}, f"headers of kernel {request.kernel}", 0)
    if "kernel-too-new-for-driver" in rules and outcome.nearest and outcome.nearest.driver:
        yield _Proposal({"kernel": ""}, rules_driver.older_kernel(asked, outcome.nearest.driver), 3)
    needs = _glibc(asked, asked.torch.releases if "glibc-too-old" in rules else asked.data.releases.values())
    if asked.glibc and asked.glibc < version.parse(needs):
        changes = {"glibc": needs, "os_id": "", "os_version": ""}
        yield _Proposal(changes, f"an operating system with glibc {needs} or newer", 4)
    if "fabric-manager-mismatch" in rules and asked.installed:
        who = "" if asked.owner in OURS else f"{owner_name(asked)}: "
        text = f"{who}install fabric manager {request.driver}, the driver's own version"
        yield _Proposal({"fabric_manager": request.driver}, text, 0)
    if "gpu-on-other-machine" in rules:
        yield _Proposal({"arch": "aarch64"}, "where it is true, state arch aarch64", 0)
    if "gpus-hidden" in rules:
        yield _Proposal({"hidden_by": ""}, "look at the host from outside the job", 0)
    if "gpu-planned-as-cpu" in rules:
        yield _Proposal({"accelerator": "cuda"})
    if "contradictory-wish" in rules:
        yield _Proposal({"accelerator": "auto", "torch": _plain(asked)})
        yield _Proposal({"cuda": "auto"})
    if "unknown-gpu" in rules:
        yield from _stated_capability(asked)


def _glibc(asked: Host, releases: t.Iterable[model.Release]) -> str:
    """The glibc that serves all these releases."""
    needs = [release.glibc.get(asked.arch, "2.17") for release in releases]
    return max(needs, key=version.parse)


def _stated_capability(asked: Host) -> t.Iterator[_Proposal]:
    """The compute capability of chips around an unknown id: a suggestion that a person must confirm."""
    for unknown in asked.unknown_gpus:
        capability = _capability_hint(unknown, asked.data)
        if not capability:
            continue
        stated = gpu.Wish(unknown.wish.name, capability)
        wishes = tuple(stated if wish == unknown.wish else wish for wish in asked.request.gpus)
        text = f"where it is true, state {{name: '{stated.name}', compute_capability: '{capability}'}}"
        yield _Proposal({"gpus": wishes}, text)


def _capability_hint(unknown: gpu.Unknown, data: model.Data) -> str:
    number = gpu.pci_number(unknown.wish.name)
    if number is None:
        return ""
    return next((row.compute_capability for row in data.chips if row.low <= number <= row.high), "")
