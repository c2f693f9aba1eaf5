# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where state lies, and a state file that cannot be used is never "no baseline"."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("named", ["relative/state", "$NOSUCH/state", "-rf", "7"])
def test_a_relative_folder_is_refused(named):
    with pytest.raises(_state.StateError, match="an absolute path is needed"):
        _state.directory_of(named, 0, {})


@pytest.mark.parametrize(("named", "expected"), [("", "/etc/gpufleet"), ("/a b/c", "/a b/c")])
def test_a_folder_is_named_or_the_usual_one(named, expected):
    assert _state.directory_of(named, 0, {}) == expected


def test_no_file_is_no_baseline(tmp_path):
    assert _state.read_expected(str(tmp_path)) is None


FORM = '{"schema": 1, "written_at": "x", "plan": {}, "baseline": BASELINE}'
BASELINE = '{"accelerator": "cpu", "host": {}, "driver": {}, "environment": {}, "gpus": []}'
GPU = {"uuid": "GPU-1", "pci_address": "0000:1b:00.0", "pcie_width": 16, "nvlink_active": None}


def record(part="", **changed):
    """A record with other values in one of its parts."""
    whole = json.loads(FORM.replace("BASELINE", BASELINE))
    whole["baseline"]["gpus"] = [dict(GPU)]
    whole["policy"] = {"accelerator": "cuda", "gpus_expected": 1, "owned": True, "checks": {"xid": "report"}}
    place = {"": whole, "gpu": whole["baseline"]["gpus"][0], "policy": whole["policy"]}.get(part, whole["baseline"])
    place.update(changed)
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "cannot be used"),
        ('{"schema": 1, "base', "cannot be used"),
        ("[" * 100000, "cannot be used"),
        ('{"schema": 2, "baseline": {}}', "schema 2 where this version reads 1"),
        ("[]", "schema None"),
        ('{"schema": 1}', "not of the form"),
        ('{"schema": 1, "written_at": "x", "baseline": []}', "not of the form"),
        ('{"schema": 1, "written_at": "x", "baseline": {}}', "not of the form"),
        (FORM.replace("BASELINE", BASELINE).replace('"x"', "null"), "not of the form"),
        (FORM.replace("BASELINE", BASELINE.replace("[]", "[1]")), "not of the form"),
        (FORM.replace("BASELINE", BASELINE.replace("{}", '"zzz"')), "not of the form"),
        *(
            (text, "not of the form")
            for text in (
                record(plan=None), record(plan=["cpu"]), record(policy=["auto"]), record(accepted={"id": "x"}),
                record(accepted=[None]), record(accepted=[{"id": []}]),
                record("policy", checks=["xid"]), record("policy", checks={"xid": "never"}),
                record("policy", accelerator="any"), record("policy", accelerator=[]),
                record("policy", gpus_expected="8"), record("policy", gpus_expected=True),
                record("baseline", accelerator="tpu"), record("baseline", rates={}), record("baseline", rates=[1]),
                record("baseline", environment={"packages": ["torch"]}),
                record("baseline", environment={"packages": {"torch": 2}}),
                record("gpu", uuid=None), record("gpu", uuid=["x"]), record("gpu", pci_address=["x"]),
                record("gpu", pcie_width="16"), record("gpu", pcie_width=True), record("gpu", nvlink_active=[18]),
            )
        ),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_said(tmp_path, content, text):
    (tmp_path / "expected.json").write_text(content)
    with pytest.raises(_state.StateError, match=text) as refused:
        _state.read_expected(str(tmp_path))
    assert "remove it" in str(refused.value)
    assert "put back" not in str(refused.value)


def test_the_file_before_is_named_where_there_is_one(tmp_path):
    (tmp_path / "expected.json").write_text("{")
    (tmp_path / "expected.json.previous").write_text("{}")
    with pytest.raises(_state.StateError, match=r"put back .*expected\.json\.previous"):
        _state.read_expected(str(tmp_path))


@pytest.mark.parametrize("text", [FORM.replace("BASELINE", BASELINE), record(), record("gpu", pcie_width=None)])
def test_a_file_of_our_form_is_read(tmp_path, text):
    (tmp_path / "expected.json").write_text(text)
    assert _state.read_expected(str(tmp_path))["baseline"]["accelerator"] == "cpu"


def test_a_record_is_as_it_was_written_or_says_that_it_was_edited(tmp_path):
    content = json.loads(FORM.replace("BASELINE", BASELINE))
    _state.write_expected(str(tmp_path), content)
    path = tmp_path / "expected.json"
    assert "edited" not in _state.read_expected(str(tmp_path))
    text = path.read_text()
    path.write_text(text.replace('"cpu"', '"cuda"'))
    assert _state.read_expected(str(tmp_path))["edited"] is True
    path.write_text(json.dumps({key: value for key, value in json.loads(text).items() if key != "digest"}))
    assert _state.read_expected(str(tmp_path))["edited"] is True, "no digest is no proof"
    path.write_text(json.dumps(json.loads(text)))
    assert "edited" not in _state.read_expected(str(tmp_path)), "other white space is the same content"


def test_the_record_before_is_kept(tmp_path):
    content = json.loads(FORM.replace("BASELINE", BASELINE))
    for when in ("one", "two", "three"):
        _state.write_expected(str(tmp_path), {**content, "written_at": when, "edited": True})
    assert json.loads((tmp_path / "expected.json.previous").read_text())["written_at"] == "two"
    assert _state.read_expected(str(tmp_path))["written_at"] == "three"
    (tmp_path / "expected.json.previous").rename(tmp_path / "expected.json")
    put_back = _state.read_expected(str(tmp_path))
    assert put_back["written_at"] == "two" and "edited" not in put_back


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must not believe others")
@pytest.mark.parametrize(
    ("change", "believed"),
    [
        (lambda folder: None, True),
        (lambda folder: os.chmod(folder / "expected.json", 0o664), False),
        (lambda folder: os.chmod(folder / "expected.json", 0o646), False),
        (lambda folder: os.chown(folder / "expected.json", 1000, 0), False),
        (lambda folder: os.chmod(folder, 0o777), False),
        (lambda folder: os.chmod(folder, 0o1777), True),
        (lambda folder: os.chown(folder, 1000, 0), False),
        (lambda folder: os.chmod(folder.parent, 0o775), False),
    ],
)
def test_root_believes_what_root_alone_can_change(tmp_path, change, believed):
    folder = tmp_path / "above" / "state"
    _state.write_expected(str(folder), json.loads(FORM.replace("BASELINE", BASELINE)))
    change(folder)
    if believed:
        assert _state.read_expected(str(folder)) is not None
    else:
        with pytest.raises(_state.StateError, match="can be changed by others than root"):
            _state.read_expected(str(folder))


@pytest.mark.skipif(os.geteuid() != 0, reason="who is believed matters to root")
@pytest.mark.parametrize("made", [True, False])
def test_root_records_only_where_the_record_will_be_believed(tmp_path, made):
    folder = tmp_path / "above" / "state"
    (folder if made else folder.parent).mkdir(parents=True)
    os.chmod(str(folder.parent), 0o777)
    with pytest.raises(_state.StateError, match=r"nothing was recorded.*chmod go-w"):
        _state.write_expected(str(folder), json.loads(FORM.replace("BASELINE", BASELINE)))
    assert not (folder / "expected.json").exists()
    os.chmod(str(folder.parent), 0o755)
    _state.write_expected(str(folder), json.loads(FORM.replace("BASELINE", BASELINE)))


@pytest.mark.parametrize("kind", ["folder", "fifo", "huge"])
def test_what_is_no_file_of_ours_is_not_read(tmp_path, kind):
    path = tmp_path / "expected.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(str(path))
    else:
        path.touch()
        os.truncate(str(path), _state.READ_LIMIT + 1)
    with pytest.raises(_state.StateError, match="no file of ours"):
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
