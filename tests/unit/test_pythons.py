# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The unit tests of module_utils on the oldest and a newest Python of managed hosts, where this machine has them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "unit.txt"


def environment(version: str, python: str) -> Path:
    """The Python of an environment with pytest, made once and kept outside the tree."""
    cache = os.environ.get("GPUFLEET_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'}/gpufleet"
    key = hashlib.sha256(LOCK.read_bytes() + str(Path(python).resolve()).encode()).hexdigest()[:12]
    venv = Path(cache) / f"unit-{version}-{key}"
    made = venv / "made"
    if not made.exists():
        shutil.rmtree(venv, ignore_errors=True)
        venv.parent.mkdir(parents=True, exist_ok=True)
        pip = [str(venv / "bin" / "python"), "-I", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for command in ([python, "-I", "-m", "venv", str(venv)], [*pip, "--require-hashes", "-r", str(LOCK)]):
            subprocess.run(command, stdin=subprocess.DEVNULL, check=True)
        made.touch()
    return venv / "bin" / "python"


@pytest.mark.parametrize("version", ["3.8", "3.13"])
def test_module_utils_on(version: str, interpreters: dict[str, str]) -> None:
    if version not in interpreters:
        pytest.skip(f"this machine has no Python {version}")
    python = environment(version, interpreters[version])
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/module_utils"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
