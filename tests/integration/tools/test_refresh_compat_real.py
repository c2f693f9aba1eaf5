# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""refresh_compat against the index of pip's configuration: the releases of the last year come out as the data has them.

Skips where that index cannot be asked. Parts of wheels are read, some megabytes in all.
"""

from __future__ import annotations

import importlib
import pathlib
import sys

import pytest
import yaml

TOOLS = pathlib.Path(__file__).resolve().parents[3] / "tools"
DATA = TOOLS.parent / "plugins" / "plugin_utils" / "_compat" / "data"
LAST_YEAR = ["2.10.0", "2.11.0", "2.12.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1", "2.15.0"]


@pytest.fixture(scope="module")
def refresh():
    sys.path.insert(0, str(TOOLS))
    yield importlib.import_module("refresh_compat")
    sys.path.remove(str(TOOLS))


@pytest.fixture(scope="module")
def index(refresh):
    package_index = importlib.import_module("package_index")
    try:
        found = package_index.PackageIndex(package_index.pip_settings())
        found.wheels("torch")
    except package_index.IndexProblem as problem:
        pytest.skip(f"no package index to read from: {problem}")
    return found


@pytest.fixture(scope="module")
def data():
    return yaml.safe_load((DATA / "torch.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("version", LAST_YEAR)
def test_the_data_is_reproduced(refresh, index, data, version):
    known = {row["version"]: row for row in data["releases"]}
    assert refresh.differences(known[version], refresh.read_release(index, version)) == []


def test_releases_taken_from_the_data_are_written_back(refresh, index, data, tmp_path, capsys):
    text = (DATA / "torch.yml").read_text(encoding="utf-8")
    (tmp_path / "torch.yml").write_text(text[: text.index('  - version: "2.14.1"')], encoding="utf-8")
    (tmp_path / "toolkits.yml").write_bytes((DATA / "toolkits.yml").read_bytes())
    older = yaml.safe_load((tmp_path / "torch.yml").read_text(encoding="utf-8"))
    assert refresh._add(index, older, tmp_path, write=True) == 0
    written = {row["version"]: row for row in yaml.safe_load((tmp_path / "torch.yml").read_text())["releases"]}
    for row in data["releases"]:
        assert refresh.differences(row, written[row["version"]]) == [], row["version"]
    assert "To decide for torch 2.15.0:" in capsys.readouterr().out
