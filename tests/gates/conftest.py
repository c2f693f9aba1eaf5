# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a gate runs: another tool, on the whole clone, whose exit code and words are the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What a clone holds beside the project's own files.
FOREIGN = (".git", ".venv*", "collections", "reports", "output", "__pycache__", ".*_cache", ".ansible", "*.tar.gz")

Gate = t.Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def root() -> Path:
    """The clone."""
    return ROOT


@pytest.fixture(scope="session")
def gate() -> Gate:
    """Runs a command in the clone, and fails with what it wrote where its exit code is not 0."""

    def run(
        *command: str | Path, cwd: Path = ROOT, timeout: float = 600, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env={**os.environ, "NO_COLOR": "1", **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode:
            pytest.fail(
                f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}", pytrace=False
            )
        return done

    return run


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection without what is not its own, at the path that ansible-test and the documentation tools want."""
    path = tmp_path_factory.mktemp("copy") / "ansible_collections" / "gpufleet" / "pytorch"
    shutil.copytree(ROOT, path, symlinks=True, ignore=shutil.ignore_patterns(*FOREIGN))
    return path
