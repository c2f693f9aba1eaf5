# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environments of every kind, looked at by a real interpreter without importing torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.environment import environment

FILES = {
    "torch/version.py": "__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n",
    "torch/lib/libc10.so": "x" * 10,
    "numpy/__init__.py": "",
    "filelock/__init__.py": "",
    "unrelated/__init__.py": "",
}
REQUIRES = {"torch": ["filelock>=3", 'pytest; extra == "test"'], "numpy": [], "filelock": [], "unrelated": []}


@pytest.fixture
def held(tmp_path):
    """A venv that holds a torch as pip leaves it; its site-packages and its interpreter."""
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", str(tmp_path / "a venv")], check=True)
    (site,) = (tmp_path / "a venv").glob("lib/python3*/site-packages")
    for path, text in FILES.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    for name, requires in REQUIRES.items():
        info = site / (name + "-2.0.dist-info")
        info.mkdir()
        lines = ["Metadata-Version: 2.1", "Name: " + name, "Version: 2.0"] + ["Requires-Dist: " + r for r in requires]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        rows = [f"{path},sha256=0,{len(text)}" for path, text in FILES.items() if path.startswith(name + "/")]
        (info / "RECORD").write_text("\n".join(rows + [info.name + "/RECORD,,", name + "/x.pyc,,5"]) + "\n")
    return site, str(tmp_path / "a venv" / "bin" / "python")


def look(python):
    return environment(runner.Runner(), python)


def test_a_whole_environment(held):
    told = look(held[1])
    assert told["torch_version"] == "2.14.1+cu130" and told["torch_cuda"] == "13.0"
    assert told["packages"] == {"torch": "2.0", "numpy": "2.0", "filelock": "2.0"}
    assert (told["files"], told["missing"]) == (4, [])
    assert "error" not in told


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda site: (site / "torch/lib/libc10.so").unlink(), ["torch/lib/libc10.so"]),
        (lambda site: (site / "torch/lib/libc10.so").write_text("short"), ["torch/lib/libc10.so"]),
        (lambda site: (site / "numpy/__init__.py").write_text("raise RuntimeError"), ["numpy/__init__.py"]),
        (lambda site: (site / "filelock/__init__.py").unlink(), ["filelock/__init__.py"]),
        (lambda site: (site / "unrelated/__init__.py").unlink(), []),
        (lambda site: (site / "torch/version.py").unlink(), ["torch/version.py"]),
    ],
)
def test_what_is_gone_or_of_another_size_is_named(held, change, missing):
    site, python = held
    change(site)
    assert look(python)["missing"] == missing


def test_without_torch(held):
    site, python = held
    (site / "torch-2.0.dist-info" / "METADATA").unlink()
    (site / "torch-2.0.dist-info").rename(site / "gone")
    assert look(python)["error"] == "torch is not installed in it"
    assert look(python)["python_version"]


def test_a_package_of_the_distribution_counts_and_the_first_on_the_path_wins(held, tmp_path):
    site, python = held
    second = tmp_path / "second"
    for folder, name in ((site, "numpy-2.0.dist-info"), (second, "Numpy-3.0.dist-info")):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (second / "Numpy-3.0.dist-info" / "METADATA").write_text("Name: numpy\nVersion: 3.0\n\nVersion: 9\n")
    (site / "second.pth").write_text(str(second) + "\n")
    assert look(python)["packages"]["numpy"] == "2.0"
    for path in (site / "numpy-2.0.dist-info").iterdir():
        path.unlink()
    (site / "numpy-2.0.dist-info").rmdir()
    assert look(python)["packages"]["numpy"] == "3.0"
    (site / "numpy-1.24.egg-info").mkdir()
    (site / "numpy-1.24.egg-info" / "PKG-INFO").write_text("Name: numpy\r\nVersion: 1.24\r\n\r\nText\r\n")
    (site / "numpy-1.24.egg-info" / "requires.txt").write_text("unrelated>=1\n\n[test]\npytest\n")
    assert look(python)["packages"] == {"torch": "2.0", "numpy": "1.24", "filelock": "2.0", "unrelated": "2.0"}


@pytest.mark.parametrize(
    ("name", "content", "mode", "words"),
    [
        ("absent", None, 0, "is not there"),
        ("text", "hello", 0o644, "is not executable"),
        ("echo", "#!/bin/sh\necho hello\n", 0o755, "is no Python: it printed 'hello"),
        ("number", "#!/bin/sh\necho 1\n", 0o755, "is no Python"),
        ("fails", "#!/bin/sh\nexit 3\n", 0o755, "cannot be run: exit status 3"),
        ("hangs", "#!/bin/sh\nsleep 600\n", 0o755, "cannot be run: no answer within the time limit"),
        ("floods", "#!/bin/sh\nyes\n", 0o755, "cannot be run: more than 1 MiB of output"),
        (".", None, 0, "is a folder"),
    ],
)
def test_what_is_no_interpreter_says_why(tmp_path, monkeypatch, name, content, mode, words):
    monkeypatch.setattr(runner, "OUTPUT_LIMIT", 1 << 20)
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    told = environment(runner.Runner(), str(path), limit=1.0)
    assert words in told["error"]
