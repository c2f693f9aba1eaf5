# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workshop of one environment: what is wanted, the folders of half-done work, and pip at hand."""

from __future__ import annotations

import glob
import os
import shutil
import typing as t
import zipfile
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import pip, space
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.effects import Effects, Result
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.interpreter import Interpreter
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    EnvironmentFailure,
    Wanted,
    redact,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic


@dataclass(frozen=True)
class Task:
    """One environment to make: where, of what, from where, and a work folder for what is half done."""

    venv: str
    wanted: Wanted
    source: pip.Source
    work: str
    when_busy: str = "fail"


class Workshop:
    """Runs pip for one task. ``warnings`` collects what a person should hear at the end."""

    def __init__(self, task: Task, interpreter: Interpreter, pip_wheel: str, effects: Effects) -> None:
        self.task, self.interpreter = task, interpreter
        self.pip_wheel, self.effects = pip_wheel, effects
        self.warnings: t.List[str] = []
        self.tmp = os.path.join(task.work, "tmp")
        #: What pip downloaded: pip before 25.3 downloads all to resolve, and a kill shall not cost that again.
        self.cache = os.path.join(task.work, "cache")
        self.program = os.path.join(self.tmp, "unpacked", "pip")
        self._answering: t.Optional[pip.Source] = None

    def open(self) -> None:
        """Make the folders, and unpack pip."""
        self.close()
        for folder in (self.tmp, self.cache):
            os.makedirs(folder, exist_ok=True)
        space.check([space.Need(self.task.work, space.PIP_BYTES, "pip")])
        # From a folder, where its bytecode is kept, pip starts in half the time that it takes from its wheel. Without
        # its dist-info, so that it does not take itself for installed in the environment.
        with zipfile.ZipFile(self.pip_wheel) as archive:
            archive.extractall(
                os.path.dirname(self.program), [name for name in archive.namelist() if name.startswith("pip/")]
            )

    def close(self, *, done: bool = False) -> None:
        """Take the half-done work away; with ``done`` what pip downloaded too."""
        for folder in (self.tmp, *([self.cache] if done else [])):
            shutil.rmtree(folder, ignore_errors=True)

    def run_pip(
        self, command: t.Sequence[str], *, isolated: bool, watch: t.Callable[[], None] = lambda: None
    ) -> Result:
        """Run one of pip's commands to its end. Raises EnvironmentFailure where the disk became full."""
        result = self.effects.run(command, self.environ(isolated), watch)
        if result.rc != 0 and "No space left on device" in result.output:
            self.close(done=True)
            raise EnvironmentFailure(space.exhausted((self.task.work, self.task.venv), pip.sizes_told(result.output)))
        return result

    def environ(self, isolated: bool) -> t.Dict[str, str]:
        """The variables that a command runs with."""
        return pip.environment(self.effects.environ, isolated=isolated, tmp=self.tmp)

    def settings(self) -> t.Dict[str, str]:
        """The host's settings of pip that decide which build it finds, where they count."""
        if self.task.source.isolated:
            return {}
        command = pip.settings_command(self.interpreter.executable, self.program)
        return pip.read_settings(self.effects.run(command, self.environ(False)).output)

    def file(self, name: str, lines: t.Iterable[str]) -> str:
        """Write a file of half-done work for this user alone (an address may hold a password); its path."""
        path = os.path.join(self.tmp, name)
        write_atomic(path, "\n".join(lines) + "\n", 0o600)
        return path

    def written(self) -> int:
        """Bytes of the wheels in the half-done work: finished ones, and the one that pip is writing."""
        total = 0
        for where, _folders, names in os.walk(self.tmp):
            for name in names:
                if name.endswith(".whl"):
                    try:
                        total += os.stat(os.path.join(where, name)).st_size
                    except OSError:  # pip has moved it on.
                        continue
        return total

    def source(self) -> pip.Source:
        """The source less an index that does not answer: pip would try it again and again for each package."""
        if self._answering is None:
            self._answering = self._answering_source()
        return self._answering

    def _answering_source(self) -> pip.Source:
        source = self.task.source
        problem = self.effects.unreachable(pip.page(source.index_url)) if source.index_url else ""
        if not problem:
            return source
        text = f"the index {redact(source.index_url)} cannot be reached from this host ({problem})"
        if source.isolated and not glob.glob(os.path.join(glob.escape(source.store), "torch-*.whl")):
            raise EnvironmentFailure(
                f"{text}, and no wheel of torch lies in {source.store}; nothing was changed. Name a mirror in"
                " pytorch_index_url, put the wheels into pytorch_wheel_store, or set pytorch_pip_isolated: false to"
                " use this host's own pip settings"
            )
        others = f"the wheels in {source.store}" + ("" if source.isolated else " and this host's own pip settings")
        self.warnings.append(f"{text}: went on with {others}")
        return pip.Source("", source.store, source.isolated)

    def other_build(self, version: str, url: str, cuda: t.Optional[str] = None) -> str:
        """What to say where pip finds another build than planned: both, and the setting that brings it."""
        built = "" if cuda is None else f" (built for {'CUDA ' + cuda if cuda else 'the CPU'})"
        text = (
            f"the plan wants {self.task.wanted.build}, but what pip finds is torch {version}{built}"
            f" from {redact(url) or self.task.source.store}; nothing was changed."
        )
        if self.task.source.isolated:
            return text + " Look at pytorch_index_url and at the wheels in pytorch_wheel_store"
        through = pip.bringer(url, self.settings())
        if through:
            text += f" This host's pip settings bring it: {through}."
        return text + " Change that setting, or set pytorch_pip_isolated: true"
