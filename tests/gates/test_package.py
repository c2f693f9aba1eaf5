# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is shipped: the archive holds what it must and nothing else, and Galaxy's importer takes it without a word."""

from __future__ import annotations

import re
import shutil
import sys
import tarfile
import typing as t
from pathlib import Path

import pytest

#: What the clone needs and an installed collection does not.
NOT_SHIPPED = (
    ".ci/",
    ".git",
    ".venv",
    "collections/",
    "execution-environment.yml",
    "inventories/simulated",
    "molecule/",
    "playbooks/simulate.yml",
    "reports/",
    "requirements/",
    "run",
    "simulate.yml",
    "tests/",
    "tools/",
)


@pytest.fixture(scope="module")
def archive(gate: t.Callable[..., t.Any], copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("build")
    gate("ansible-galaxy", "collection", "build", "--output-path", folder, cwd=copy)
    (path,) = folder.glob("gpufleet-pytorch-*.tar.gz")
    return path


def test_what_the_archive_holds(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert [name for name in names if name.startswith(NOT_SHIPPED)] == []
    assert {"MANIFEST.json", "README.md", "COPYING", "meta/runtime.yml", "playbooks/site.yml"} <= set(names)
    assert any(re.match(r"plugins/modules/\w+\.py$", name) for name in names)


def test_the_archive_installs_and_is_found(gate: t.Callable[..., t.Any], archive: Path, tmp_path: Path) -> None:
    environ = {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path)}
    install = ("ansible-galaxy", "collection", "install", "--offline", "--collections-path", tmp_path, archive)
    gate(*install, cwd=tmp_path, **environ)
    found = gate("ansible-doc", "--list", "gpufleet.pytorch", cwd=tmp_path, **environ)
    assert "gpufleet.pytorch.gpu_info" in found.stdout
    needs = gate("ansible-builder", "introspect", tmp_path, cwd=tmp_path).stdout
    assert "nvidia-ml-py" in needs and "openssh-clients" in needs


def test_the_execution_environment(gate: t.Callable[..., t.Any], archive: Path, copy: Path, tmp_path: Path) -> None:
    """Its definition is one of ansible-builder's, and names the archive of this version; no image is built here."""
    shutil.copy(copy / "execution-environment.yml", tmp_path)
    shutil.copy(archive, tmp_path)
    gate("ansible-builder", "create", cwd=tmp_path)
    context = tmp_path / "context"
    assert (context / "_build" / "dist" / archive.name).is_file()
    assert f"dist/{archive.name}" in (context / "_build" / "requirements.yml").read_text()
    assert 'ARG PYCMD="/usr/bin/python3.12"' in (context / "Containerfile").read_text()


def test_galaxy_importer(gate: t.Callable[..., t.Any], archive: Path, tmp_path: Path) -> None:
    done = gate(sys.executable, "-m", "galaxy_importer.main", archive, cwd=tmp_path)
    output = done.stdout + done.stderr
    # Warnings come with exit 0. ansible-test is run elsewhere, on more than the archive.
    wrong = [line for line in output.splitlines() if re.match(r"(WARNING|ERROR|CRITICAL)", line)]
    assert wrong == []
    assert "Importer processing completed successfully" in output
