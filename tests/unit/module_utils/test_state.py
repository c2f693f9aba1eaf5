# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where state lies, and a state file that cannot be used is never "no baseline"."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _state


@pytest.mark.parametrize(
    ("euid", "env", "expected"),
    [
        (0, {}, "/etc/gpufleet"),
        (0, {"XDG_STATE_HOME": "/x"}, "/etc/gpufleet"),
        (1000, {"XDG_STATE_HOME": "/x"}, "/x/gpufleet"),
        (1000, {"HOME": "/home/u"}, "/home/u/.local/state/gpufleet"),
    ],
)
def test_state_dir(euid, env, expected):
    assert _state.state_dir(euid, env) == expected


def test_no_file_is_no_baseline(tmp_path):
    assert _state.read_expected(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "cannot be read"),
        ('{"schema": 1, "base', "cannot be read"),
        ('{"schema": 2, "baseline": {}}', "schema 2 where this version reads 1"),
        ('{"schema": 1}', "schema 1"),
        ("[]", "schema None"),
    ],
)
def test_a_file_that_cannot_be_used_is_said(tmp_path, content, text):
    (tmp_path / "expected.json").write_text(content)
    with pytest.raises(_state.StateError, match=text):
        _state.read_expected(str(tmp_path))


def test_a_write_replaces_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "new" / "expected.json"
    _state.write_atomic(str(path), "one")
    _state.write_atomic(str(path), "two")
    assert path.read_text() == "two"
    assert os.listdir(path.parent) == ["expected.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "expected.json"
    _state.write_atomic(str(path), "one")

    def refuse(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_state.os, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        _state.write_atomic(str(path), "two")
    assert path.read_text() == "one"
    assert os.listdir(tmp_path) == ["expected.json"]
