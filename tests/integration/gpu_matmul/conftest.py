# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An environment with the real torch, made once and kept beside the container images."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import prove, supervise
from ansible_collections.gpufleet.pytorch.tests.containers.images import cache_dir

TORCH = "2.13.0+cpu"


@pytest.fixture(scope="session")
def torch_python(interpreters):
    """The interpreter of a venv with torch, whose path holds a space."""
    if "3.11" not in interpreters:
        pytest.skip(f"needs Python 3.11, for which a wheel of torch {TORCH} is at hand")
    venv = cache_dir() / f"torch {TORCH}"
    python = venv / "bin/python"
    with open(f"{venv}.lock", "w", encoding="utf-8") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not (venv / "finished").exists():
            # Our own pip: Debian's Python comes without ensurepip.
            subprocess.run([interpreters["3.11"], "-m", "venv", "--clear", "--without-pip", str(venv)], check=True)
            pip = [sys.executable, "-m", "pip", "--python", str(python)]
            done = subprocess.run(
                [*pip, "install", "--quiet", f"torch=={TORCH}", "numpy"],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                pytest.skip(f"pip finds no torch {TORCH} here: {done.stderr.strip().splitlines()[-1]}")
            (venv / "finished").touch()
    return str(python)


@pytest.fixture
def damaged_venv(torch_python):
    """A copy of the environment that a test may break: hard links, so that it costs no space, hence beside it."""
    with tempfile.TemporaryDirectory(dir=cache_dir()) as folder:
        venv = Path(folder) / "venv"
        subprocess.run(["cp", "-al", str(Path(torch_python).parents[1]), str(venv)], check=True)
        yield venv


@pytest.fixture(scope="session")
def with_fault():
    """Source of workers with a fault: Python text that runs after the worker's code, with its names at hand."""

    def build(text: str) -> supervise.Source:
        source = list(prove.worker_source())
        name, code = source[-1]
        return source[:-1] + [(name, code + "\n" + text)]

    return build
