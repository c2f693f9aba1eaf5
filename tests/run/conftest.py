# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clones to try `run` in, and a shell's environment that knows nothing of the one that runs the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import typing as t
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("run", "requirements", "ansible.cfg", "galaxy.yml", "plugins", "meta")


def clean_environment() -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if name not in ("ANSIBLE_CONFIG", "VIRTUAL_ENV")}
    environ["PATH"] = os.pathsep.join(folder for folder in os.get_exec_path() if Path(folder) != ROOT / ".venv/bin")
    return environ


@dataclass
class Clone:
    """A clone with what `run` and the collection's plugins need, and nothing made yet."""

    root: Path

    def command(self, *words: str) -> list[str]:
        return [str(self.root / "run"), *words]

    def start(self, *words: str, prefix: t.Sequence[str] = (), **settings: str) -> subprocess.Popen[str]:
        """Starts `run` with the settings in its environment, in a session of its own."""
        return subprocess.Popen(
            [*prefix, *self.command(*words)],
            cwd=self.root.parent,
            env={**clean_environment(), **settings},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self, *words: str, expect: int = 0, prefix: t.Sequence[str] = (), **settings: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs `run` to its end and holds its exit code against the expected one."""
        process = self.start(*words, prefix=prefix, **settings)
        out, err = process.communicate(timeout=300)
        assert process.returncode == expect, f"exit {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def made(self) -> bool:
        return (self.root / ".venv" / "ansible.txt").exists()


def new_clone(parent: Path) -> Clone:
    root = parent / "a clone with spaces"
    root.mkdir(parents=True)
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, root / name)
    return Clone(root)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A fresh clone, its path with spaces."""
    return new_clone(tmp_path)


@pytest.fixture(scope="module")
def made_clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone whose small environment is made: for what changes nothing in it."""
    clone = new_clone(tmp_path_factory.mktemp("made"))
    clone.run("ansible", "--version")
    assert clone.made
    return clone


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a shell outside of any `run`."""
    return clean_environment()
