# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fold and the forms of a Finding."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding as f


def finding(state, policy="block"):
    return f.Finding("a-check", state, policy=policy, reason="because" if state == "not_applicable" else "")


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], "unknown"),
        (["ok"], "ready"),
        (["ok", "warn"], "ready"),
        (["warn"], "ready"),
        (["ok", "unknown"], "unknown"),
        (["ok", "fail"], "not_ready"),
        (["unknown", "fail"], "not_ready"),
        (["not_applicable"], "unknown"),
        (["ok", "not_applicable"], "ready"),
        ([("fail", "report")], "unknown"),
        (["ok", ("fail", "report")], "ready"),
        (["ok", ("unknown", "report")], "ready"),
    ],
)
def test_fold(states, expected):
    findings = [finding(*(state if isinstance(state, tuple) else (state,))) for state in states]
    assert f.fold(findings) == expected
    verdict = f.verdict(findings)
    assert verdict["ok"] is (expected == "ready")
    assert len(verdict["findings"]) == len(states)


def test_odd_bytes_are_shown_in_the_json_form():
    one = f.Finding(
        "a-check", "ok", f.Subject("nic", "\udcff"), found="caf\udce9 ü", evidence={"\ud800": [("\udce9", 1)]}
    )
    form = one.to_dict()
    assert (form["id"], form["found"]) == ("a-check/nic/\\udcff", "caf\\udce9 ü")
    assert form["evidence"] == {"\\ud800": [["\\udce9", 1]]}
    facts = {"watts": float("nan"), "most": [float("inf"), 1.5]}
    form = f.Finding("a-check", "ok", found=None, expected=7, evidence=facts).to_dict()
    assert (form["found"], form["expected"]) == ("None", "7")
    assert form["evidence"] == {"watts": "nan", "most": ["inf", 1.5]}, "which JSON has no number for"


def test_the_json_form_gives_the_finding_back():
    one = f.Finding(
        "gpu-count",
        "fail",
        f.Subject("gpu", "GPU-1"),
        found="7",
        expected="8",
        action="replace",
        evidence={"a": [1]},
        observed_at="2026-12-01T00:00:00Z",
        valid_for=60,
    )
    assert f.from_dict(one.to_dict()) == one
    assert one.id == "gpu-count/gpu/GPU-1"
    assert finding("ok").id == "a-check/host"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"state": "good"}, "state 'good' is none of ok"),
        ({"action": "pray"}, "action 'pray' is none of none"),
        ({"policy": "ignore"}, "policy 'ignore' is none of block"),
        ({"state": "not_applicable"}, "needs a reason"),
    ],
)
def test_a_finding_of_no_form_is_refused(change, text):
    with pytest.raises(ValueError, match=text):
        f.Finding(**{"check": "a-check", "state": "ok", **change})


def test_a_subject_of_no_kind_is_refused():
    with pytest.raises(ValueError, match="'rack' is none of host"):
        f.Subject("rack")


def test_the_users_policy_changes_what_blocks():
    findings = [finding("ok"), f.Finding("b-check", "fail")]
    assert f.fold(f.apply_policy(findings, {"b-check": "report"})) == "ready"
    assert f.fold(findings) == "not_ready"
