# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An acknowledgement holds for what was found, until its day, and is always counted."""

from __future__ import annotations

import calendar
import json
import os
import time

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject, apply_policy, fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import acknowledge
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import StateError

NOW = float(calendar.timegm(time.strptime("2026-12-15 12:00", "%Y-%m-%d %H:%M")))
BAD = Finding("ecc-mode", "fail", Subject("gpu", "GPU-1"), found="ECC is off", action="fix configuration")
FINE = Finding("drift", "ok", found="as proved")
ENTRY = {
    "id": "ecc-mode/gpu/GPU-1",
    "by": "Jo",
    "until": "2026-12-31",
    "reason": "the vendor's test",
    "state": "fail",
    "found": "ECC is off",
}


@pytest.mark.parametrize(
    ("change", "findings", "state", "evidence"),
    [
        ({}, [BAD, FINE], "ready", {"held": [BAD.id], "other": [], "expired": []}),
        ({"until": "2026-12-15"}, [BAD, FINE], "ready", {"held": [BAD.id], "other": [], "expired": []}),
        ({"until": "2026-12-15T12:00:01Z"}, [BAD, FINE], "ready", {"held": [BAD.id], "other": [], "expired": []}),
        ({"until": "2026-12-15T12:00:00Z"}, [BAD, FINE], "not_ready", {"held": [], "other": [], "expired": [BAD.id]}),
        ({"until": "2026-12-14"}, [BAD, FINE], "not_ready", {"held": [], "other": [], "expired": [BAD.id]}),
        ({"until": "2026-12-14"}, [FINE], "ready", {"held": [], "other": [], "expired": [BAD.id]}),
        ({"found": "ECC is on"}, [BAD, FINE], "not_ready", {"held": [], "other": [BAD.id], "expired": []}),
        ({"state": "warn"}, [BAD, FINE], "not_ready", {"held": [], "other": [BAD.id], "expired": []}),
        ({}, [BAD], "ready", {"held": [BAD.id], "other": [], "expired": []}),
        ({"found": "ECC is on"}, [BAD], "not_ready", {"held": [], "other": [BAD.id], "expired": []}),
        ({"id": "ecc-mode/gpu/GPU-2"}, [BAD, FINE], "not_ready", None),
        ({}, [FINE], "ready", None),
    ],
)
def test_an_acknowledgement_holds_for_what_was_found_until_its_day(change, findings, state, evidence):
    found = acknowledge.apply(findings, [{**ENTRY, **change}], NOW)
    assert fold(found) == state
    counted = [item for item in found if item.check == "acknowledgements"]
    assert [dict(item.evidence) for item in counted] == ([evidence] if evidence else [])
    assert len(found) == len(findings) + len(counted), "nothing is hidden"
    assert all(item.state == "warn" for item in counted)


def test_an_acknowledged_finding_says_by_whom_and_the_users_policy_does_not_undo_it():
    found = apply_policy(acknowledge.apply([BAD, FINE], [ENTRY], NOW), {"ecc-mode": "block"})
    assert found[0].policy == "report"
    assert found[0].state == "fail"
    assert "Jo until 2026-12-31: the vendor's test" in found[0].reason


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"schema": 2, "acknowledged": []}',
        json.dumps({"schema": 1, "acknowledged": [{**ENTRY, "until": "some day"}]}),
        json.dumps({"schema": 1, "acknowledged": [{**ENTRY, "by": None}]}),
        json.dumps({"schema": 1, "acknowledged": [{"id": "x"}]}),
        json.dumps({"schema": 1, "acknowledged": {"id": "x"}}),
        json.dumps({"schema": 1, "acknowledged": [ENTRY, None]}),
        json.dumps({"schema": 1, "acknowledged": [{**ENTRY, "until": "2026-12-31T12:00:00+01:00"}]}),
        json.dumps({"schema": 1, "acknowledged": [{**ENTRY, "until": 1798675200}]}),
        "[" * 100000,
    ],
)
def test_a_file_that_cannot_be_used_acknowledges_nothing_and_is_said(tmp_path, content):
    (tmp_path / "acknowledged.json").write_text(content)
    with pytest.raises(StateError, match="no acknowledgement holds"):
        acknowledge.read(str(tmp_path))


@pytest.mark.parametrize("kind", ["fifo", "folder", "others"])
def test_what_is_no_file_of_ours_acknowledges_nothing(tmp_path, kind):
    path = tmp_path / "acknowledged.json"
    if kind == "others":
        if os.geteuid() != 0:
            pytest.skip("only root does not believe what others can write")
        path.write_text(json.dumps({"schema": 1, "acknowledged": [ENTRY]}))
        path.chmod(0o666)
    else:
        (os.mkfifo if kind == "fifo" else os.mkdir)(str(path))
    with pytest.raises(StateError, match="no acknowledgement holds"):
        acknowledge.read(str(tmp_path))


def test_what_is_added_is_read_again_and_what_expired_goes(tmp_path):
    (tmp_path / "acknowledged.json").write_text(
        json.dumps({"schema": 1, "acknowledged": [{**ENTRY, "id": "x/host", "until": "2026-12-01"}]})
    )
    args = (str(tmp_path), [BAD, FINE], [BAD.id], "Jo", "2026-12-31", "the vendor's test", NOW)
    before, after = acknowledge.add(*args)
    assert [item["id"] for item in before["acknowledged"]] == ["x/host"]
    assert after["acknowledged"] == [ENTRY]
    (tmp_path / "acknowledged.json").write_text(json.dumps(after))
    assert acknowledge.read(str(tmp_path)) == [ENTRY]
    before, after = acknowledge.add(*args)
    assert before == after, "a second time changes nothing"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"by": ""}, "drift_accept_by"),
        ({"reason": " "}, "drift_accept_reason"),
        ({"until": ""}, "a day is needed"),
        ({"until": "next week"}, "a day is needed"),
        ({"until": "2026-12-14"}, "which is past"),
        ({"until": "2026-12-31T12:00:00+01:00"}, "a day is needed"),
        ({"until": "2026-12-31 12:00"}, "a day is needed"),
        ({"until": 1798675200}, "a day is needed"),
        ({"until": None}, "a day is needed"),
        ({"until": "9999-12-31"}, "a year is the most"),
        ({"ids": ["drift/host"]}, "no finding of this look"),
    ],
)
def test_what_cannot_be_acknowledged_is_refused(tmp_path, change, says):
    args = {"ids": [BAD.id], "by": "Jo", "until": "2026-12-31", "reason": "why", **change}
    with pytest.raises(StateError, match=says):
        acknowledge.add(str(tmp_path), [BAD, FINE], args["ids"], args["by"], args["until"], args["reason"], NOW)
