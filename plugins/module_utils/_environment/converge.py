# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what is wanted to an environment that holds it: look, resolve, fetch, judge, install, look again.

Nothing is made at the environment's path before every wheel lies in the
store, is the build that the Plan asks for, and fits on the disk. The steps
know the machine through Effects alone.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import typing as t
import zipfile
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import pip, space, venv, wheel
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.effects import Effects
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.interpreter import Interpreter
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.venv import Found, Locked
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    EnvironmentFailure,
    Wanted,
    mismatch,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

#: Bytes. Wheels below this size are downloaded together: starting pip takes longer than they do.
SMALL_WHEEL = 20_000_000


@dataclass(frozen=True)
class Task:
    """One environment to make: where, of what, from where, and a work folder for what is half done."""

    venv: str
    wanted: Wanted
    source: pip.Source
    work: str
    when_busy: str = "fail"


@dataclass(frozen=True)
class Outcome:
    """What was done, or would be in check mode."""

    changed: bool
    packages: t.Tuple[Locked, ...]
    before: t.Mapping[str, str]
    repaired: t.Mapping[str, t.Sequence[str]]
    warnings: t.Tuple[str, ...] = ()


def current(path: str, wanted: Wanted, found: Found) -> t.Optional[Outcome]:
    """The outcome without a change where the environment is as wanted already, else None. Starts no process."""
    marker = found.marker
    if found.kind != "ours" or marker.get("state") != venv.COMPLETE or marker.get("key") != wanted.key:
        return None
    packages = recorded(marker)
    if found.lacking(packages) or not venv.interpreter_works(path):
        return None
    return Outcome(False, packages, found.installed, {})


def recorded(marker: t.Mapping[str, t.Any]) -> t.Tuple[Locked, ...]:
    """The packages that our marker says the environment holds."""
    return tuple(Locked(item["name"], item["version"], tuple(item["sha256"])) for item in marker.get("packages", []))


class Converge:
    """The steps that change something, one after the other, each told to ``effects.say`` before it begins."""

    def __init__(self, task: Task, found: Found, interpreter: Interpreter, pip_wheel: str, effects: Effects) -> None:
        self.task, self.found, self.interpreter = task, found, interpreter
        self.pip_wheel, self.effects = pip_wheel, effects
        self.warnings: t.List[str] = []
        self.answering: t.Optional[pip.Source] = None
        self.tmp = os.path.join(task.work, "tmp")
        self.cache = os.path.join(task.work, "cache")
        self.pip = os.path.join(self.tmp, "unpacked", "pip")

    def predict(self) -> Outcome:
        """What run() would do: resolves, downloads nothing, and writes in the work folder only."""
        packages = self._resolve()
        return Outcome(True, packages, self.found.installed, self._repairs(packages), tuple(self.warnings))

    def run(self) -> Outcome:
        """Make the environment as wanted. Raises EnvironmentFailure where that cannot be."""
        try:
            packages = self._resolve()
            paths = self._fetch(packages)
            self._judge(packages, paths)
            self._keep(packages)
            self._install(packages, paths)
        finally:
            for folder in (self.tmp, self.cache):
                shutil.rmtree(folder, ignore_errors=True)
        return Outcome(True, packages, self.found.installed, self._repairs(packages), tuple(self.warnings))

    def _repairs(self, packages: t.Sequence[Locked]) -> t.Dict[str, t.Sequence[str]]:
        return {item.name: self.found.damaged[item.name] for item in packages if item.name in self.found.damaged}

    # Which packages

    def _resolve(self) -> t.Tuple[Locked, ...]:
        for folder in (self.tmp, self.cache):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
        # From a folder, where its bytecode is kept, pip starts in half the time that it takes from its wheel. Without
        # its dist-info, so that it does not take itself for installed in the environment.
        with zipfile.ZipFile(self.pip_wheel) as archive:
            archive.extractall(
                os.path.dirname(self.pip), [name for name in archive.namelist() if name.startswith("pip/")]
            )
        marker = self.found.marker
        if marker.get("key") == self.task.wanted.key and marker.get("packages"):
            # A repair, or an installation that was interrupted: the same packages again.
            return recorded(marker)
        kept = self._kept()
        if kept:
            return kept
        self.effects.say("resolving " + self.task.wanted.build)
        source = self._source()
        report = os.path.join(self.tmp, "report.json")
        constraints = self._file("constraints.txt", self.task.wanted.constraints)
        command = pip.resolve_command(
            self.interpreter.executable,
            self.pip,
            source,
            requirements=self._file("wanted.txt", pip.resolve_lines(self.task.wanted, source, constraints)),
            report=report,
            cache=self.cache,
        )
        result = self._pip(command, isolated=source.isolated)
        if result.rc != 0:
            python = f"Python {self.interpreter.minor} on {self.interpreter.machine}"
            raise EnvironmentFailure(
                "; ".join(
                    [
                        pip.resolution_failure(result.output, self.task.wanted, source, python, self._settings()),
                        *self.warnings,
                    ]
                )
            )
        with open(report, encoding="utf-8") as stream:
            packages = tuple(pip.read_report(stream.read()))
        torch = _torch(packages)
        if mismatch(torch.version, None, self.task.wanted.version, self.task.wanted.variant):
            raise EnvironmentFailure(self._other_build(torch.version, torch.url))
        return packages

    def _kept(self) -> t.Tuple[Locked, ...]:
        """An earlier resolution of the same wish for the same Python, where all its wheels are still in the store."""
        try:
            with open(self._kept_path(), encoding="utf-8") as stream:
                packages = tuple(
                    Locked(item["name"], item["version"], tuple(item["sha256"]), item["url"])
                    for item in json.load(stream)["packages"]
                )
        except FileNotFoundError:
            return ()
        store = self.task.source.store
        if all(wheel.find_in_store(store, package.name, package.sha256) for package in packages):
            return packages
        return ()

    def _kept_path(self) -> str:
        tag = f"{self.interpreter.implementation}{self.interpreter.minor}-{self.interpreter.machine}"
        return os.path.join(self.task.source.store, f"resolved-{self.task.wanted.key}-{tag}.json")

    def _keep(self, packages: t.Sequence[Locked]) -> None:
        content = [
            {"name": item.name, "version": item.version, "sha256": item.sha256, "url": pip.redact(item.url)}
            for item in packages
        ]
        write_atomic(self._kept_path(), json.dumps({"packages": content}, indent=2, sort_keys=True) + "\n")

    def _source(self) -> pip.Source:
        """The source less an index that does not answer: pip would try it again and again for each package."""
        if self.answering is None:
            self.answering = self._answering_source()
        return self.answering

    def _answering_source(self) -> pip.Source:
        source = self.task.source
        problem = self.effects.unreachable(pip.page(source.index_url)) if source.index_url else ""
        if not problem:
            return source
        text = f"the index {pip.redact(source.index_url)} cannot be reached from this host ({problem})"
        if source.isolated and not glob.glob(os.path.join(glob.escape(source.store), "torch-*.whl")):
            raise EnvironmentFailure(
                f"{text}, and no wheel of torch lies in {source.store}; nothing was changed. Name a mirror in"
                " pytorch_index_url, put the wheels into pytorch_wheel_store, or set pytorch_pip_isolated: false to"
                " use this host's own pip settings"
            )
        others = f"the wheels in {source.store}" + ("" if source.isolated else " and this host's own pip settings")
        self.warnings.append(f"{text}: went on with {others}")
        return pip.Source("", source.store, source.isolated)

    # Their wheels

    def _fetch(self, packages: t.Sequence[Locked]) -> t.Dict[str, str]:
        store = self.task.source.store
        paths = {item.name: wheel.find_in_store(store, item.name, item.sha256) for item in self._needed(packages)}
        missing = [item for item in packages if paths.get(item.name) == ""]
        sizes = {item.name: self.effects.size(item.url) if item.url else 0 for item in missing}
        self._check_space([path for path in paths.values() if path], sizes)
        total, done = sum(sizes.values()), 0
        for batch in _batches(missing, sizes):
            paths.update(self._download(batch, done, total))
            done += sum(os.path.getsize(paths[item.name]) for item in batch)
        return paths

    def _needed(self, packages: t.Sequence[Locked]) -> t.Sequence[Locked]:
        """pip wants to see the wheel of every package that it may have to install, and of no other."""
        return self.found.lacking(packages) if self._usable() else packages

    def _download(self, batch: t.Sequence[Locked], done: int, total: int) -> t.Dict[str, str]:
        into = os.path.join(self.tmp, "wheels")
        shutil.rmtree(into, ignore_errors=True)
        os.makedirs(into)
        source = self._source()
        command = pip.download_command(
            self.interpreter.executable,
            self.pip,
            source,
            requirements=self._file("download.txt", [*source.lines(), *(item.line for item in batch)]),
            into=into,
            cache=self.cache,
        )
        what = "downloading " + (f"{batch[0].name} {batch[0].version}" if len(batch) == 1 else f"{len(batch)} packages")
        self.effects.say(what, done, total)
        result = self._pip(
            command,
            isolated=source.isolated,
            watch=lambda: self.effects.say(what, min(done + _wheel_bytes(self.tmp), total), total),
        )
        if result.rc != 0:
            raise EnvironmentFailure(
                f"{what} failed: {pip.complaint(result.output)}; the finished wheels are kept in"
                f" {self.task.source.store}, run again"
            )
        paths = {}
        for item in batch:
            found = wheel.find_in_store(into, item.name, item.sha256)
            if not found:
                raise EnvironmentFailure(
                    f"{item.name} {item.version} from {pip.redact(item.url) or 'the index'} has another SHA-256 than"
                    f" {item.sha256[0]}; nothing was installed"
                )
            paths[item.name] = os.path.join(self.task.source.store, os.path.basename(found))
            os.chmod(found, 0o644)
            os.replace(found, paths[item.name])
        return paths

    def _check_space(self, at_hand: t.Sequence[str], sizes: t.Mapping[str, int]) -> None:
        unpacked = sum(wheel.unpacked_bytes(path) for path in at_hand)
        unpacked += int(sum(sizes.values()) * space.UNPACKED_RATIO)
        needs = [space.Need(self.task.venv, space.installed_size(unpacked), "the environment")]
        if sizes:
            # pip writes a wheel twice, into its temporary folder and from there to where we take it.
            needs.append(
                space.Need(self.task.source.store, sum(sizes.values()) + max(sizes.values()) * 2, "the wheels")
            )
        space.check(needs)

    # Are they what the Plan says

    def _judge(self, packages: t.Sequence[Locked], paths: t.Mapping[str, str]) -> None:
        torch = _torch(packages)
        if paths.get("torch"):
            version, cuda = wheel.torch_build(paths["torch"])
            if mismatch(version, cuda, self.task.wanted.version, self.task.wanted.variant):
                raise EnvironmentFailure(self._other_build(version, torch.url, cuda))

    def _other_build(self, version: str, url: str, cuda: t.Optional[str] = None) -> str:
        built = "" if cuda is None else f" (built for {'CUDA ' + cuda if cuda else 'the CPU'})"
        text = (
            f"the plan wants {self.task.wanted.build}, but what pip finds is torch {version}{built}"
            f" from {pip.redact(url) or self.task.source.store}; nothing was changed."
        )
        if self.task.source.isolated:
            return text + " Look at pytorch_index_url and at the wheels in pytorch_wheel_store"
        through = pip.bringer(url, self._settings())
        if through:
            text += f" This host's pip settings bring it: {through}."
        return text + " Change that setting, or set pytorch_pip_isolated: true"

    # Into the environment

    def _usable(self) -> bool:
        return (
            self.found.kind == "ours"
            and venv.interpreter_works(self.task.venv)
            and venv.base_version(self.task.venv).split(".")[:2] == self.interpreter.minor.split(".")
        )

    def _install(self, packages: t.Sequence[Locked], paths: t.Dict[str, str]) -> None:
        task = self.task
        self._check_space([path for path in paths.values() if path], {})
        lacking = self.found.lacking(packages)
        if task.when_busy == "fail" and any(item.name in self.found.installed for item in lacking):
            users = self.effects.users_of(task.venv)
            if users:
                raise EnvironmentFailure(
                    f"{task.venv} is in use by process {', '.join(map(str, users[:5]))}"
                    f"{' and more' if len(users) > 5 else ''}, and would be changed under it; nothing was changed. Run"
                    " again when it has ended, choose another pytorch_venv, or set pytorch_when_busy: proceed"
                )
        content = {
            "key": task.wanted.key,
            "torch": task.wanted.build,
            "packages": [{"name": i.name, "version": i.version, "sha256": i.sha256} for i in packages],
            "base_python": self.interpreter.executable,
        }
        try:
            venv.begin(task.venv, self.found, content)
        except OSError as error:
            raise EnvironmentFailure(
                f"pytorch_venv {task.venv} cannot be made: {error.strerror} ({error.filename}), as user"
                f" {os.geteuid()}; choose a path where this user may write, or become root"
            ) from None
        python = os.path.join(task.venv, "bin", "python")
        if not self._usable():
            self.effects.say("making the environment")
            venv.drop_interpreter(task.venv)
            result = self.effects.run(
                [self.interpreter.executable, "-I", "-m", "venv", "--without-pip", task.venv], self._environ(True)
            )
            if result.rc != 0:
                raise EnvironmentFailure(f"{python} could not be made: {pip.complaint(result.output)}")
        # What is there now: what a change of the interpreter left behind is not there any more.
        found = venv.look(task.venv)
        venv.forget(task.venv, found, lacking)
        self.effects.say("installing " + task.wanted.build)
        lines = ["--no-index", "--find-links " + pip.quoted(task.source.store), *(item.line for item in packages)]
        if "pip" not in found.installed and "pip" not in {item.name for item in packages}:
            lines += [
                "--find-links " + pip.quoted(os.path.dirname(self.pip_wheel)),
                f"pip=={'.'.join(map(str, wheel.pip_version(self.pip_wheel)))}"
                f" --hash=sha256:{wheel.sha256(self.pip_wheel)}",
            ]
        result = self._pip(
            pip.install_command(python, self.pip, requirements=self._file("install.txt", lines)), isolated=True
        )
        if result.rc != 0:
            raise EnvironmentFailure(
                f"{task.wanted.build} could not be installed into {task.venv}: {pip.complaint(result.output)};"
                " the environment is not complete, and the next run goes on with it"
            )
        self._look_again(packages)
        venv.complete(task.venv, content)

    def _look_again(self, packages: t.Sequence[Locked]) -> None:
        found = venv.look(self.task.venv)
        lacking = found.lacking(packages)
        if lacking:
            raise EnvironmentFailure(
                f"{self.task.venv} is not as planned after the installation: "
                + "; ".join(
                    f"{item.name} {item.version} wanted, {found.installed.get(item.name, 'none')} found"
                    + (f", damaged {found.damaged[item.name][0]}" if item.name in found.damaged else "")
                    for item in lacking
                )
            )
        with open(os.path.join(venv.site_packages(self.task.venv), "torch", "version.py"), encoding="utf-8") as stream:
            version, cuda = wheel.parse_version_py(stream.read())
        if mismatch(version, cuda, self.task.wanted.version, self.task.wanted.variant):
            raise EnvironmentFailure(self._other_build(version, "", cuda))

    # pip

    def _pip(self, command: t.Sequence[str], *, isolated: bool, watch: t.Callable[[], None] = lambda: None) -> t.Any:
        return self.effects.run(command, self._environ(isolated), watch)

    def _environ(self, isolated: bool) -> t.Dict[str, str]:
        return pip.environment(self.effects.environ, isolated=isolated, tmp=self.tmp)

    def _settings(self) -> t.Dict[str, str]:
        if self.task.source.isolated:
            return {}
        command = pip.settings_command(self.interpreter.executable, self.pip)
        return pip.read_settings(self.effects.run(command, self._environ(False)).output)

    def _file(self, name: str, lines: t.Iterable[str]) -> str:
        path = os.path.join(self.tmp, name)
        write_atomic(path, "\n".join(lines) + "\n", 0o600)
        return path


def _torch(packages: t.Iterable[Locked]) -> Locked:
    for item in packages:
        if item.name == "torch":
            return item
    raise EnvironmentFailure("what pip resolved holds no torch")


def _batches(packages: t.Sequence[Locked], sizes: t.Mapping[str, int]) -> t.List[t.List[Locked]]:
    """The small wheels in one download, each large one in its own, after which it is kept."""
    small = [item for item in packages if 0 < sizes[item.name] < SMALL_WHEEL]
    return ([small] if small else []) + [[item] for item in packages if item not in small]


def _wheel_bytes(folder: str) -> int:
    """Bytes of the wheels below the folder: finished ones, and the one that pip is writing."""
    total = 0
    for where, _folders, names in os.walk(folder):
        for name in names:
            if name.endswith(".whl"):
                try:
                    total += os.stat(os.path.join(where, name)).st_size
                except OSError:  # pip has moved it on.
                    continue
    return total
