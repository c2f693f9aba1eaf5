# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dnf and rpm: what is installed, what could be, and one change of it that asks nothing and ends in bounded time.

dnf's tables are made for people: they wrap at 80 columns and follow the language. So dnf_worker asks its Python
interface, in a child process that runs dnf's own interpreter; a prediction and a change are then one calculation.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import dnf_files, dnf_worker, openpgp
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import (
    BUNDLE,
    Change,
    Package,
    PackageFailure,
    upstream,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.manager import Versions
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Result, Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

PROGRAM = "/usr/bin/dnf"
LOCKS = "/etc/dnf/plugins/versionlock.list"
LOCKS_PLUGIN = "python3-dnf-plugin-versionlock"
KEYS = "/etc/pki/rpm-gpg"
#: The module whose streams are NVIDIA's branches.
MODULE = "nvidia-driver"
#: What a change may ask for, fetched at once: each question costs dnf the reading of all its indexes.
OFFERED = ("*nvidia*", "kernel*-devel*", "cuda*", "libcu*", "libnccl*", "libnv*", "nvlsm")
#: Packages of which several versions stand side by side by intention say so by providing one of these.
_SEVERAL = ("installonlypkg(kernel)", "installonlypkg(kernel-module)", "installonlypkg(vm)", "multiversion(kernel)")
_FIELDS = "%{NAME}\t%{ARCH}\t%{EPOCH}\t%{VERSION}-%{RELEASE}\t%{INSTALLTIME}\n"


class Row(t.NamedTuple):
    """One package of rpm's database."""

    name: str
    version: str
    installed_at: int


def parse_installed(text: str, arch: str) -> t.List[Row]:
    """Of rpm's lines, the oldest installation first. A package of another architecture carries it in its name."""
    found = []
    for line in text.splitlines():
        name, of, epoch, version, at = line.split("\t")
        if name == "gpg-pubkey":
            continue
        name += "" if of in ("noarch", arch) else f":{of}"
        found.append(Row(name, version if epoch in ("(none)", "0") else f"{epoch}:{version}", int(at)))
    return sorted(found, key=lambda row: row.installed_at)


def twice(rows: t.Sequence[Row], several: t.Container[str]) -> t.List[t.Tuple[Row, Row]]:
    """``(old, new)`` of each package that a run which broke off left beside its successor."""
    last = {row.name: row for row in rows}
    return [(row, last[row.name]) for row in rows if row is not last[row.name] and row.name not in several]


class Dnf:
    """dnf on this host, or with ``scratch`` with a copy of its settings, which then change instead.

    ``lock_limit``: seconds to wait for another dnf or rpm; ``limit``: seconds for one change; ``stream``: what the plan
    wants enabled, ``nvidia-driver:580-open``, "" where it says nothing of it.
    """

    name = "dnf"
    by_hand = "dnf remove --duplicates"

    def __init__(self, runner: Runner, lock_limit: int, limit: int, scratch: str = "", stream: str = "") -> None:
        self.runner, self.lock_limit, self.limit, self.scratch, self.stream = runner, lock_limit, limit, scratch, stream
        self.etc = f"{scratch}/etc" if scratch else "/etc"
        self.locks = f"{self.etc}/versionlock.list" if scratch else LOCKS
        self.arch = os.uname().machine
        self.bundle = runner.env.get(BUNDLE, "")
        #: The stream that was enabled before, None where nobody looked yet.
        self.before: t.Optional[str] = None
        self._offered: t.Optional[Versions] = None
        #: Enabled entries of the same repository that are a user's.
        self.doubled: t.List[str] = []

    def prepare_scratch(self) -> None:
        """Copy the settings that decide what dnf sees, so that a prediction knows them and changes nothing."""
        for folder in ("yum.repos.d", "plugins"):
            os.makedirs(f"{self.etc}/{folder}")
        for name in self.runner.listdir("/etc/yum.repos.d"):
            with open(f"{self.etc}/yum.repos.d/{name}", "wb") as stream:
                stream.write(self.runner.read_bytes(f"/etc/yum.repos.d/{name}") or b"")
        for name in [name for name in self.runner.listdir(KEYS) if name.startswith("RPM-GPG-KEY-gpufleet-")]:
            with open(f"{self.etc}/{name}", "wb") as stream:
                stream.write(self.runner.read_bytes(f"{KEYS}/{name}") or b"")
        with open(f"{self.etc}/plugins/versionlock.conf", "w", encoding="utf-8") as stream:
            stream.write(f"[main]\nlocklist = {self.locks}\n")
        with open(self.locks, "w", encoding="utf-8") as stream:
            stream.write(self._list(LOCKS))

    # What is there.

    def installed(self) -> t.Dict[str, Package]:
        """Every package that is on the host; of several versions that which came last."""
        rows, locks = self._rows(), self._list(self.locks)
        found = {
            row.name: Package(row.name, row.version, dnf_files.is_locked(row.name.split(":")[0], row.version, locks))
            for row in rows
        }
        for old, new in self._twice(rows):
            found[new.name] = Package(new.name, new.version, found[new.name].held, f"installed beside {old.version}")
        return found

    def _rows(self) -> t.List[Row]:
        result = self.runner.run(["rpm", "--query", "--all", f"--queryformat={_FIELDS}"], limit=60)
        return parse_installed(self._must(result, "reading rpm's database").out, self.arch)

    def _twice(self, rows: t.Sequence[Row]) -> t.List[t.Tuple[Row, Row]]:
        if not twice(rows, ()):
            return []
        asked = ["rpm", "--query", "--queryformat=%{NAME}\n", "--whatprovides", *_SEVERAL]
        return twice(rows, set(self.runner.run(asked, limit=60).out.split()))

    def _list(self, path: str) -> str:
        return (self.runner.read_bytes(path) or b"").decode("utf-8", "replace")

    # What could be.

    def update(self) -> None:
        """Fetch the indexes. A repository that fails is an error: a version chosen without it may be the wrong one."""
        self._offered = self._available(OFFERED, fresh=True)

    def versions(self, names: t.Iterable[str], vendor: t.Optional[bool] = None, mirror: str = "") -> Versions:
        """The versions that the repositories have of each package, newest first; a package that none has is absent.

        Enterprise Linux itself has no driver, so all are the ``vendor``'s.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}
        rest = [name for name in wanted if not any(fnmatch.fnmatchcase(name, glob) for glob in OFFERED)]
        found = {**self._all(), **(self._available(rest) if rest else {})}
        return {name: found[name] for name in wanted if name in found}

    def _all(self) -> Versions:
        if self._offered is None:
            self._offered = self._available(OFFERED)
        return self._offered

    def others(self, names: t.Iterable[str]) -> Versions:
        """The same, of all streams, with the streams that there are."""
        answer = self._ask("available", names=sorted(set(names)), all=True, stream=f"{MODULE}:")
        return {**answer["available"], **({f"module {MODULE}": answer["streams"]} if answer["streams"] else {})}

    def _available(self, names: t.Sequence[str], fresh: bool = False) -> Versions:
        return t.cast(Versions, self._ask("available", names=list(names), fresh=fresh)["available"])

    def simulate(self, names: t.Sequence[str]) -> Change:
        """What ``change`` of the same would do. Raises PackageFailure with dnf's words where it cannot be done."""
        answer = self._ask("resolve", names=list(names))
        install = {name: (old, new) for name, (old, new) in answer["install"].items()}
        change = Change(install, answer["remove"])
        if self.stream and answer["streams"] and f"{MODULE}:{answer['stream']}" != self.stream:
            wanted = self.stream.partition(":")[2]
            change.settings.append(f"module {MODULE}: stream {answer['stream'] or 'none'} to {wanted or 'none'}")
        return change

    def simulate_purge(self, names: t.Sequence[str]) -> Change:
        """What ``purge`` would do."""
        self.stream = f"{MODULE}:"
        return self.simulate([f"{name}-" for name in names])

    def download(self, names: t.Sequence[str]) -> t.List[str]:
        """Packages and all that they need on a system without any, held against their signatures; the files' paths."""
        return t.cast(t.List[str], self._ask("download", names=list(names))["paths"])

    # The change.

    def change(self, names: t.Sequence[str], purge: bool = False) -> Result:
        """Install ``name=version``, or remove ``name-``, in one transaction. The caller judges the Result."""
        return self._run(self._job("change", names=list(names)))[0]

    def purge(self, names: t.Sequence[str]) -> None:
        """Remove packages, and let go of the module's stream."""
        self.stream = f"{MODULE}:"
        self._must(self.change([f"{name}-" for name in names]), "dnf remove")

    def take_back(self) -> None:
        """The next change enables the stream again that was enabled before."""
        if self.stream and self.before is not None:
            self.stream = f"{MODULE}:{self.before}"

    def hold(self, names: t.Sequence[str], held: bool = True) -> None:
        """Set or lift the lock of packages; a user's own locks stay."""
        if not names:
            return
        text, rows = self._list(self.locks), {row.name: row for row in self._rows()}
        there = [(name.split(":")[0], rows[name].version) for name in names if name in rows]
        # What a user locked so is locked, and stays so.
        lines = {
            dnf_files.lock(name, version)
            for name, version in there
            if not (held and dnf_files.is_locked(name, version, text))
        }
        for label in (dnf_files.LIBRARIES,) if held else (dnf_files.LIBRARIES, dnf_files.DRIVER):
            old = set(dnf_files.block(text, label))
            text = dnf_files.with_block(text, label, old | lines if held else old - lines)
        write_atomic(self.locks, text)

    def spec(self, name: str) -> str:
        """``name=PATTERN`` of the plan's ``nvidia-fabricmanager-580.95.05*``, and a plain name as it is."""
        return re.sub(r"^(.+?)-(\d+\..*)$", r"\1=\2", name)

    def pin(self, version: str, exact: t.Collection[str], asked: t.Sequence[str], files: Files) -> None:
        """Lock every package of the driver's version, installed or not."""
        self._may_lock()
        text = self._list(self.locks)
        there = {row.name.split(":")[0]: row.version for row in self._rows() if upstream(row.version) == version}
        lines = {dnf_files.lock(name, whole) for name, whole in there.items()}
        known = set(dnf_files.block(text, dnf_files.DRIVER))
        if lines and lines <= known and all(f":{version}-" in line for line in known):
            return  # no repository is needed where all is as it was left
        could = {
            name: [item for item in versions if upstream(item) == version] for name, versions in self._all().items()
        }
        lines |= {dnf_files.lock(name, found[0]) for name, found in could.items() if found and name not in there}
        text = dnf_files.with_block(text, dnf_files.DRIVER, lines)
        rest = [line for line in dnf_files.block(text, dnf_files.LIBRARIES) if line not in lines]
        files.write(self.locks, dnf_files.with_block(text, dnf_files.LIBRARIES, rest), ours=False)

    def unpin(self) -> None:
        """Remove our locks of the driver."""
        text = self._list(self.locks)
        if dnf_files.block(text, dnf_files.DRIVER):
            write_atomic(self.locks, dnf_files.with_block(text, dnf_files.DRIVER, ()))

    def _may_lock(self) -> None:
        text = self.runner.read("/etc/dnf/plugins/versionlock.conf")
        if text is None:
            raise PackageFailure(
                f"dnf holds versions through its plugin versionlock, which is not here: dnf install {LOCKS_PLUGIN}"
            )
        match = re.search(r"^\s*enabled\s*=\s*(\w+)", text, re.MULTILINE)
        if match and match[1].lower() in ("0", "no", "false", "off"):
            raise PackageFailure(
                "dnf's plugin versionlock is switched off, so nothing would hold the driver: set enabled = 1 in"
                " /etc/dnf/plugins/versionlock.conf"
            )

    # A run that broke off.

    def interrupted(self, packages: t.Mapping[str, Package]) -> t.List[str]:
        """What a run that broke off left behind, for a person; nothing where all is whole."""
        left = [item for item in packages.values() if item.state != "installed"]
        return [f"{item.name} {item.version} is {item.state}" for item in left]

    def repair(self) -> None:
        """Finish what a run that broke off left: rpm lays down the new version before it removes the old one."""
        for old, _new in self._twice(self._rows()):
            name, _colon, arch = old.name.partition(":")
            whole = f"{name}-{dnf_files.split(old.version)[1]}" + (f".{arch}" if arch else "")
            self._must(self.runner.run(["rpm", "--erase", "--nodeps", whole], limit=self.limit), f"rpm --erase {whole}")

    # Kernels and repositories.

    def headers(self, kernel: str) -> str:
        """``kernel-devel=5.14.0-570.el9`` of 5.14.0-570.el9.x86_64; a variant's name is kernel-64k-devel."""
        release, _plus, variant = kernel.partition("+")
        name = f"kernel-{variant}-devel" if variant else "kernel-devel"
        return f"{name}={re.sub(rf'[.]{self.arch}$', '', release)}"

    def following(
        self, packages: t.Mapping[str, Package], targets: t.Sequence[str], system: str, arch: str
    ) -> t.List[str]:
        """kernel-devel-matched comes with each next kernel and its headers. Its newer one would bring a kernel now."""
        if not targets:
            return ["kernel-devel"]
        return [] if "+" in targets[-1] else [self.headers(targets[-1]).replace("-devel=", "-devel-matched=")]

    def key_path(self, name: str) -> str:
        """Where the key of the repository of that name lies."""
        return f"{self.etc if self.scratch else KEYS}/RPM-GPG-KEY-gpufleet-{name}"

    def enter(self, name: str, url: str, key: str, files: Files, signed: t.Callable[[str], bool]) -> None:
        """Name the repository once: an entry of ours under another name goes, a user's is told in ``doubled``."""
        own, folder = f"gpufleet-{name}.repo", f"{self.etc}/yum.repos.d"
        for entry in self.runner.listdir(folder):
            if entry == own or not entry.endswith(".repo"):
                continue
            try:
                found = dnf_files.repositories(self.runner.read(f"{folder}/{entry}") or "")
            except ValueError as error:
                raise PackageFailure(f"/etc/yum.repos.d/{entry} cannot be read: {error}") from None
            same = [of for of, (urls, on) in found.items() if on and url.rstrip("/") in [at.rstrip("/") for at in urls]]
            if same and entry.startswith("gpufleet-"):
                files.aside(f"{folder}/{entry}")
            elif same:
                self.doubled.append(f"/etc/yum.repos.d/{entry} [{', '.join(same)}]")
        self._forget_keys()
        old = self.runner.read(f"{folder}/{own}") or ""
        known = re.search(r"^repo_gpgcheck=(\d)", old, re.MULTILINE) if f"\nbaseurl={url}\n" in old else None
        sure = known[1] == "1" if known else signed(url + "repodata/repomd.xml.asc")
        key = f"{KEYS}/{os.path.basename(key)}"
        files.write(f"{folder}/{own}", dnf_files.repository(name, url, key, sure))

    def _forget_keys(self) -> None:
        """rpm trusts the keys of its database for every repository: those that were revoked go."""
        asked = ["rpm", "--query", "gpg-pubkey", "--queryformat=%{VERSION} %{NAME}-%{VERSION}-%{RELEASE}\n"]
        lines = [] if self.scratch else self.runner.run(asked, limit=60).out.splitlines()
        old = [line.split()[1] for line in lines if line.split()[0] in {key[-8:].lower() for key in openpgp.REVOKED}]
        if old:
            self._must(self.runner.run(["rpm", "--erase", *old], limit=60), f"rpm --erase {' '.join(old)}")

    # One piece of work.

    def problem(self, result: Result) -> str:
        """Why a run did not end well, "" where it did."""
        if result.timed_out:
            return f"not done within {self.limit} s and stopped; the next run repairs and goes on"
        return (result.err.strip() or result.problem) if result.rc else result.problem

    def _must(self, result: Result, what: str) -> Result:
        problem = self.problem(result)
        if problem:
            raise PackageFailure(f"{what}: {problem}")
        return result

    def _job(self, call: str, **job: t.Any) -> t.Dict[str, t.Any]:
        usual = {"scratch": self.scratch, "stream": self.stream, "fresh": False, "all": False, "bundle": self.bundle}
        return {**usual, **job, "call": call}

    def _ask(self, call: str, **job: t.Any) -> t.Dict[str, t.Any]:
        result, answer = self._run(self._job(call, **job))
        self._must(result, "dnf")
        if self.before is None and answer["streams"]:
            self.before = answer["stream"]
        return answer

    def _run(self, job: t.Mapping[str, t.Any]) -> t.Tuple[Result, t.Dict[str, t.Any]]:
        """Run the worker, again while another run has the lock; its error is the Result's."""
        argv = [self._interpreter(), "-I", "-c", _source(), json.dumps(job)]
        end = time.monotonic() + self.lock_limit
        while True:
            result = self.runner.run(argv, limit=self.limit)
            lines = [line for line in result.out.splitlines() if line.startswith(dnf_worker.MARK)]
            answer = json.loads(lines[-1][len(dnf_worker.MARK) :]) if lines else {}
            if "locked" not in answer or time.monotonic() >= end:
                break
            time.sleep(1)
        problem = answer.get("error") or answer.get("locked")
        if problem:
            return Result(1, result.out, problem), answer
        if not lines and result.rc is not None:
            last = (result.err.strip() or result.out.strip()).rsplit("\n", 1)[-1]
            return Result(1, result.out, f"dnf's worker gave no answer: {last}"), answer
        return result, answer

    def _interpreter(self) -> str:
        """The Python that dnf itself runs in, by the first line of its program."""
        line = (self.runner.read_bytes(self.runner.realpath(PROGRAM), 200) or b"").split(b"\n", 1)[0]
        match = re.match(rb"#!\s*(/\S*python\S*)", line)
        if match is None:
            raise PackageFailure(
                f"{PROGRAM} is no program of dnf 4, which is the only one known here (dnf 5 is of another kind)"
            )
        return match[1].decode()


def _source() -> str:
    """The worker's text, from its loader: it may lie in Ansible's zip."""
    found = sys.modules[dnf_worker.__name__].__spec__
    loader: t.Any = found.loader if found else None
    text = loader.get_source(dnf_worker.__name__) if hasattr(loader, "get_source") else None
    if text is None:
        raise PackageFailure(f"the loader of {dnf_worker.__name__} gives no source")
    return str(text)
