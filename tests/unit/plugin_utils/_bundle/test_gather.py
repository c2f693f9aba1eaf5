# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wheels come from where they lie, and only the others are downloaded."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import gather
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import wheels
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat.lock import LockProblem

TARGET = wheels.Target("3.12", "x86_64", "2.36", index_url="https://mirror.example.com/simple")


def line(name: str) -> str:
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(name.encode()).hexdigest()}"


def put(folder: Path, name: str, content: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    path.write_text(content or name)
    return path


@pytest.mark.parametrize(
    ("there", "stored", "downloaded", "count"),
    [
        (["one", "two"], [], None, 0),
        (["one"], ["two"], None, 1),
        ([], ["one"], ["two"], 2),
        ([], [], ["one", "two"], 2),
    ],
)
def test_of_lock(tmp_path, there, stored, downloaded, count):
    into, store = tmp_path / "wheels", tmp_path / "store"
    into.mkdir()
    for name in there:
        put(into, name)
    for name in stored:
        put(store, name)
    # One of the right name and another content is not taken.
    put(tmp_path / "other", "two", "damaged")
    asked = []

    def download(target, requirements, folder):
        assert (target, folder) == (TARGET, str(into))
        asked.extend(Path(requirements).read_text().splitlines())

    stores = [str(tmp_path / "gone"), str(tmp_path / "other"), str(store)]
    assert gather.of_lock(TARGET, [line("one"), line("two")], into, stores, download) == count
    assert asked == [line(name) for name in downloaded or []]
    assert sorted(path.name.split("-")[0] for path in into.iterdir()) == sorted({*there, *stored})


def test_pip_downloads_for_the_target_with_its_hash_and_no_other_setting(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://elsewhere.example.com")
    seen = []

    def run(command, environment):
        seen.append((command, environment))
        return subprocess.CompletedProcess(command, 0, "", "")

    wheels.download(TARGET, "wanted.txt", str(tmp_path), run)
    ((command, environment),) = seen
    for word in ("--no-deps", "--require-hashes", "--python-version=3.12", "--platform=manylinux_2_28_x86_64"):
        assert word in command
    assert "--index-url=https://mirror.example.com/simple" in command and "PIP_INDEX_URL" not in environment


def test_what_pip_says_is_told(tmp_path):
    with pytest.raises(LockProblem, match=r"Python 3.12, x86_64, glibc 2.36: .*No matching distribution found for one"):
        wheels.download(
            TARGET,
            "wanted.txt",
            str(tmp_path),
            lambda command, environment: subprocess.CompletedProcess(
                command, 1, "", "ERROR: No matching distribution found for one==1.0\n"
            ),
        )
