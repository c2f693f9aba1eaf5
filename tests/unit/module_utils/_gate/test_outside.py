# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import calendar
import json
import os
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import outside

AT = "2026-12-01T05:30:00Z"
NOW = calendar.timegm(time.strptime(AT, "%Y-%m-%dT%H:%M:%SZ"))
LOST = Finding("psu-capacity", "fail", found="2 of 6", action="ask facility").to_dict()
GOOD: t.Dict[str, t.Any] = {"findings": [LOST], "judged_at": AT, "valid_for": 900}

#: What the file holds, how long after it was written it is read; the check and the state that are found.
FILES: t.Dict[str, t.Tuple[t.Any, float, str, str]] = {
    "of now": (GOOD, 0, "psu-capacity", "fail"),
    "still good": (GOOD, 900, "psu-capacity", "fail"),
    "too old": (GOOD, 901, "findings-current", "unknown"),
    "of tomorrow": (GOOD, -86400, "findings-current", "unknown"),
    "no JSON": ("{", 0, "findings-current", "unknown"),
    "a list": ([], 0, "findings-current", "unknown"),
    "no time": ({"findings": []}, 0, "findings-current", "unknown"),
    "no finding": ({**GOOD, "findings": [{"check": "x"}]}, 0, "findings-current", "unknown"),
    "another state": ({**GOOD, "findings": [{**LOST, "state": "fine"}]}, 0, "findings-current", "unknown"),
    "good for a text": ({**GOOD, "valid_for": "900"}, 0, "findings-current", "unknown"),
    "good for true": ({**GOOD, "valid_for": True}, 0, "findings-current", "unknown"),
    "good for ever": ({**GOOD, "valid_for": float("inf")}, 0, "findings-current", "unknown"),
    "good for ages": ({**GOOD, "valid_for": 10**400}, 0, "findings-current", "unknown"),
    "good for no number": ({**GOOD, "valid_for": float("nan")}, 0, "findings-current", "unknown"),
    "good for less than nothing": ({**GOOD, "valid_for": -1}, 0, "findings-current", "unknown"),
    "a time that is a number": ({**GOOD, "judged_at": 1796122800}, 0, "findings-current", "unknown"),
    "a time of a zone": ({**GOOD, "judged_at": "2026-12-01T06:30:00+01:00"}, 0, "findings-current", "unknown"),
    "findings that are one": ({**GOOD, "findings": LOST}, 0, "findings-current", "unknown"),
    "a finding that is a list": ({**GOOD, "findings": [[LOST]]}, 0, "findings-current", "unknown"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file(tmp_path: Path, name: str) -> None:
    content, later, check, state = FILES[name]
    (tmp_path / "power.json").write_text(content if isinstance(content, str) else json.dumps(content))
    (found,) = outside.read(str(tmp_path), NOW + later, os.getuid())
    assert (found.check, found.state) == (check, state)
    # An old word stops nobody; who wrote it may hang.
    assert found.policy == ("report" if check == "findings-current" else "block")


def test_what_is_not_roots_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "power.json"
    path.write_text(json.dumps({**GOOD, "findings": []}))
    path.chmod(0o666)
    (tmp_path / "link.json").symlink_to(path)
    (tmp_path / ".power.json123").write_text("half")
    os.mkfifo(str(tmp_path / "pipe.json"))
    found = outside.read(str(tmp_path), NOW, os.getuid())
    assert [(one.check, one.subject.key) for one in found] == [
        ("findings-current", "link"),
        ("findings-current", "pipe"),
        ("findings-current", "power"),
    ]
    path.chmod(0o644)
    assert [one.check for one in outside.read(str(tmp_path), NOW, os.getuid() + 1)] == ["findings-current"] * 3


def test_no_folder(tmp_path: Path) -> None:
    assert outside.read(str(tmp_path / "none"), NOW) == []
