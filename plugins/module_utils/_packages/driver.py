# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of the driver's packages: judged before, done whole or taken back, read afterwards.

Nothing here decides a version: the plan does. What a host needs beside it (sources, headers, a pin) follows from it.
"""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import packages as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import (
    boot,
    fabric,
    kernels,
    record,
    repository,
    sources,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import Change as Planned
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import (
    Package,
    PackageFailure,
    choose,
    upstream,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.busy import User
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.manager import Manager
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.repository import Fetch, Repository
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

SOURCES = "sources.list.d/gpufleet-debian.sources"
LOGS = "/var/log/gpufleet"
#: What may go in the course of a change without a word of the user's.
_OURS_TO_REMOVE = re.compile(r"nvidia|cuda|^libnv|^libxnvctrl|^glx-|^update-glx|^xserver-xorg-video-nv")


CHANGES = ("install", "upgrade", "downgrade")
#: NVIDIA's repository has them as packages of their own: GPUs that stay awake, device nodes before the first use.
BESIDE = ("nvidia-persistenced", "nvidia-modprobe")


@dataclass
class Task:
    """What is asked. ``plan`` is the plan's part ``driver``, ``fabric`` its part ``fabric_manager``; ``installed`` is
    the version of the driver's libraries now; ``image`` means that no kernel of this host runs here."""

    plan: t.Mapping[str, t.Any]
    fabric: t.Mapping[str, t.Any]
    running: str
    system: str
    codename: str
    arch: str
    installed: str = ""
    image: bool = False
    proceed_when_busy: bool = False
    repository: t.Optional[Repository] = None


@dataclass
class Outcome:
    """What was done, or would be. ``failed`` is the text for a person, "" where all is well."""

    changed: bool = False
    version: str = ""
    packages: t.Dict[str, str] = field(default_factory=dict)
    change: t.List[str] = field(default_factory=list)
    findings: t.List[Finding] = field(default_factory=list)
    failed: str = ""
    #: What the package manager was asked for.
    asked: t.List[str] = field(default_factory=list)


class Stop(Exception):
    """The change may not or cannot be made; carries the Finding that says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.check}: {finding.found}; needed: {finding.expected}; {finding.reason}".rstrip("; "))
        self.finding = finding


class Change:
    """The change of one host, by its package manager."""

    def __init__(self, task: Task, apt: Manager, users: t.Callable[[], t.Sequence[User]], get: Fetch) -> None:
        self.task, self.apt, self.runner, self.users, self.get = task, apt, apt.runner, users, get
        self.asked: t.Tuple[str, ...] = ()
        #: Whether the packages are those of NVIDIA's repositories, where that is decided.
        self.vendor: t.Optional[bool] = {"nvidia": True, "os": False}.get(str(task.plan.get("source", "")))
        self.files = Files(apt.runner, remember=not apt.scratch)

    def present(self) -> Outcome:
        """Bring the planned driver onto the host. Raises Stop or PackageFailure, with the host as it was."""
        self._may_change()
        before = self._whole()
        try:
            self._add_sources()
            self.apt.update()
            version, names = self._versions()
            names += self._left_over(before, version, names) + self._headers(before) + self._prebuilt(names)
            self._pin(version, [item.split("=")[1] for item in names if "=" in item])
            planned = self.apt.simulate(names)
            self._judge_removals(planned.remove)
        except BaseException:
            self.files.take_back()
            raise
        if self.apt.scratch:
            loose = [item for item in driver_packages(before, version) if not item.held]
            changed = bool(planned or loose or self.files.changed)
            exact = dict(item.split("=") for item in names if "=" in item)
            return Outcome(changed, version, exact, planned.lines(), asked=names)
        try:
            problem = self._built(version, self.apt.problem(self.apt.change(names)))
            if problem is not None:
                raise Stop(problem)
        except BaseException as error:
            left = self._take_back(before)
            if left:
                raise PackageFailure(f"{error}; {left}") from error
            raise
        return self._settle(version, planned)

    def _settle(self, version: str, planned: Planned) -> Outcome:
        """Hold what was installed, make what belongs to it, and remember both."""
        known = record.read(self.runner)
        installed = self.apt.installed()
        ours = driver_packages(installed, version)
        follow = [item for item in installed.values() if item.name in self.asked and item.name in fabric.FOLLOWS]
        loose = [package.name for package in [*ours, *follow] if not package.held]
        self.apt.hold(loose)
        self._pin(version, [package.version for package in ours])
        boot.make_nodes(self.files)
        boot.start_services(self.files, self.runner, self.asked)
        fabric.load_modules(self.files, self.task.fabric, not self.task.image, boot.COMMENT)
        new = {name for name, (old, _new) in planned.install.items() if not old and _OURS_TO_REMOVE.search(name)}
        record.write(
            record.Record(
                version,
                self.asked or (known.packages if known else ()),
                tuple(sorted({*new, *(known.brought if known else ())})),
                tuple(sorted({boot.NOUVEAU, *self.files.ours, *(known.files if known else ())} - self.files.gone)),
            )
        )
        boot.keep_nouveau_out(self.files, self.apt)
        changed = bool(planned or loose or self.files.changed)
        lines = planned.lines() + [f"hold {name}" for name in loose]
        return Outcome(changed, version, {item.name: item.version for item in ours}, lines, self.findings(version))

    def kept(self, version: str, known: t.Optional[record.Record]) -> Outcome:
        """The driver that stays. What belongs to one of our own is made whole; any other is only looked at."""
        if known is None or known.version != version:
            return Outcome(False, version, findings=self.findings(version))
        self.asked = known.packages
        lacking = fabric.missing(self.task.fabric, self.apt.installed())
        if lacking:
            return self._completed(known)
        if not self.apt.scratch:
            # A kernel that came since is the default of the next start.
            grown = [kernel for kernel in self._targets() if self.by_dkms() and self._build(kernel)]
            outcome = self._settle(version, Planned())
            outcome.changed = outcome.changed or bool(grown)
            outcome.change += [f"build the module for kernel {kernel}" for kernel in grown]
            return outcome
        lines = [f"hold {item.name}" for item in driver_packages(self.apt.installed(), version) if not item.held]
        lines += [f"write {path}" for path in known.files if not os.path.lexists(path)]
        return Outcome(bool(lines), version, change=lines, findings=self.findings(version))

    def _completed(self, known: record.Record) -> Outcome:
        """Bring what the board needs beside our own driver, in its version and from where it came."""
        offered = self.apt.versions(known.packages, vendor=True)
        self.vendor = any(choose(f"{name}={known.version}-*", offered) for name in known.packages)
        beside = {item.split("=")[0] for item in self.task.fabric["packages"]}
        names = [name for name in known.packages if name not in beside]
        self.task.plan = {**self.task.plan, "version": known.version, "packages": names}
        return self.present()

    def findings(self, version: str) -> t.List[Finding]:
        """How the packages and modules of this version stand."""
        installed = self.apt.installed()
        packages = driver_packages(installed, version)
        found = [checks.held(version, [(package.name, package.held) for package in packages])]
        found += fabric.check(
            self.task.fabric,
            version,
            installed,
            lambda name: self.task.image or self.runner.exists(f"/sys/module/{name}"),
        )
        found += [checks.doubled(self.apt.doubled)] if self.apt.doubled else []
        for kernel in self._targets():
            built = kernels.module(self.runner, kernel)
            found.append(self._judged(kernel, version, built))
        return found

    def absent(self, known: record.Record) -> Outcome:
        """Remove the driver of our own record with what it brought, and nothing else."""
        self._may_change()
        before = self._whole()
        own = {item.name for item in driver_packages(before, known.version)}
        # A tool of the system's that was asked for along, such as infiniband-diags, may be somebody's.
        asked = {name for name in known.packages if is_ours(name)}
        own |= {name for name in before if name.split(":")[0] in {*asked, *known.brought}}
        planned = self.apt.simulate_purge(sorted(own)) if own else Planned()
        self._judge_removals({name: version for name, version in planned.remove.items() if name not in own})
        if not self.apt.scratch:
            self.apt.hold([name for name in sorted(own) if before[name].held], held=False)
            if own:
                self.apt.purge(sorted(own))
            for path in known.files:
                if os.path.lexists(path):
                    os.unlink(path)
            self.apt.unpin()
            record.remove()
        return Outcome(True, "", {}, planned.lines())

    # What is judged before a change.

    def _may_change(self) -> None:
        users = list(self.users())
        if users and not self.task.proceed_when_busy:
            raise Stop(checks.busy([str(user) for user in users]))
        needed = kernels.largest_initramfs(self.runner)
        if needed and kernels.free(self.runner, "/boot") < needed:
            raise Stop(checks.boot_space(kernels.free(self.runner, "/boot"), needed))

    def _whole(self) -> t.Dict[str, Package]:
        packages = self.apt.installed()
        left = self.apt.interrupted(packages)
        if left and self.apt.scratch:
            raise Stop(checks.interrupted(left, self.apt.by_hand))
        if left:
            self.apt.repair()
            packages = self.apt.installed()
        return packages

    def _add_sources(self) -> None:
        """NVIDIA's repository where the plan takes the driver from there; else Debian's contrib and non-free.

        None beside a bundle's packages.
        """
        if self.apt.bundle:
            return
        if self.task.repository is not None:
            repository.place(self.task.repository, self.apt, self.files, self.get)
        if self.task.plan["source"] != "os" or self.task.system != "debian":
            return
        entries = []
        for name in [
            "sources.list",
            *(f"sources.list.d/{entry}" for entry in self.runner.listdir("/etc/apt/sources.list.d")),
        ]:
            text = self.runner.read(f"/etc/apt/{name}") or ""
            if name != SOURCES:
                entries += sources.parse_deb822(text) if name.endswith(".sources") else sources.parse_list(text)
        lacking = sources.missing_components(entries, self.task.codename)
        if lacking:
            self.files.write(f"{self.apt.etc}/{SOURCES}", sources.deb822(lacking, boot.COMMENT))

    def _versions(self) -> t.Tuple[str, t.List[str]]:
        """The driver's version and the packages with theirs."""
        plan = self.task.plan
        wanted = [str(name) for name in plan["packages"]]
        beside = [str(name) for name in self.task.fabric.get("packages") or ()]
        every = [name.split("=")[0] for name in [*wanted, *beside, *BESIDE]]
        available = self._available(every)
        version = pick(plan, {name: available[name] for name in wanted if name in available})
        if not version:
            raise Stop(checks.not_available(plan, wanted, self.apt.others(wanted)))
        # What the plan holds to the driver refuses one of another version.
        wanted += fabric.wanted(self.task.fabric, version)
        # Tools of the system, such as infiniband-diags, come from wherever they are.
        tools = [name for name in beside if "=" not in name and name not in available]
        available.update(self.apt.versions(tools))
        if self.vendor:
            extra = [f"{name}={version}-*" for name in BESIDE if name not in wanted]
            wanted += [name for name in extra if choose(name, available)]
        names = []
        for name in wanted:
            exact = choose(name if "=" in name else f"{name}={version}-*", available) or choose(name, available)
            if not exact:
                raise Stop(checks.not_available(plan, wanted, available))
            names.append(exact)
        self.asked = tuple(name.split("=")[0] for name in names)
        return version, names

    def _available(self, names: t.Iterable[str]) -> t.Dict[str, t.List[str]]:
        """What the source of the plan has, by its origin: two sources may carry one name, and even one version."""
        return self.apt.versions(names, self.vendor, self.task.repository.url if self.task.repository else "")

    def _left_over(self, before: t.Mapping[str, Package], version: str, names: t.Sequence[str]) -> t.List[str]:
        """What the old driver would leave behind: its packages come along, or go where the new one has none of them."""
        wanted = {name.split("=")[0] for name in names}
        known = record.read(self.runner)
        asked = set(known.packages) - wanted if known else set()
        olds = {known.version if known else "", self.task.installed} - {"", version}
        stale = [item for old in olds for item in driver_packages(before, old)]
        stale = [item for item in stale if item.name.split(":")[0] not in wanted | asked]
        available = self._available(item.name.split(":")[0] for item in stale)
        moved = []
        for item in stale:
            name = item.name.split(":")[0]
            exact = choose(f"{name}={version}-*", available)
            moved.append(exact or f"{name}-")
        return moved + [f"{name}-" for name in sorted(asked) if name in before and is_ours(name)]

    def _targets(self) -> t.List[str]:
        return kernels.targets(self.runner, self.task.running, self.task.image)

    def _headers(self, before: t.Mapping[str, Package]) -> t.List[str]:
        """Packages of the headers of each kernel that the module is for, and those that bring the next ones."""
        if self.task.plan["build"] != "dkms":
            return []
        targets = self._targets()
        have = kernels.with_headers(self.runner)
        exact = {kernel: self.apt.headers(kernel) for kernel in targets if kernel not in have}
        following = self.apt.following(before, targets, self.task.system, self.task.arch)
        available = self.apt.versions(name.split("=")[0] for name in [*exact.values(), *following])
        lacking = {kernel: name for kernel, name in exact.items() if not choose(name, available)}
        if lacking:
            raise Stop(checks.headers(lacking, have))
        return [name for name in [*exact.values(), *following] if choose(name, available)]

    def _prebuilt(self, names: t.Sequence[str]) -> t.List[str]:
        """The signed module of each kernel: the package that follows the flavour brings the newest one's only."""
        found = []
        for name in (item.split("=")[0] for item in names):
            stem = re.match(r"^linux-modules-nvidia-\d+(?:-server)?(?:-open)?-(?=[a-z])", name)
            if self.task.plan["build"] != "prebuilt" or stem is None:
                continue
            exact = {kernel: f"{stem[0]}{kernel}" for kernel in self._targets()}
            available = self._available(exact.values())
            lacking = {kernel: item for kernel, item in exact.items() if item not in available}
            if lacking:
                raise Stop(checks.no_prebuilt(lacking))
            found += list(exact.values())
        return found

    def _judge_removals(self, removed: t.Mapping[str, str]) -> None:
        foreign = sorted(name for name in removed if not _OURS_TO_REMOVE.search(name))
        if foreign:
            raise Stop(checks.removes(foreign))

    # The change.

    def _pin(self, version: str, exact: t.Iterable[str]) -> None:
        """Pin the driver's version; ``exact``: the whole versions of what we took of it."""
        self.apt.pin(version, {item for item in exact if upstream(item) == version}, self.asked, self.files)

    def _built(self, version: str, problem: str) -> t.Optional[Finding]:
        """Why the change is not what was planned: None where all modules are there and the packages too."""
        for kernel in self._targets():
            if self.task.plan["build"] == "dkms" and not problem:
                self._build(kernel)
            finding = self._judged(kernel, version, kernels.module(self.runner, kernel))
            # Where no compiler complained, it is the run of the packages that failed, and its own words say why.
            if finding.state == "fail" and (finding.evidence["error"] or not problem):
                return finding
        return checks.package_run(problem) if problem else None

    def by_dkms(self) -> bool:
        """Whether DKMS has a module of NVIDIA's, which it built here."""
        return any(name.startswith("nvidia") for name in self.runner.listdir(kernels.DKMS))

    def _build(self, kernel: str) -> bool:
        """Let DKMS make what it has not made for a kernel; whether there is a module now that was not there."""
        if kernels.module(self.runner, kernel) is not None:
            return False
        self.runner.run(["dkms", "autoinstall", "-k", kernel], limit=self.apt.limit)
        return kernels.module(self.runner, kernel) is not None

    def _judged(self, kernel: str, version: str, built: t.Optional[kernels.Module]) -> Finding:
        finding = checks.module(kernel, version, built, "", "", self.task.plan.get("build") == "prebuilt")
        if finding.state == "ok" or finding.check == "driver-module":
            return finding
        return checks.module(kernel, version, built, *self._log(kernel))

    def _log(self, kernel: str) -> t.Tuple[str, str]:
        path, text = kernels.build_log(self.runner, kernel)
        if not path or self.apt.scratch:
            return path, kernels.first_error(text)
        # DKMS takes its log with it when the package goes.
        kept = f"{LOGS}/{path.split('/')[4]}-{path.split('/')[5]}-{kernel}.log"
        write_atomic(kept, text + "\n")
        return kept, kernels.first_error(text)

    def _take_back(self, before: t.Mapping[str, Package]) -> str:
        """Leave the packages whole: what the change brought goes, what it replaced comes back. "" where that worked."""
        self.files.take_back()
        back = self._differing(before)
        self.apt.take_back()
        problem = self.apt.problem(self.apt.change(back, purge=True)) if back else ""
        if problem:
            self.apt.repair()
            back = self._differing(before)
        self.apt.hold([name for name, package in before.items() if package.held])
        return (
            f"and it could not be taken back ({problem}): still to do are {' '.join(back)}" if problem and back else ""
        )

    def _differing(self, before: t.Mapping[str, Package]) -> t.List[str]:
        now = self.apt.installed()
        back = [f"{name}={package.version}" for name, package in before.items() if name not in now]
        for name, package in now.items():
            old = before.get(name)
            if old is None and (package.state != "installed" or _OURS_TO_REMOVE.search(name)):
                back.append(f"{name}-")
            elif old is not None and old.version != package.version and _OURS_TO_REMOVE.search(name):
                back.append(f"{name}={old.version}")
        return back


def is_ours(name: str) -> bool:
    """Whether a package belongs to a driver and its fabric, and goes with them."""
    return bool(_OURS_TO_REMOVE.search(name)) or name in fabric.FOLLOWS


def driver_packages(packages: t.Mapping[str, Package], version: str) -> t.List[Package]:
    """The packages of the driver's own version: none of them may move without the others."""
    return [package for package in packages.values() if version and package.upstream == version]


def numbers(version: str) -> t.Tuple[int, ...]:
    """580.105.08 after 580.95.05."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def pick(plan: t.Mapping[str, t.Any], available: t.Mapping[str, t.Sequence[str]]) -> str:
    """The version of the driver that the sources have and the plan means, "" where there is none.

    The planned one, where it is exact and there; a distribution carries one at a time and moves it within the branch,
    so from there a newer one of the branch serves too.
    """
    offered = {
        upstream(version)
        for versions in available.values()
        for version in versions
        if upstream(version).startswith(f"{plan['branch']}.")
    }
    planned = str(plan.get("version") or "")
    if planned in offered:
        return planned
    floor = numbers(planned or str(plan.get("minimum") or "0"))
    if planned and plan.get("source") != "os":
        return ""
    # The oldest one that all of them have together is no aim: the newest of the branch is.
    fitting = [version for version in offered if numbers(version) >= floor and len(numbers(version)) >= 2]
    return max(fitting, key=numbers, default="")
