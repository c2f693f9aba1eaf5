# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.supplies import Load
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import reading as form
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import timed
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner


@pytest.mark.parametrize(
    ("consumed", "draw", "before", "kept"),
    [
        (7000.0, 5200.0, None, 1800.0),
        (7000.0, 5200.0, 1500.0, 1800.0),
        (7000.0, 5200.0, 2000.0, 2000.0),  # it drew more once
        (1500.0, 400.0, None, None),  # at rest
        (None, 5200.0, 1500.0, 1500.0),
        (7000.0, None, None, None),
    ],
)
def test_the_base_load_under_load_is_remembered(
    tmp_path: Path, consumed: t.Any, draw: t.Any, before: t.Optional[float], kept: t.Optional[float]
) -> None:
    runner = Runner(str(tmp_path))
    path = tmp_path / timed.REMEMBERED.lstrip("/")
    if before is not None:
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"base_load_w": before}))
    reading = {**form.reading("ipmi", "in-band"), "consumed_w": consumed, "observed_at": "2026-12-01T05:30:00Z"}
    timed.remember(runner, reading, Load(5600.0, draw))
    assert timed.measured(runner) == kept


@pytest.mark.parametrize(
    "content", ["{", "[]", "null", '{"base_load_w": "much"}', '{"base_load_w": NaN}', '{"base_load_w": -5}', ""]
)
def test_a_spoilt_memory_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / timed.REMEMBERED.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert timed.measured(Runner(str(tmp_path))) is None


@pytest.mark.parametrize(
    "options", [{"base-load": "x"}, {"base-load": "nan"}, {"supply-watts": "inf"}, {"expected": "1.5"}, {"limit": ""}]
)
def test_an_option_that_is_none(tmp_path: Path, options: t.Dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert timed.run(options, str(tmp_path)) == 2
    assert capsys.readouterr().err.startswith("gpufleet-gate power: ")
    assert list(tmp_path.iterdir()) == []


def test_a_run_leaves_findings_for_the_gate(tmp_path: Path) -> None:
    """On this machine as it is: with a BMC or without one, there is a word of it."""
    assert timed.run({"valid-for": "600", "limit": "20"}, str(tmp_path)) == 0
    data = json.loads((tmp_path / timed.OUTSIDE).read_text())
    assert data["valid_for"] == 600
    assert "bmc-answers" in [finding["check"] for finding in data["findings"]]
