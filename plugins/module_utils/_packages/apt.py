# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt and dpkg: what is installed, what could be, and one change of it that asks nothing and ends in bounded time.

The text of the tools is parsed by pure functions; Apt runs them through a Runner.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
import typing as t
from dataclasses import dataclass, field

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import openpgp, sources
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result, Runner

#: What makes every tool below apt keep quiet: debconf, needrestart, apt-listchanges; and old conffiles stay.
QUIET = {
    "DEBIAN_FRONTEND": "noninteractive",
    "NEEDRESTART_MODE": "l",
    "NEEDRESTART_SUSPEND": "1",
    "APT_LISTCHANGES_FRONTEND": "none",
}
#: The variable that names a folder of a bundle's packages, which are then all that is to be had.
BUNDLE = "GPUFLEET_PACKAGES"
#: The origin that NVIDIA's repositories give in their Release, also those that lie on the host.
VENDOR = "NVIDIA"
_KEEP_CONFFILES = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
#: May change what is held (the hold is set again), go back, and never asks; recommended packages are not the plan's.
_CHANGE = ("--yes", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages", *_KEEP_CONFFILES)
#: States of dpkg in which a package was left by a run that broke off.
_BROKEN = {
    "F": "half-configured",
    "U": "unpacked",
    "H": "half-installed",
    "W": "triggers-awaited",
    "t": "triggers-pending",
}

KEYRINGS = "/etc/apt/keyrings"
#: In a folder that a bundle's packages were unpacked into: itself, as the only source that apt is to see.
LIST = "bundle.list"
#: Under the settings of apt.
PIN = "preferences.d/gpufleet-driver"
#: Packages that can carry the driver's version. An exact version in the pin leaves all others alone.
PINNED = "*nvidia* *cuda* libnv* libxnvctrl*"

#: "Could not get lock /var/lib/apt/lists/lock", "dpkg frontend lock was locked by another process with pid 4711".
LOCKED = re.compile(
    r"[Cc]ould not get lock|lock (?:is|was) locked|[Uu]nable to lock|unable to access the dpkg frontend lock"
)
_SIGNATURE = re.compile(r"is not bound|is not considered secure|NO_PUBKEY|BADSIG|EXPKEYSIG")


class PackageFailure(ValueError):
    """A package manager could not do what was asked; the text says what, why and what to do."""


@dataclass(frozen=True)
class Package:
    """One package of dpkg's database, by its name with the architecture where it needs one."""

    name: str
    version: str
    held: bool
    state: str = "installed"

    @property
    def upstream(self) -> str:
        return upstream(self.version)


@dataclass
class Change:
    """What would be done. ``install``: name to (old or "", new); ``remove``: name to version; ``settings``: lines."""

    install: t.Dict[str, t.Tuple[str, str]] = field(default_factory=dict)
    remove: t.Dict[str, str] = field(default_factory=dict)
    settings: t.List[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.install or self.remove or self.settings)

    def lines(self) -> t.List[str]:
        """For a person, sorted."""
        told = [
            f"install {name} {new}" if not old else f"{name} {old} to {new}"
            for name, (old, new) in self.install.items()
        ]
        return sorted(told + [f"remove {name} {version}" for name, version in self.remove.items()] + self.settings)


def upstream(version: str) -> str:
    """``580.95.05`` of ``1:580.95.05-0ubuntu0.24.04.1``."""
    return version.split(":", 1)[-1].rsplit("-", 1)[0]


def parse_installed(text: str) -> t.Dict[str, Package]:
    """Of dpkg-query's lines ``status TAB name TAB version``, without those of which only configuration is left."""
    found = {}
    for line in text.splitlines():
        status, name, version = line.split("\t")
        if status[1] in "nc":
            continue
        found[name] = Package(name, version, status[0] == "h", _BROKEN.get(status[1], "installed"))
    return found


def parse_madison(text: str, taken: t.Callable[[str], bool] = bool) -> t.Dict[str, t.List[str]]:
    """``{name: versions}`` of ``apt-cache madison``, newest first, from the sources that are ``taken``."""
    found: t.Dict[str, t.List[str]] = {}
    for line in text.splitlines():
        cells = [" ".join(cell.split()) for cell in line.split("|")]
        if len(cells) == 3 and taken(cells[2]) and cells[1] not in found.setdefault(cells[0], []):
            found[cells[0]].append(cells[1])
    return found


def parse_origins(text: str) -> t.Dict[str, str]:
    """``{source: origin}`` of ``apt-cache policy``; a source as madison names it, its origin as its Release says it."""
    found: t.Dict[str, str] = {}
    source = ""
    for line in text.splitlines():
        match = re.match(r"^ *-?\d+ (\S.*)$", line)
        if match:
            source = " ".join(match[1].split())
        origin = re.search(r"^ +release (?:.*,)?o=([^,]*)", line)
        if origin and source:
            found[source] = origin[1]
    return found


def parse_simulation(text: str) -> Change:
    """Of ``apt-get --simulate``: its lines Inst and Remv."""
    change = Change()
    for line in text.splitlines():
        match = re.match(r"^(Inst|Remv|Purg) (\S+)(?: \[([^\]]+)\])?(?: \((\S+) )?", line)
        if match and match[1] == "Inst":
            change.install[match[2]] = (match[3] or "", match[4])
        elif match:
            change.remove[match[2]] = match[3] or ""
    return change


def complaint(output: str) -> str:
    """apt's and dpkg's own words of why, in one line."""
    lines = [line.strip() for line in output.splitlines()]
    errors = [line for line in lines if line.startswith(("E: ", "dpkg: error", "Err:")) or "unmet dependencies" in line]
    # The signature's own trouble stands in no line of apt's: what sqv and gpgv say is worth more than "not signed".
    keys = [
        line for line in lines if re.search(r"is not bound|is not considered secure|NO_PUBKEY|BADSIG|EXPKEYSIG", line)
    ]
    depends = [line for line in lines if re.match(r"^\S+ : (?:Depends|PreDepends|Conflicts|Breaks)", line)]
    return "; ".join(dict.fromkeys(depends + keys + errors)) or (lines[-1] if lines else "no word")


class Apt:
    """apt on this host, or with ``scratch`` in a copy of its settings and lists, which then change instead.

    ``lock_limit``: seconds to wait for another apt or dpkg; ``limit``: seconds for one change.
    """

    name = "apt-get"
    by_hand = "dpkg --configure -a, apt-get --fix-broken install"

    def __init__(self, runner: Runner, lock_limit: int, limit: int, scratch: str = "") -> None:
        self.runner = Runner(runner.root, {**runner.env, **QUIET})
        self.lock_limit, self.limit, self.scratch = lock_limit, limit, scratch
        self.etc = f"{scratch}/etc" if scratch else "/etc/apt"
        self.bundle = runner.env.get(BUNDLE, "")
        #: NVIDIA's repositories that a user named and that stay beside ours.
        self.doubled: t.List[str] = []

    def options(self) -> t.List[str]:
        found = ["-o", f"DPkg::Lock::Timeout={self.lock_limit}", "-o", "Acquire::Retries=3"]
        if self.bundle:
            found += ["-o", f"Dir::Etc::sourcelist={self.bundle}/{LIST}", "-o", "Dir::Etc::sourceparts=/dev/null"]
            found += ["-o", f"Dir::State::lists={self.bundle}/lists"]
        if self.scratch:
            settings = {
                "Dir::Etc": self.etc,
                "Dir::Etc::trustedparts": "/etc/apt/trusted.gpg.d",
                "Dir::Etc::netrcparts": "/etc/apt/auth.conf.d",
                "Dir::State::lists": f"{self.scratch}/lists",
                "Dir::Cache": f"{self.scratch}/cache",
                # The folder is this user's alone.
                "APT::Sandbox::User": "root",
            }
            for name, value in settings.items():
                found += ["-o", f"{name}={value}"]
        return found

    def prepare_scratch(self) -> None:
        """Copy the settings that decide what apt sees, so that a prediction knows them and changes nothing."""
        for folder in ("etc/sources.list.d", "etc/preferences.d", "lists/partial", "cache/archives/partial"):
            os.makedirs(f"{self.scratch}/{folder}", exist_ok=True)
        for folder in ("", "/sources.list.d", "/preferences.d"):
            for name in self.runner.listdir(f"/etc/apt{folder}"):
                text = self.runner.read_bytes(f"/etc/apt{folder}/{name}")
                if text is not None and (folder or name in ("sources.list", "preferences")):
                    with open(f"{self.etc}{folder}/{name}", "wb") as stream:
                        stream.write(text)

    def installed(self) -> t.Dict[str, Package]:
        """Every package that is on the host, whole or not."""
        fields = "${db:Status-Abbrev}\t${binary:Package}\t${Version}\n"
        result = self.runner.run(["dpkg-query", "--show", f"--showformat={fields}"], limit=60)
        return parse_installed(self._must(result, "reading dpkg's database").out)

    def update(self) -> None:
        """Fetch the lists. A repository that fails is an error: a version chosen without it may be the wrong one."""
        argv = ["apt-get", *self.options(), "-o", "APT::Update::Error-Mode=any", "update", "--quiet"]
        self._must(self._waiting(argv), "apt-get update")
        self.doubled = self._beside()

    def _beside(self) -> t.List[str]:
        """NVIDIA's repositories that somebody else named: a CUDA on the disk brings a driver of its own along."""
        ours = set()
        for name in self.runner.listdir(f"{self.etc}/sources.list.d"):
            if name.startswith("gpufleet-"):
                text = self.runner.read(f"{self.etc}/sources.list.d/{name}") or ""
                ours |= {entry.uri.rstrip("/") for entry in sources.parse_deb822(text)}
        origins = parse_origins(self.runner.run(["apt-cache", *self.options(), "policy"], limit=60).out)
        places = {source.split(" ", 1)[0].rstrip("/") for source, origin in origins.items() if origin == VENDOR}
        return sorted(places - ours)

    def _waiting(self, argv: t.Sequence[str]) -> Result:
        """Run what gives up on a lock at once, until the lock is free or the time to wait for it is over."""
        end = time.monotonic() + self.lock_limit
        while True:
            result = self.runner.run(argv, limit=self.limit)
            if not LOCKED.search(result.err) or time.monotonic() >= end:
                return result
            time.sleep(1)

    def versions(
        self, names: t.Iterable[str], vendor: t.Optional[bool] = None, mirror: str = ""
    ) -> t.Dict[str, t.List[str]]:
        """The versions that the sources have of each package, newest first; a package that none has is absent.

        ``vendor``: only those of NVIDIA's repositories (which say so, or lie at ``mirror``), or only those of others.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}
        said = self.runner.run(["apt-cache", *self.options(), "madison", *wanted], limit=60).out
        if vendor is None or self.bundle:  # which holds what was chosen, and says no origin
            return parse_madison(said)
        origins = parse_origins(self.runner.run(["apt-cache", *self.options(), "policy"], limit=60).out)
        place = mirror.rstrip("/")

        def taken(source: str) -> bool:
            here = bool(place) and source.split(" ", 1)[0].rstrip("/") == place
            return (here or origins.get(source) == VENDOR) is vendor

        return parse_madison(said, taken)

    def others(self, names: t.Iterable[str]) -> t.Dict[str, t.List[str]]:
        """The versions of the same packages of other branches: nvidia-open-570 beside nvidia-open-575."""
        found: t.Set[str] = set()
        for stem in {re.sub(r"-\d.*", "", name) for name in names}:
            listed = self.runner.run(["apt-cache", *self.options(), "pkgnames", stem], limit=60).out.split()
            found |= {name for name in listed if re.match(re.escape(stem) + r"(-\d+)?$", name)}
        return self.versions(found)

    def simulate(self, names: t.Sequence[str]) -> Change:
        """What ``change`` of the same would do. Raises PackageFailure with apt's words where it cannot be done."""
        argv = ["apt-get", *self.options(), "--simulate", *_CHANGE, "install", *names]
        return parse_simulation(self._must(self.runner.run(argv, limit=120), "apt-get install").out)

    def change(self, names: t.Sequence[str], purge: bool = False) -> Result:
        """Install ``name=version``, or remove ``name-``, in one transaction. The caller judges the Result.

        ``purge``: what goes leaves no settings either.
        """
        argv = ["apt-get", *self.options(), "--quiet", *_CHANGE, *(["--purge"] if purge else []), "install", *names]
        return self.runner.run(argv, limit=self.limit)

    def purge(self, names: t.Sequence[str]) -> None:
        """Remove packages with their configuration."""
        argv = ["apt-get", *self.options(), "--quiet", *_CHANGE, "purge", *names]
        self._must(self.runner.run(argv, limit=self.limit), "apt-get purge")

    def simulate_purge(self, names: t.Sequence[str]) -> Change:
        """What ``purge`` would do."""
        argv = ["apt-get", *self.options(), "--simulate", *_CHANGE, "purge", *names]
        return parse_simulation(self._must(self.runner.run(argv, limit=120), "apt-get purge").out)

    def hold(self, names: t.Sequence[str], held: bool = True) -> None:
        """Set or lift the hold of packages."""
        if names:
            self._must(self.runner.run(["apt-mark", "hold" if held else "unhold", *names], limit=60), "apt-mark")

    def interrupted(self, packages: t.Mapping[str, Package]) -> t.List[str]:
        """What a dpkg run that broke off left behind, for a person; nothing where all is whole."""
        left = [f"{package.name} is {package.state}" for package in packages.values() if package.state != "installed"]
        if not left and any(name.isdigit() for name in self.runner.listdir("/var/lib/dpkg/updates")):
            left = ["/var/lib/dpkg/updates holds a change that was not finished"]
        return left

    def repair(self) -> None:
        """Finish what a run that broke off left: apt refuses to work before that."""
        argv = ["dpkg", "--force-confdef", "--force-confold", "--configure", "--pending"]
        self._waiting(argv)  # what dpkg cannot configure, apt's own repair may
        fix = ["apt-get", *self.options(), "--quiet", *_CHANGE, "--fix-broken", "install"]
        self._must(self.runner.run(fix, limit=self.limit), "apt-get --fix-broken install")

    def spec(self, name: str) -> str:
        """How a plan's ``name`` or ``name=PATTERN`` is asked for here."""
        return name

    def pin(self, version: str, exact: t.Collection[str], asked: t.Sequence[str], files: Files) -> None:
        """Pin all packages of the driver's version, and where two sources carry it, the ``exact`` ones that we took."""
        every = self.versions(asked).values()
        rivals = {item for versions in every for item in versions if upstream(item) == version} - set(exact)
        text = "# Written by the role gpufleet.pytorch.driver: no package of the driver leaves its version.\n"
        for number in sorted(exact) if rivals else [f"{version}-*"]:
            text += f"Package: {PINNED}\nPin: version {number}\nPin-Priority: 1001\n\n"
        files.write(f"{self.etc}/{PIN}", text[:-1])

    def unpin(self) -> None:
        """The pin is a file of its own, which goes with the others."""

    def take_back(self) -> None:
        """Nothing is switched on beside packages."""

    def headers(self, kernel: str) -> str:
        """The package of a kernel's headers."""
        return f"linux-headers-{kernel}"

    def following(
        self, packages: t.Mapping[str, Package], targets: t.Sequence[str], system: str, arch: str
    ) -> t.List[str]:
        """linux-image-amd64 or -generic brings each next kernel, which then needs its headers on the same day."""
        if not targets:
            return ["linux-headers-" + ("generic" if system == "ubuntu" else arch)]
        return [
            f"linux-headers-{match[1]}"
            for match in (re.match(r"^linux-image-([a-z][\w-]*?)(?::\w+)?$", name) for name in packages)
            if match and "unsigned" not in match[1]
        ]

    def key_path(self, name: str) -> str:
        """Where the key of the repository of that name lies."""
        return f"{self.etc if self.scratch else KEYRINGS}/gpufleet-{name}.asc"

    def enter(self, name: str, url: str, key: str, files: Files, signed: t.Callable[[str], bool]) -> None:
        """Name the repository once, signed by its key alone; apt itself demands that it is signed."""
        source = f"gpufleet-{name}.sources"
        self._only_once(url, source, files)
        entry = sources.Entry(url, "/", (), key)
        files.write(f"{self.etc}/sources.list.d/{source}", sources.deb822([entry], "Written by gpufleet.pytorch"))

    def _only_once(self, url: str, ours: str, files: Files) -> None:
        """Put aside other entries of the same repository, which apt refuses beside ours, and keys that were revoked."""
        names = [f"sources.list.d/{name}" for name in self.runner.listdir(f"{self.etc}/sources.list.d")]
        for name in ["sources.list", *names]:
            if name == f"sources.list.d/{ours}" or not name.endswith((".list", ".sources")):
                continue
            path = f"{self.etc}/{name}"
            text = self.runner.read(path) or ""
            entries = sources.parse_deb822(text) if name.endswith(".sources") else sources.parse_list(text)
            same = [entry for entry in entries if entry.uri.rstrip("/") == url.rstrip("/")]
            if same and len(same) < len(entries):
                raise PackageFailure(f"{path} names {url} among others, and apt takes it once: remove it there")
            if same:
                files.aside(path)
        trusted = ["/etc/apt/trusted.gpg"]
        trusted += [f"/etc/apt/trusted.gpg.d/{name}" for name in self.runner.listdir("/etc/apt/trusted.gpg.d")]
        for path in [] if self.scratch else trusted:
            found = openpgp.known(self.runner.read_bytes(path))
            if found and set(found) <= set(openpgp.REVOKED):
                files.aside(path)

    def problem(self, result: Result) -> str:
        """Why a run did not end well, "" where it did."""
        if result.timed_out:
            return f"not done within {self.limit} s and stopped; the next run repairs and goes on"
        return complaint(result.err + result.out) if result.rc else result.problem

    def _must(self, result: Result, what: str) -> Result:
        problem = self.problem(result)
        if problem:
            raise PackageFailure(f"{what}: {problem}")
        return result


def choose(wanted: str, available: t.Mapping[str, t.Sequence[str]]) -> str:
    """``name=version`` for a plan's ``name`` or ``name=PATTERN``: the newest that fits, "" where none does."""
    name, _equals, pattern = wanted.partition("=")
    for version in available.get(name, ()):
        if fits(version, pattern):
            return f"{name}={version}"
    return ""


def fits(version: str, pattern: str) -> bool:
    """Whether a version is one that a plan means, which knows of no epoch."""
    return not pattern or any(fnmatch.fnmatchcase(text, pattern) for text in (version, version.split(":", 1)[-1]))
