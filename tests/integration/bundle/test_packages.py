# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The closure of packages by the real apt, from a repository on the disk to one that apt installs from again."""

from __future__ import annotations

import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import closure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Name, version, what it depends on.
ARCHIVE = [
    ("stand-in-driver", "535.261.03-1", "stand-in-smi (= 535.261.03-1), stand-in-tool"),
    ("stand-in-driver", "550.163.01-1", "stand-in-smi (= 550.163.01-1)"),
    ("stand-in-smi", "535.261.03-1", ""),
    ("stand-in-smi", "550.163.01-1", ""),
    ("stand-in-tool", "1:2.0-1", ""),
    ("bystander", "1.0-1", ""),
    ("broken", "1.0-1", "nowhere-to-be-had"),
]
pytestmark = pytest.mark.needs("apt-get", "dpkg-deb")


def control(path):
    return Runner().run(["dpkg-deb", "--field", path])


@pytest.fixture
def apt(tmp_path):
    """apt with lists of its own that knows the stand-in archive alone."""
    archive = tmp_path / "archive"
    for name, version, depends in ARCHIVE:
        root = tmp_path / f"{name}-{version}"
        (root / "DEBIAN").mkdir(parents=True)
        text = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: t <t@x.invalid>\n"
        text += (f"Depends: {depends}\n" if depends else "") + f"Description: {name}\n"
        (root / "DEBIAN" / "control").write_text(text)
        archive.mkdir(exist_ok=True)
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(archive)],
            check=True,
            capture_output=True,
        )
    packages = sorted(map(str, archive.glob("*.deb")))
    (archive / "Packages").write_text(closure.index(packages, control))
    scratch = tmp_path / "scratch"
    for folder in ("etc/sources.list.d", "etc/preferences.d", "lists/partial", "cache/archives/partial"):
        (scratch / folder).mkdir(parents=True)
    (scratch / "etc/sources.list.d/archive.list").write_text(f"deb [trusted=yes] file:{archive} ./\n")
    made = closure.Recording(Runner(), 10, 60, str(scratch))
    made.update()
    return made


def test_the_closure_is_all_that_is_needed_and_no_more(apt, tmp_path, monkeypatch):
    paths = closure.download(apt, ["stand-in-driver=535.261.03-1", "stand-in-smi=535.261.03-1"], str(tmp_path))
    names = sorted(Path(path).name for path in paths)
    assert [name.split("_")[0] for name in names] == ["stand-in-driver", "stand-in-smi", "stand-in-tool"]
    assert all("550" not in name for name in names)

    place = tmp_path / "host"
    monkeypatch.setattr(closure, "PLACE", str(place))
    archive, digest = closure.pack(paths, closure.index(paths, control), str(tmp_path))
    with tarfile.open(archive) as tar:
        tar.extractall(place / digest, filter="data")
    (place / digest / "lists").mkdir()
    # A host whose own sources are this machine's: apt sees those of the archive, and no other.
    (tmp_path / "status").touch()
    environ = {**os.environ, "APT_CONFIG": str(place / digest / "apt.conf"), "LC_ALL": "C"}
    options = ["-o", f"Dir::State::status={tmp_path}/status", "-o", f"Dir::Cache={tmp_path}/cache"]
    options += ["-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=true", "-o", "APT::Update::Error-Mode=any"]
    for words in (["update"], ["--simulate", "install", "stand-in-driver"]):
        done = subprocess.run(
            ["apt-get", *options, *words], env=environ, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "http" not in done.stdout
    inst = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Inst ")]
    assert sorted(inst) == ["stand-in-driver", "stand-in-smi", "stand-in-tool"]


def test_what_no_source_has_is_told_in_apts_words(apt, tmp_path):
    with pytest.raises(PackageFailure, match="nowhere-to-be-had"):
        closure.download(apt, ["broken"], str(tmp_path))
