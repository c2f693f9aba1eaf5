# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From registered results to the table and the file."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, verdict
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import collect, plan, store, table, variables

OK = Finding("matmul", "ok", found="2 CPU processes").to_dict()
BAD = Finding("gpu-count", "fail", found="7", expected="8", action="drain and inspect").to_dict()


@pytest.mark.parametrize(
    ("results", "finished", "failure", "expected"),
    [
        ({"verify_result": {"findings": [OK]}}, True, {}, [("matmul", "ok")]),
        ({}, True, {}, []),
        ({}, False, {}, [("host-finished", "unknown")]),
        ({"plan_observed": {"unreachable": True, "msg": "timed out"}}, True, {}, [("host-reachable", "unknown")]),
        ({}, True, {"task": "Install", "msg": "no space"}, [("task-failed", "fail")]),
        ({"verify_result": {"findings": [BAD]}}, True, {"task": "Prove", "msg": "bad"}, [("gpu-count", "fail")]),
        ({"verify_result": {"skipped": True}, "plan_observed": "text"}, True, {}, []),
        ({"plan_observed": {"findings": [BAD]}}, True, {}, [("gpu-count", "fail")]),
    ],
)
def test_host_findings(results, finished, failure, expected):
    found = collect.host_findings(results, finished=finished, failure=failure)
    assert [(item.check, item.state) for item in found] == expected
    assert all(item.observed_at for item in found)


NO_ANSWER = {
    "task": "Observe",
    "msg": "No start of json char found",
    "stderr": "Traceback\nSyntaxError: invalid syntax",
}


@pytest.mark.parametrize(
    ("failure", "found", "expected"),
    [
        (
            {**NO_ANSWER, "python": "Python 3.7.16\n"},
            "Observe: the host's Python 3.7.16 is too old for Ansible's modules",
            "Python 3.8 or newer, named by ansible_python_interpreter",
        ),
        (
            {**NO_ANSWER, "python": "Python 3.11.2"},
            "Observe: No start of json char found: SyntaxError: invalid syntax",
            "every task done",
        ),
        ({"task": "Install", "msg": "no space", "stderr": "", "python": ""}, "Install: no space", "every task done"),
    ],
)
def test_a_failed_task_says_what_was_found_and_expected(failure, found, expected):
    (finding,) = collect.host_findings({}, finished=True, failure=failure)
    assert (finding.found, finding.expected) == (found, expected)


@pytest.mark.parametrize(("later", "count"), [("ok", 1), ("fail", 2)])
def test_what_two_roles_say_alike_is_said_once(later, count):
    results = {
        "pytorch_result": {"findings": [Finding("wheel-as-planned", "ok", found="by its files").to_dict()]},
        "verify_result": {"findings": [OK, Finding("wheel-as-planned", later, found="by its import").to_dict()]},
    }
    found = collect.host_findings(results, finished=True, failure={})
    said = [item.found for item in found if item.check == "wheel-as-planned"]
    assert len(said) == count and "by its import" in said


def test_the_plan_says_again_what_gpu_info_said_of_one_host():
    results = {"plan_observed": {"findings": [BAD]}, "verify_result": {"findings": [OK]}}
    planned = {"findings": [BAD], "plan": {"status": "ok", "torch": {"requirement": "torch==2.13.0"}}}
    found = collect.host_findings(results, finished=True, failure={}, planned=planned)
    assert [item.check for item in found] == ["gpu-count", "plan", "matmul"]


REMAP = Finding("row-remap-pending", "fail", found="row remap pending", action="reset GPU").to_dict()


def test_the_health_that_gpu_info_judged_stands_beside_the_plan():
    results = {"plan_observed": {"findings": [BAD, REMAP]}}
    found = collect.host_findings(results, finished=True, failure={}, planned={"findings": [BAD]})
    assert [item.check for item in found] == ["gpu-count", "row-remap-pending"]
    assert verdict(found)["state"] == "not_ready"


def test_a_look_from_before_the_driver_was_changed_says_nothing_of_the_new_one():
    results = {"plan_observed": {"findings": [REMAP]}, "driver_result": {"changed": True, "findings": [OK]}}
    found = collect.host_findings(results, finished=True, failure={}, planned={"findings": [BAD]})
    assert [item.check for item in found] == ["gpu-count", "matmul"]


def test_the_user_decides_which_check_blocks():
    results = {"verify_result": {"findings": [OK, REMAP]}, "gpufleet_policy": {"row-remap-pending": "report"}}
    found = collect.host_findings(results, finished=True, failure={})
    assert [item.policy for item in found] == ["block", "report"]
    assert verdict(found)["ok"]


def test_a_conflict_becomes_a_finding_with_its_remedies():
    conflict = {
        "status": "conflict",
        "conflicts": [{"rule": "driver-too-old", "subject": "driver", "found": "550.163.01", "needs": "580"}],
        "remedies": ["upgrade the driver to 580 or newer"],
    }
    (finding,) = plan.findings(conflict)
    assert (finding.state, finding.found) == ("fail", "driver-too-old: 550.163.01, needs 580")
    assert finding.evidence["remedies"] == ["upgrade the driver to 580 or newer"]
    assert "  1. upgrade the driver to 580 or newer" in plan.lines(conflict)


def test_the_table_names_bad_hosts_first_and_counts_the_many_good():
    hosts = {f"gpu{number:02}": verdict([Finding("matmul", "ok", found="fine")]) for number in range(30)}
    hosts["gpu99"] = verdict([Finding("gpu-count", "fail", found="7", expected="8", action="drain and inspect")])
    assert table.render("site", hosts) == [
        "site: 30 of 31 hosts ready",
        "  gpu99  not ready  fail gpu-count: 7 (expected 8) -> drain and inspect",
        "  and 30 ready hosts",
    ]


def test_a_ready_host_says_what_it_runs_and_how_much_was_checked():
    found = [Finding("plan", "ok", found="torch==2.13.0+cu130"), Finding("matmul", "ok", found="fine")]
    assert table.render("site", {"a": verdict(found)})[1:] == ["  a     ready      torch==2.13.0+cu130; 2 checks ok"]
    odd = [Finding("drift", "ok", found="as \x1b[31mproved\n now")]
    assert table.render("site", {"a": verdict(odd)})[1:] == ["  a     ready      as \\x1b[31mproved now; 1 check ok"]


def test_a_folded_verdict_counts_what_was_folded():
    found = [Finding("checks", "ok", found="57 checks ok"), Finding("open-files", "warn", found="1024")]
    assert table.render("report", {"a": verdict(found)})[2:] == ["                   57 checks ok"]


def test_unknown_is_never_shown_as_ok():
    lines = table.render("site", {"a": verdict([]), "b": verdict([Finding("nvml", "unknown", found="no answer")])})
    assert lines == [
        "site: 0 of 2 hosts ready",
        "  a     unknown    no finding",
        "  b     unknown    unknown nvml: no answer",
    ]


def test_a_limited_run_keeps_the_other_hosts_with_their_age(tmp_path):
    path = str(tmp_path / "site" / "latest.json")
    old = {"ok": True, "state": "ready", "findings": [], "judged_at": "2026-11-01T00:00:00Z"}
    store.update(path, {"a": old, "b": old, "gone": old}, known={"a", "b", "gone"})
    content = store.update(path, {"a": {**old, "ok": False, "judged_at": "2026-12-01T00:00:00Z"}}, known={"a", "b"})
    assert content == json.loads((tmp_path / "site" / "latest.json").read_text())
    assert content["ok"] is False
    assert content["hosts"]["b"] == old
    assert content["hosts"]["a"]["judged_at"] == "2026-12-01T00:00:00Z"
    assert "gone" not in content["hosts"]


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"hosts": []}', '{"hosts": {"a": 1}}'])
def test_a_damaged_report_is_replaced(tmp_path, damaged):
    (tmp_path / "latest.json").write_text(damaged)
    content = store.update(str(tmp_path / "latest.json"), {"b": {"ok": True}}, known={"a", "b"})
    assert content == {"ok": True, "hosts": {"b": {"ok": True}}}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pytorch_versoin", "pytorch_version"),
        ("pytroch_version", "pytorch_version"),
        ("gpus_expectd", "gpus_expected"),
        ("pytorch_version", None),
        ("pytorch_mirror_of_our_site", None),
        ("play_group", None),
        ("ansible_host", None),
        ("driver", None),
        ("_pytorch_versoin", None),
    ],
)
def test_misspelt(name, meant):
    known = {"pytorch_version", "gpus_expected", "plan_group", "driver_policy"}
    assert variables.misspelt({name: "a wish"}, known) == ({name: meant} if meant else {})


@pytest.mark.parametrize("value, said", [({"changed": False}, {}), (True, {"gate_installed": "gate_install"})])
def test_what_an_earlier_playbook_has_registered_is_no_misspelt_wish(value, said):
    assert "gate_installed" in variables.made() and "gpufleet_plan" in variables.made()
    assert variables.misspelt({"gate_installed": value}, {"gate_install"}, variables.made()) == said


def test_a_row_is_one_line_whatever_a_message_holds():
    found = Finding("task-failed", "fail", found="one\n  two" + "x" * 9999)
    (row,) = table.render("site", {"a": verdict([found])})[1:]
    assert "\n" not in row and "one two" in row
    assert row.endswith("...") and len(row) < 600
