# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.login import REMEMBERED, Login
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power.reading import Trouble


def ask(folder: Path, host: str, answer: str, password: str = "p") -> str:
    """What a BMC is found to be whose first answer would be ``answer``; "kept" where it is not asked."""
    asked = []
    try:
        with Login(str(folder), host, "u", password).turn():
            asked.append(True)
            if answer != "ok":
                raise Trouble(answer, "as it says")
    except Trouble as trouble:
        return trouble.state if asked else f"kept: {trouble.state}"
    return "ok"


#: BMCs that are asked one after the other, each with what it would answer; what comes of it.
RUNS: t.Dict[str, t.List[t.Tuple[str, str, str]]] = {
    "taken": [("a", "ok", "ok"), ("b", "ok", "ok"), ("a", "ok", "ok")],
    "refused once": [("a", "refused", "refused"), ("a", "ok", "kept: refused"), ("b", "ok", "ok"), ("c", "ok", "ok")],
    "refused twice": [("a", "refused", "refused"), ("b", "refused", "refused"), ("c", "ok", "kept: refused")],
    "taken, so two strange ones stop nobody": [
        ("a", "ok", "ok"),
        ("b", "refused", "refused"),
        ("c", "refused", "refused"),
        ("b", "ok", "kept: refused"),
        ("d", "ok", "ok"),
    ],
    "silence is no refusal": [("a", "silent", "silent"), ("b", "malformed", "malformed"), ("a", "ok", "ok")],
}


@pytest.mark.parametrize("name", RUNS)
def test_who_is_asked(tmp_path: Path, name: str) -> None:
    assert [ask(tmp_path, host, answer) for host, answer, _state in RUNS[name]] == [
        state for _h, _a, state in RUNS[name]
    ]


def test_another_password_is_another_login(tmp_path: Path) -> None:
    assert [ask(tmp_path, host, "refused") for host in "ab"] == ["refused"] * 2
    assert ask(tmp_path, "a", "ok", password="q") == "ok"
    assert ask(tmp_path, "c", "ok") == "kept: refused"


def test_an_hour_later_it_is_tried_again(tmp_path: Path) -> None:
    assert [ask(tmp_path, host, "refused") for host in "ab"] == ["refused"] * 2
    path = tmp_path / "bmc-logins.json"
    data = json.loads(path.read_text())
    for entry in data["logins"].values():
        entry["refused"] = {host: time.time() - REMEMBERED - 1 for host in entry["refused"]}
    path.write_text(json.dumps(data))
    assert ask(tmp_path, "a", "ok") == "ok"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"salt": 1}', '{"salt": "x", "logins": {"k": 5}}'])
def test_a_spoilt_file_is_forgotten(tmp_path: Path, content: str) -> None:
    (tmp_path / "bmc-logins.json").write_text(content)
    assert ask(tmp_path, "a", "refused") == "refused"
    assert ask(tmp_path, "a", "ok") == "kept: refused"


def test_nowhere_to_remember(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert ask(tmp_path / "file" / "folder", "a", "refused") == "refused"
