# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for hosts that share jobs: one release of torch, one build, one NCCL and one Python minor for all.

Every host keeps its own driver; the build is the best that works on all of
them, by the order of ``resolver`` with the hosts' worst part first.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from . import model
from .answer import Answer, answer_request, of_causes
from .cause import Cause
from .host import Host, host
from .plan import plan
from .request import Request
from .resolver import STEPS, Outcome, best_by_wheel, good_wheels, resolve
from .torch_wish import Wheel

COHERENT = "hosts that share jobs run one torch, one build of it, one NCCL and one Python"
MOST_NAMED = 3
#: Where in an order it is said whether the installed driver has to go.
_STAYS = STEPS.index("driver-stays")


def plan_group(requests: t.Mapping[str, Request], data: model.Data) -> dict[str, Answer]:
    """The plan or conflict of each host, by name. Alike hosts are resolved once.

    A host whose own best build is the common one gets exactly the plan that it has alone.
    A host that has no plan of its own gets its own conflict, and the others are
    planned without it. Where nothing works on all of them, each gets the conflict
    ``fleet-not-coherent``.
    """
    alike: dict[Request, list[str]] = collections.defaultdict(list)
    for name, request in requests.items():
        alike[request].append(name)
    hosts = {request: host(request, data) for request in alike}
    by_wheel = {request: best_by_wheel(hosts[request]) for request in alike}
    able = [request for request in alike if by_wheel[request]]
    answers: dict[Request, Answer] = {
        request: answer_request(request, data) for request in alike if request not in able
    }
    if able:
        wheel = _common(able, by_wheel) if not (causes := _unlike(able, alike)) else None
        if wheel is None:
            found = of_causes(causes or [_nothing_common(able, alike, hosts)], _remedies(able, alike, by_wheel, data))
            answers |= dict.fromkeys(able, found)
        else:
            answers |= {request: plan(_outcome(request, wheel, alike, hosts, by_wheel)) for request in able}
    return {name: answers[request] for request, names in alike.items() for name in names}


def _best(orders: t.Mapping[Wheel, t.Any]) -> Wheel:
    """What a host would run alone."""
    return min(orders, key=lambda wheel: orders[wheel])


def _outcome(
    request: Request,
    wheel: Wheel,
    alike: t.Mapping[Request, list[str]],
    hosts: t.Mapping[Request, Host],
    by_wheel: t.Mapping[Request, t.Mapping[Wheel, t.Any]],
) -> Outcome:
    """The outcome of a host with the common build; where alone it would run another, with those that forbid that."""
    alone = _best(by_wheel[request])
    if alone == wheel:
        return resolve(hosts[request])
    able = [other for other in alike if by_wheel[other]]
    without = [other for other in able if alone not in by_wheel[other]]
    forcing = without or [other for other in able if by_wheel[other][wheel] < by_wheel[other][alone]]
    who = "; ".join(f"{_some(alike[other])} ({_gpus(hosts[other])})" for other in forcing)
    moved = not without and all(by_wheel[other][alone][_STAYS] > by_wheel[other][wheel][_STAYS] for other in forcing)
    how = "does not work on" if without else "needs another driver on" if moved else "is worse on"
    why = f"{alone}, which {how} {who}"
    return dataclasses.replace(resolve(hosts[request], wheel), held_back=why)


def _gpus(host_: Host) -> str:
    return ", ".join(match.label for match in host_.gpus) or "no GPU"


def _common(able: t.Sequence[Request], by_wheel: t.Mapping[Request, t.Mapping[Wheel, t.Any]]) -> Wheel | None:
    """The best build that works on all hosts."""
    shared = set.intersection(*(set(by_wheel[request]) for request in able))
    if not shared:
        return None
    return min(shared, key=lambda wheel: _joint(wheel, able, by_wheel))


def _joint(
    wheel: Wheel, able: t.Sequence[Request], by_wheel: t.Mapping[Request, t.Mapping[Wheel, t.Any]]
) -> tuple[t.Any, ...]:
    """The order of a build for a group: step by step, summed up over unlike hosts."""
    orders = [by_wheel[request][wheel] for request in able]
    return tuple(sorted(parts, reverse=True) for parts in zip(*orders, strict=True))


def _unlike(able: t.Sequence[Request], alike: t.Mapping[Request, list[str]]) -> list[Cause]:
    """What the hosts were given that cannot be one for all: Python, architecture aside, and accelerator."""
    causes = []
    for option in ("python", "accelerator"):
        values: dict[str, list[str]] = collections.defaultdict(list)
        for request in able:
            if value := getattr(request, option):
                values[value].extend(alike[request])
        if option == "accelerator" and not {"cpu"} & set(values):
            continue
        if len(values) > 1:
            found = "; ".join(f"{value} on {_some(names)}" for value, names in sorted(values.items()))
            causes.append(Cause("fleet-not-coherent", option, found, f"one {option}: {COHERENT}", "by design"))
    return causes


def _some(names: t.Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(sorted(names)[:MOST_NAMED]) + more


def _nothing_common(
    able: t.Sequence[Request], alike: t.Mapping[Request, list[str]], hosts: t.Mapping[Request, Host]
) -> Cause:
    same: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for request in able:
        builds = [f"{wheel.release.version}+{wheel.label}" for wheel in good_wheels(hosts[request])]
        same[_gpus(hosts[request]), _span(builds)].extend(alike[request])
    found = [f"{_some(names)} ({gpus}) {span}" for (gpus, span), names in same.items()]
    return Cause("fleet-not-coherent", "fleet", "; ".join(found), COHERENT, "by design")


def _span(builds: t.Sequence[str]) -> str:
    return f"with {', '.join(builds)}" if len(builds) <= MOST_NAMED else f"with {builds[0]} to {builds[-1]}"


def _remedies(
    able: t.Sequence[Request],
    alike: t.Mapping[Request, list[str]],
    by_wheel: t.Mapping[Request, t.Mapping[Wheel, t.Any]],
    data: model.Data,
) -> list[str]:
    """What works instead, each checked: one wish for all, one Python for all, or groups of their own."""
    found = []
    changes: list[tuple[str, dict[str, t.Any]]] = []
    pythons = {request.python for request in able if request.python}
    if len(pythons) > 1:
        changes += [(f"Python {python} on all hosts", {"python": python}) for python in sorted(pythons, reverse=True)]
    changes.append(("torch latest and cuda auto for all", {"torch": "latest", "cuda": "auto"}))
    changes.append(("driver_policy auto for all", {"driver_policy": "auto"}))
    for says, change in changes:
        changed = [dataclasses.replace(request, **change) for request in able]
        if changed == list(able):
            continue
        wheels = {request: best_by_wheel(host(request, data)) for request in changed}
        if all(wheels.values()) and not _unlike(changed, {request: ["-"] for request in changed}):
            wheel = _common(changed, wheels)
            if wheel:
                found.append(f"{says}: {wheel}")
    if len(able) > 1:
        groups: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for request in able:
            groups[str(_best(by_wheel[request])), request.python].extend(alike[request])
        apart = "; ".join(f"{_some(names)} with {best}" for (best, _python), names in groups.items())
        found.append(f"groups that share no jobs (plan_group): {apart}")
    return found
