# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which verdict is believed, by whom it is written, its form and its age; everything else is unknown."""

from __future__ import annotations

import itertools
import json
import os
import time

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict

AT = verdict.Now(wall=1_800_000_000.0, uptime=5000.0, boot_id="b1")
READY = {
    "schema": 1,
    "ok": True,
    "state": "ready",
    "findings": [_finding.Finding("drift", "ok", found="as proved").to_dict()],
    "judged_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(AT.wall - 100)),
    "uptime": 4900.0,
    "boot_id": "b1",
    "collection": "0.1.0",
    "valid_for": 900,
}
FINE = READY["findings"][0]
WITHOUT = {key: value for key, value in READY.items() if key != "uptime"}


def at(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(AT.wall + seconds))


def read(tmp_path, content):
    path = tmp_path / "verdict.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    path.chmod(0o644)
    return verdict.read(str(path), AT, owner=os.geteuid())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (READY, ""),
        ({**READY, "ok": False, "state": "not_ready"}, ""),
        (WITHOUT, ""),
        ({**READY, "uptime": 4100.0}, ""),
        ({**READY, "uptime": 4099.0}, "901 s old and was good for 900 s"),
        ({**READY, "valid_for": 50}, "100 s old and was good for 50 s"),
        ({**READY, "uptime": 5002.0}, "yet to come"),
        ({**READY, "boot_id": "b0"}, "of another boot"),
        ({**READY, "boot_id": ""}, "of another boot"),
        # The clock that nobody sets decides where the verdict has it: a jump of the other is nothing.
        ({**READY, "judged_at": at(86400)}, ""),
        ({**READY, "judged_at": at(-86400)}, ""),
        ({**WITHOUT, "judged_at": at(60)}, "yet to come"),
        ({**WITHOUT, "judged_at": at(-901)}, "901 s old"),
        ({**WITHOUT, "judged_at": "yesterday"}, "cannot be used"),
        ({**READY, "uptime": "x"}, "cannot be used"),
        ({**READY, "uptime": "4900"}, "'4900' is no number"),
        ({**READY, "uptime": True}, "True is no number"),
        ({**READY, "uptime": float("nan")}, "old and was good"),
        ({**READY, "uptime": float("inf")}, "yet to come"),
        ({**READY, "uptime": -float("inf")}, "old and was good"),
        ({**READY, "uptime": 10**400}, "OverflowError"),
        ({**READY, "valid_for": None}, "cannot be used"),
        ({**READY, "valid_for": True}, "True is no number"),
        ({**READY, "valid_for": "900"}, "'900' is no number"),
        ({**READY, "valid_for": -1}, "it is good for -1 s"),
        ({**READY, "valid_for": float("nan")}, "it is good for nan s"),
        ({**READY, "valid_for": float("inf")}, "it is good for inf s"),
        ({**READY, "valid_for": 10**400}, "it is good for 1000"),
        ({**READY, "judged_at": None}, "cannot be used"),
        ({**READY, "judged_at": "2026-13-01T00:00:00Z"}, "is no time"),
        ({**READY, "judged_at": "2026-12-01T00:00:00+01:00"}, "is no time"),
        ({**READY, "findings": []}, "ready beside findings that are not"),
        ({**READY, "findings": [{**FINE, "policy": "report"}]}, "ready beside findings that are not"),
        ({**READY, "findings": [FINE, {**FINE, "state": "fail"}]}, "ready beside findings that are not"),
        ({**READY, "findings": [FINE, {**FINE, "state": "unknown"}]}, "ready beside findings that are not"),
        ({**READY, "findings": [FINE, {**FINE, "state": "fail", "policy": "report"}]}, ""),
        ({**READY, "findings": [FINE, FINE]}, ""),
        *(
            ({**READY, "findings": [FINE, other]}, "a finding that is not of our form")
            for other in (
                None, 1, "x", [], {}, {**FINE, "state": "fine"}, {**FINE, "state": []}, {**FINE, "policy": None},
                {**FINE, "found": 7}, {**FINE, "check": None}, {**FINE, "action": True}, {**FINE, "subject": "host"},
                {**FINE, "subject": {"kind": "host"}}, {key: FINE[key] for key in FINE if key != "expected"},
            )
        ),
        ({**READY, "schema": 2}, "its schema is 2, this gate reads 1"),
        ({**READY, "state": "fine"}, "its state is 'fine'"),
        ({**READY, "ok": False}, "its state is 'ready' with ok False"),
        ({**READY, "ok": True, "state": "unknown"}, "with ok True"),
        ({**READY, "findings": None}, "cannot be used"),
        ({"schema": 1}, "cannot be used"),
        ([], "cannot be used"),
        ("", "cannot be used"),
        (json.dumps(READY)[:-20], "cannot be used"),
        ("[" * 100000, "cannot be used"),
        ("\xff\xfe", "cannot be used"),
    ],
)  # fmt: skip
def test_a_verdict_holds_or_is_unknown_with_the_reason(tmp_path, content, says):
    found = read(tmp_path, content)
    if not says:
        assert found == content
    else:
        assert (found["ok"], found["state"]) == (False, "unknown")
        assert says in found["findings"][0]["found"]


def test_no_verdict_is_unknown(tmp_path):
    found = verdict.read(str(tmp_path / "verdict.json"), AT, owner=os.geteuid())
    assert found["state"] == "unknown"
    assert "no " in found["findings"][0]["found"]


@pytest.mark.parametrize("how", ["others", "group", "owner", "link", "fifo", "folder"])
def test_a_file_that_another_can_write_is_not_believed(tmp_path, how):
    path = tmp_path / "verdict.json"
    real = tmp_path / "real"
    owner = os.geteuid()
    if how == "fifo":
        os.mkfifo(str(path))
    elif how == "folder":
        path.mkdir()
    else:
        real.write_text(json.dumps(READY))
        real.chmod({"others": 0o646, "group": 0o664}.get(how, 0o644))
        if how == "link":
            path.symlink_to(real)
        else:
            real.rename(path)
        owner += how == "owner"
    began = time.monotonic()
    found = verdict.read(str(path), AT, owner=owner)
    assert found["state"] == "unknown"
    assert time.monotonic() - began < 1, "a pipe without a writer must not be waited for"


@pytest.mark.parametrize(
    ("mode", "above", "says"),
    [
        (0o755, 0o755, ""),
        (0o755, 0o1777, ""),
        (0o775, 0o755, "can be changed by others than root"),
        (0o777, 0o755, "can be changed by others than root"),
        (0o1777, 0o755, "can be changed by others than root"),
        (0o755, 0o775, "can be changed by others than root"),
    ],
)
def test_a_folder_in_which_another_can_put_a_file_is_not_believed(tmp_path, mode, above, says):
    folder = tmp_path / "run" / "gpufleet"
    folder.mkdir(parents=True)
    path = folder / "verdict.json"
    path.write_text(json.dumps(READY))
    path.chmod(0o644)
    folder.chmod(mode)
    folder.parent.chmod(above)
    found = verdict.read(str(path), AT, owner=os.geteuid())
    assert found["state"] == ("unknown" if says else "ready")
    assert not says or says in found["findings"][0]["found"]


@pytest.mark.parametrize("states", [states for count in (0, 1, 2) for states in itertools.product(
    itertools.product(_finding.STATES, _finding.POLICIES), repeat=count)])  # fmt: skip
def test_ready_is_what_every_other_fold_calls_so(states):
    found = [_finding.Finding("x", state, policy=policy, reason="y") for state, policy in states]
    ready = _finding.fold(found) == _finding.READY
    content = {**READY, "findings": [one.to_dict() for one in found], "ok": True, "state": "ready"}
    assert (verdict._stale("x", content, AT) is None) is ready
    assert (verdict.STATES, verdict.POLICIES) == (_finding.STATES, _finding.POLICIES)


def test_the_finding_has_the_form_of_every_other():
    (finding,) = verdict.unknown("verdict-current", "found", "expected")["findings"]
    assert _finding.from_dict(finding).to_dict() == finding


def test_this_moment_is_this_boots():
    now = verdict.now()
    assert now.boot_id and now.uptime > 0 and abs(now.wall - time.time()) < 5
