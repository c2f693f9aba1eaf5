# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages that are made from the compatibility data are those that the data makes now."""

from __future__ import annotations

import importlib
import pathlib
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[3] / "tools"


@pytest.fixture(scope="module")
def render():
    sys.path.insert(0, str(TOOLS))
    yield importlib.import_module("render_compatibility")
    sys.path.remove(str(TOOLS))


def test_the_pages_are_up_to_date(render, capsys):
    assert render.main(["--check"]) == 0, capsys.readouterr().out


def rows(page, heading):
    """Rows of the first table below a heading, each a mapping of column to cell."""
    lines = page[page.index(heading) :].splitlines()
    table = []
    for line in lines[next(number for number, line in enumerate(lines) if line.startswith("|")) :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return [dict(zip([cell.strip() for cell in table[0]], row, strict=False)) for row in table[2:]]


@pytest.mark.parametrize(
    ("gpu", "column", "cell"),
    [
        ("Volta 7.0", "2.15.0 x86_64", "cu126"),
        ("Volta 7.0", "drivers", "any to 580"),
        ("Turing 7.5", "torch on aarch64", "none"),
        ("Blackwell 10.0", "kernel module", "open"),
        ("Blackwell 12.0", "torch on x86_64", "2.7.0 to 2.15.0"),
        ("Kepler 3.7", "torch on x86_64", "2.0.0 to 2.7.1"),
    ],
)
def test_what_people_look_for(render, gpu, column, cell):
    page = render.compatibility(render.loader.load())
    found = {row["GPU"]: row for row in rows(page, "## Which PyTorch, CUDA and driver for which GPU")}
    assert found[gpu][column] == cell


def test_every_source_that_is_cited_is_listed(render):
    for page in (render.compatibility(render.loader.load()), render.gpus(render.loader.load())):
        listed = page[page.index("## Sources") :]
        cited = {int(part.split("]")[0]) for part in page.split("[")[1:] if part.split("]")[0].isdigit()}
        assert cited == set(range(1, len(cited) + 1))
        assert all(f"\n{number}. " in listed for number in cited)


def test_a_page_that_is_not_up_to_date_is_named(render, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(render, "DOCS", tmp_path)
    monkeypatch.setattr(render, "ROOT", tmp_path)
    assert render.main(["--check"]) == 1
    assert "gpus.md is not what the data says" in capsys.readouterr().out
    assert render.main([]) == 0
    assert render.main(["--check"]) == 0
