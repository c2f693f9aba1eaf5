# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Candidates in, the best one out, or the causes of the nearest miss.

A candidate is a build of torch and a driver. What comes first is better:
1. the user's wish (what a wish excludes is no candidate; for ``latest`` and a
   series such as ``2.8`` the newest release comes before all that follows),
2. a driver that can stay,
3. a supported long-lived branch, then a supported production branch,
4. the newest release that the wish allows,
5. the build that is the default of its release, then one of which it was read, not
   deduced, that it is published and for which GPUs, then the newest CUDA.
Between drivers that are equal so far: no forward compatibility, cells that
were read, NVIDIA's repository, the open module, the newest branch.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from . import driver as drivers
from . import model, rules_driver, version
from .cause import Cause, Rule
from .driver import Driver
from .host import OURS, Host
from .rules_driver import DRIVER_RULES, PAIR_RULES
from .rules_host import HOST_RULES, owner_name, wished_variant
from .rules_wheel import WHEEL_RULES
from .torch_wish import Wheel

Order = tuple[t.Any, ...]
#: Every rule, in the order in which they are judged.
ALL_RULES = HOST_RULES + WHEEL_RULES + DRIVER_RULES + PAIR_RULES


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A build and a driver; ``driver`` is None for the build without CUDA. ``forward``: needs cuda-compat."""

    wheel: Wheel
    driver: Driver | None
    forward: bool = False

    @property
    def base(self) -> Driver:
        """The driver beneath. LookupError for the build without CUDA."""
        if self.driver is None:
            raise LookupError(f"{self.wheel} needs no driver")
        return self.driver


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """``best`` and the next best builds and drivers, or the causes why there is none.

    ``held_back``: what the host would run alone, and which hosts of its group forbid it; "" where nothing is.
    """

    host: Host
    best: Candidate | None
    causes: tuple[Cause, ...] = ()
    next_wheel: Candidate | None = None
    next_driver: Candidate | None = None
    nearest: Candidate | None = None
    held_back: str = ""

    @property
    def chosen(self) -> Candidate:
        """The best candidate. LookupError where there is none."""
        if self.best is None:
            raise LookupError("there is no plan: the outcome has causes")
        return self.best


def resolve(host: Host, only: Wheel | None = None, explain: bool = True) -> Outcome:
    """The best candidate; ``only`` narrows the builds to one (a group has decided it).

    Without ``explain`` an outcome without a candidate has no causes but those of the host.
    """
    causes = rules_driver.causes(HOST_RULES, host)
    if causes:
        return Outcome(host, None, tuple(causes))
    wheels = good_wheels(host)
    if only is not None:
        wheels = tuple(wheel for wheel in wheels if wheel == only)
    if host.cpu:
        ranked = [Candidate(wheel, None) for wheel in wheels]
        return Outcome(host, ranked[0], next_wheel=_second(ranked)) if ranked else _nearest_miss(host)
    good = good_drivers(host) if wheels else ()
    firsts = sorted(_best_each(host, wheels, good), key=lambda candidate: order(host, candidate))
    if not firsts:
        return _nearest_miss(host) if explain else Outcome(host, None)
    best = firsts[0]
    branch = best.base.branch
    others = (
        other for other in _with_drivers(host, best.wheel, good) if other.driver and other.driver.branch != branch
    )
    return Outcome(host, best, next_wheel=_second(firsts), next_driver=next(others, None))


def _best_each(host: Host, wheels: t.Iterable[Wheel], good: tuple[Driver, ...]) -> t.Iterator[Candidate]:
    """The best candidate of each build that has a driver. Builds of one CUDA major have the same floor: judged once."""
    seen: dict[t.Any, Candidate | None] = {}
    for wheel in wheels:
        cuda = wheel.build.cuda
        key = cuda if host.request.forward_compat else version.major(cuda)
        if key not in seen:
            seen[key] = next(iter(_with_drivers(host, wheel, good)), None)
        if first := seen[key]:
            yield Candidate(wheel, first.driver, first.forward)


def best_by_wheel(host: Host) -> dict[Wheel, Order]:
    """Every build that works on the host, with the order of its best candidate; empty where nothing does."""
    if rules_driver.causes(HOST_RULES, host):
        return {}
    wheels = good_wheels(host)
    if host.cpu:
        return {wheel: order(host, Candidate(wheel, None)) for wheel in wheels}
    return {found.wheel: order(host, found) for found in _best_each(host, wheels, good_drivers(host))}


def _second(ranked: t.Sequence[Candidate]) -> Candidate | None:
    return ranked[1] if len(ranked) > 1 else None


def wheels_of(host: Host) -> tuple[Wheel, ...]:
    """The builds that the wish allows, newest release first and in it newest CUDA first."""
    if host.cpu:
        return tuple(Wheel(release, None) for release in host.torch.releases)
    return _cuda_wheels(host.torch.releases, wished_variant(host))


@functools.lru_cache(maxsize=256)
def _cuda_wheels(releases: tuple[model.Release, ...], wished: str) -> tuple[Wheel, ...]:
    return tuple(
        Wheel(release, variant)
        for release in releases
        for variant in sorted(release.variants.values(), key=lambda build: version.parse(build.cuda), reverse=True)
        if wished in ("", variant.name)
    )


def good_wheels(host: Host) -> tuple[Wheel, ...]:
    """The builds that run on the host, whatever its driver. Hosts that are alike here are judged once."""
    key = (
        host.torch,
        host.cpu,
        wished_variant(host),
        host.arch,
        host.glibc,
        host.request.python,
        tuple(sorted({match.cc for match in host.gpus})),
    )
    return _remember(_wheel_cache, key, lambda: tuple(w for w in wheels_of(host) if not _any(WHEEL_RULES, host, w)))


_K = t.TypeVar("_K")
_V = t.TypeVar("_V")
_wheel_cache: dict[t.Any, tuple[Wheel, ...]] = {}
CACHE_LIMIT = 4096


def _remember(cache: dict[_K, _V], key: _K, make: t.Callable[[], _V]) -> _V:
    if key not in cache:
        if len(cache) >= CACHE_LIMIT:
            cache.clear()
        cache[key] = make()
    return cache[key]


def forget() -> None:
    """Forget what was judged of hosts so far: for measurements."""
    _wheel_cache.clear()


def _any(rules: t.Iterable[Rule], *given: t.Any) -> bool:
    return any(next(rule.check(*given), None) is not None for rule in rules)


def drivers_of(host: Host) -> tuple[Driver, ...]:
    """The drivers that the host could have, the installed one first."""
    kept = drivers.installed(host)
    return ((kept,) if kept else ()) + drivers.changes(host)


def good_drivers(host: Host) -> tuple[Driver, ...]:
    """The drivers that fit the host, whatever the build."""
    return tuple(driver for driver in drivers_of(host) if not _any(DRIVER_RULES, host, driver))


def _with_drivers(host: Host, wheel: Wheel, good: t.Iterable[Driver]) -> list[Candidate]:
    """The drivers beneath this build, best first."""
    found = []
    for driver in good:
        if not _any(PAIR_RULES, host, wheel, driver):
            found.append(Candidate(wheel, driver, bool(rules_driver.too_old(host, wheel, driver))))
    return sorted(found, key=driver_order)


def driver_order(candidate: Candidate) -> Order:
    """How good the driver of a candidate is: less is better."""
    driver = candidate.base
    row = driver.row
    if driver.stays:
        rank = 0
    elif row and row.supported:
        rank = {"LTSB": 0, "PB": 1}.get(row.kind, 2)
    else:
        rank = 2
    guessed = 0 if driver.stays or (row and not row.is_inferred("cuda") and row.last) else 1
    origin = {"installed": 0, "nvidia": 1}.get(driver.origin, 2)
    return not driver.stays, candidate.forward, rank, guessed, origin, driver.flavour != "open", -driver.branch


#: The steps of the order, as a reason names them; the first two parts of a driver's order are steps of their own.
STEPS = (
    "newest-wished",
    "driver-stays",
    "no-forward-compat",
    "branch",
    "newest",
    "default-build",
    "read",
    "newest-cuda",
    "driver",
)


def order(host: Host, candidate: Candidate) -> Order:
    """How good a candidate is, one part for each of STEPS: less is better."""
    wheel = candidate.wheel
    newest = tuple(-number for number in version.parse(wheel.release.version))
    if wheel.variant is None or candidate.driver is None:
        return newest, False, False, 0, newest, False, False, (), ()
    stays, forward, rank, *rest = driver_order(candidate)
    not_default = wheel.variant.name != default_of(wheel.release, host.arch)
    unread = wheel.variant.is_inferred("published") or wheel.variant.is_inferred(host.arch)
    cuda = tuple(-number for number in version.parse(wheel.variant.cuda))
    return (
        newest if host.torch.newest_first else (),
        stays,
        forward,
        rank,
        newest,
        not_default,
        unread,
        cuda,
        tuple(rest),
    )


def decided_by(host: Host, better: Candidate, worse: Candidate) -> str:
    """The step of the order that puts one candidate before the other."""
    pairs = zip(STEPS, order(host, better), order(host, worse), strict=True)
    return next((step for step, one, other in pairs if one != other), STEPS[-1])


def default_of(release: model.Release, arch: str) -> str:
    """The build that an index without a label gives: on aarch64 the same as on x86_64 where it is published there."""
    return release.default if arch == "x86_64" or arch in release.variants[release.default].archs else ""


def all_causes(host: Host, candidate: Candidate) -> list[Cause]:
    """Everything that is wrong with a candidate."""
    found = rules_driver.causes(WHEEL_RULES, host, candidate.wheel)
    if candidate.driver is not None:
        found += rules_driver.causes(DRIVER_RULES, host, candidate.driver)
        found += rules_driver.causes(PAIR_RULES, host, candidate.wheel, candidate.driver)
    return found


def _nearest_miss(host: Host) -> Outcome:
    """The candidate with the fewest rules against it explains, the better one where two are equal."""
    wheels = wheels_of(host)
    offered: tuple[Driver | None, ...] = (None,) if host.cpu else drivers_of(host)
    if not offered:
        least = min((rules_driver.causes(WHEEL_RULES, host, wheel) for wheel in wheels), key=len)
        return Outcome(host, None, (*least, _owned_elsewhere(host) if host.fixed_driver else _no_driver_offered(host)))
    against = [(wheel, _rules(WHEEL_RULES, host, wheel)) for wheel in wheels]
    against_driver = {other: _rules(DRIVER_RULES, host, other) if other else frozenset() for other in offered}
    against_pair: dict[t.Any, frozenset[str]] = {}
    fewest, nearest = len(ALL_RULES) + 1, list[Candidate]()
    for wheel, of_wheel in against:
        for driver, of_driver in against_driver.items():
            broken = of_wheel | of_driver
            if len(broken) > fewest:
                continue
            if driver is not None and wheel.variant is not None:
                key = (wheel.variant.cuda, driver)
                if key not in against_pair:
                    against_pair[key] = _rules(PAIR_RULES, host, wheel, driver)
                broken |= against_pair[key]
            if len(broken) < fewest:
                fewest, nearest = len(broken), []
            if len(broken) == fewest:
                nearest.append(Candidate(wheel, driver))
    best = min(nearest, key=lambda candidate: order(host, candidate))
    causes = all_causes(host, best)
    if host.external and any(cause.rule not in _NOT_OF_DRIVER for cause in causes):
        causes.append(_owned_elsewhere(host))
    return Outcome(host, None, tuple(causes), nearest=best)


def _rules(rules: t.Iterable[Rule], *given: t.Any) -> frozenset[str]:
    """The ids of the rules that are broken."""
    return frozenset(rule.id for rule in rules if next(rule.check(*given), None) is not None)


_NOT_OF_DRIVER = frozenset(rule.id for rule in WHEEL_RULES) | {"forward-compat-unsupported"}


def _owned_elsewhere(host: Host) -> Cause:
    policy = host.request.driver_policy
    who = owner_name(host) if host.owner not in OURS else "driver_policy external"
    found, needs = f"a driver that belongs to {who}", f"its change by {who}"
    if policy.isdigit() and host.installed and int(policy) != host.installed[0]:
        found = f"driver {host.request.driver}, which belongs to {who}, beside driver_policy {policy}"
        needs += ", or driver_policy auto"
    return Cause("driver-owned-elsewhere", "driver", found, needs, "by design")


def _no_driver_offered(host: Host) -> Cause:
    request = host.request
    wish = f"branch {request.driver_policy}" if request.driver_policy.isdigit() else "a driver"
    module = f" with the {request.kernel_module} module" if request.kernel_module != "auto" else ""
    found = f"{wish}{module} in no source of {host.os_label} (driver_source {request.driver_source})"
    sources = "another branch, or another source"
    return Cause("driver-not-offered", "driver", found, sources, "the sources in the data")
