# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import findings, venv, wheel
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.venv import Found, Locked
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import EnvironmentFailure, Wanted

#: The text of torch/version.py in wheels: 2.13.0+cpu, and the shape of a CUDA build's and of 2.0's.
CPU = "from typing import Optional\n\n__version__ = '2.13.0+cpu'\ndebug = False\ncuda: Optional[str] = None\n"
CUDA = "__version__ = '2.14.1'\ndebug = False\ncuda: Optional[str] = '13.0'\n"
OLD = "__version__ = '2.0.0+cu118'\ncuda = '11.8'\n"


@pytest.mark.parametrize(
    "text, told",
    [(CPU, ("2.13.0+cpu", "")), (CUDA, ("2.14.1", "13.0")), (OLD, ("2.0.0+cu118", "11.8")), ("", ("", None))],
)
def test_version_py(text: str, told: t.Tuple[str, t.Optional[str]]) -> None:
    assert wheel.parse_version_py(text) == told


@pytest.mark.parametrize(
    "name, version",
    [
        ("pip-23.0.1-py3-none-any.whl", (23, 0, 1)),
        ("pip-26.3-py3-none-any.whl", (26, 3)),
        ("pip_tools-7-py3-none-any.whl", (0,)),
    ],
)
def test_pip_version(name: str, version: t.Tuple[int, ...]) -> None:
    assert wheel.pip_version("/w/" + name) == version


def test_wheel_of_an_installed_pip_runs(tmp_path: Path) -> None:
    pip = pytest.importorskip("pip")
    made = wheel.wheel_of_installed(pip.__path__[0], str(tmp_path))
    done = subprocess.run([sys.executable, "-I", made + "/pip", "--version"], stdout=subprocess.PIPE, check=True)
    assert done.stdout.decode().startswith("pip " + pip.__version__)
    assert wheel.best_pip([made], sys.version_info[:3]) == made
    assert wheel.best_pip([made], (3, 1)) == ""


TORCH = Locked("torch", "2.13.0+cpu", ("aa",))


@pytest.mark.parametrize(
    "found, lacking",
    [
        (Found("ours", installed={"torch": "2.13.0+cpu"}), False),
        (Found("ours", installed={"torch": "2.13.0_CPU".replace("_", "+")}), False),
        (Found("ours", installed={"torch": "2.13.0+cu130"}), True),
        (Found("ours", installed={"torch": "2.13.0+cpu"}, damaged={"torch": ["a.so"]}), True),
        (Found("absent"), True),
    ],
)
def test_lacking(found: Found, lacking: bool) -> None:
    assert bool(found.lacking([TORCH])) is lacking


@pytest.mark.parametrize(
    "record, files, damaged",
    [
        ("a.py,sha256=x,3\nb.py,,\n", {"a.py": "123"}, []),
        ("a.py,sha256=x,3\n", {"a.py": "12"}, ["a.py"]),
        ('"a,b.py",sha256=x,3\n', {}, ["a,b.py"]),
        (None, {"a.py": "123"}, ["t-1.dist-info/RECORD"]),
    ],
)
def test_damaged_files(tmp_path: Path, record: t.Optional[str], files: t.Dict[str, str], damaged: t.List[str]) -> None:
    (tmp_path / "t-1.dist-info").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    if record is not None:
        (tmp_path / "t-1.dist-info" / "RECORD").write_text(record)
    assert venv.damaged_files(str(tmp_path), "t-1.dist-info") == damaged


@pytest.mark.parametrize(
    "version, cuda, variant, state",
    [
        ("2.13.0+cpu", None, "cpu", "ok"),
        ("2.13.0+cpu", None, "cu130", "fail"),
        ("2.13.0", "13.0", "cu130", "ok"),
        ("2.13.0", "13.0", "cpu", "fail"),
        ("2.12.0", "13.0", "cu130", "warn"),
        ("2.13.0", "12.8", "cu130", "warn"),
        (None, None, "cpu", "fail"),
    ],
)
def test_users_environment(version: t.Optional[str], cuda: t.Optional[str], variant: str, state: str) -> None:
    told = {"python": "/c/bin/python", "torch_version": version, "torch_cuda": cuda}
    finding = findings.as_planned(told, Wanted("2.13.0", variant, ()))
    assert finding.state == state
    assert finding.expected == "torch 2.13.0+" + variant


@pytest.mark.parametrize(
    "content, words",
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[]", "made by another version of this collection (schema None"),
        ("null", "made by another version of this collection (schema None"),
        ('{"schema": 99}', "schema 99"),
        ('{"schema": %d, "packages": [{"name": "torch", "version": "2.13.0", "sha256": []}]}', "is damaged (KeyError"),
        ('{"schema": %d, "packages": [1]}', "is damaged (TypeError"),
        ('{"schema": %d, "packages": 1}', "is damaged (TypeError"),
    ],
)
def test_a_marker_of_no_form_is_said_and_nothing_is_taken_over(tmp_path: t.Any, content: str, words: str) -> None:
    (tmp_path / venv.MARKER).write_text(content % venv.SCHEMA if "%d" in content else content)
    with pytest.raises(EnvironmentFailure) as failure:
        venv.look(str(tmp_path))
    assert words in str(failure.value)
