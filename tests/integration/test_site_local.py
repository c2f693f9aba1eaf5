# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The main job on this machine, for real: plan, install, prove, record, drift, and what is said of a damaged one.

One environment serves all tests of the file, in their order: installing torch is what costs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUDGET = 25  # tasks that run on a converged host


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("site")


def play(place, playbook, *args, **variables):
    """Run a playbook of ours from a folder that is not the clone; its exit code, output and report."""
    extra = {"pytorch_venv": str(place / "venv"), "gate_directory": str(place / "state"), "gate_install": False}
    extra.update(variables)
    done = subprocess.run(
        ["ansible-playbook", str(ROOT / f"{playbook}.yml"), "-i", str(ROOT / "inventories/local"), *args]
        + ["-e", json.dumps(extra)],
        cwd=place,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    report = place / "reports" / playbook / "latest.json"
    return done.returncode, done.stdout + done.stderr, json.loads(report.read_text()) if report.exists() else None


def recap(output, host="localhost"):
    line = re.search(rf"^{host} +: (.*)$", output, re.M)
    assert line, output
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", line.group(1))}


def test_plan_shows_and_changes_nothing(place):
    remembered = Path("/run/gpufleet/kernel-log.json")  # root's
    before = remembered.stat().st_mtime_ns if remembered.exists() else None
    code, output, report = play(place, "plan")
    assert code == 0, output
    assert (remembered.stat().st_mtime_ns if remembered.exists() else None) == before
    assert "torch==2.13.0+cpu" in output
    assert report is None
    assert not (place / "venv").exists() and not (place / "state").exists()


def test_check_mode_predicts_and_changes_nothing(place):
    code, output, report = play(place, "site", "--check")
    assert code == 0, output
    assert recap(output)["changed"] >= 1
    assert "site: 0 of 1 hosts ready" in output, "a prediction is no proof"
    assert report is None
    assert not (place / "venv").exists() and not (place / "state").exists()


def test_drift_of_a_host_never_proved_is_unknown(place):
    code, output, report = play(place, "drift")
    assert code != 0, output
    assert report["hosts"]["localhost"]["state"] == "unknown"
    assert [finding["check"] for finding in report["hosts"]["localhost"]["findings"]] == ["never-proved"]


def test_site_installs_proves_and_records(place):
    code, output, report = play(place, "site")
    assert code == 0, output
    assert report["ok"] is True
    assert "site: 1 of 1 hosts ready" in output
    expected = json.loads((place / "state" / "expected.json").read_text())
    assert expected["plan"]["torch"]["requirement"] == "torch==2.13.0+cpu"
    assert expected["baseline"]["accelerator"] == "cpu"
    assert expected["baseline"]["environment"]["torch_version"] == "2.13.0+cpu"
    assert expected["baseline"]["rates"]


def test_a_second_site_changes_nothing_within_the_budget(place):
    before = (place / "state" / "expected.json").read_text()
    code, output, report = play(place, "site")
    assert code == 0, output
    counts = recap(output)
    validations = output.count("TASK [gpufleet.pytorch.") and len(re.findall(r"TASK \[.*Validating arguments", output))
    assert counts["changed"] == 0, output
    assert counts["ok"] - validations <= BUDGET, output
    assert (place / "state" / "expected.json").read_text() == before
    assert report["ok"] is True


def test_verify_proves_again(place):
    code, output, report = play(place, "verify")
    assert code == 0, output
    assert report["ok"] is True


def test_drift_of_a_proved_host_is_ready(place):
    code, output, report = play(place, "drift")
    assert code == 0, output
    assert report["hosts"]["localhost"]["state"] == "ready"


def test_a_users_environment_is_proved_and_never_changed(place):
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in (place / "venv").rglob("*") if path.is_file())
    python = str(place / "venv" / "bin" / "python")
    code, output, report = play(
        place,
        "site",
        pytorch_python=python,
        pytorch_venv=str(place / "other"),
        gate_directory=str(place / "other-state"),
    )
    assert code == 0, output
    assert report["ok"] is True
    assert not (place / "other").exists()
    after = sorted((str(path), path.lstat().st_mtime_ns) for path in (place / "venv").rglob("*") if path.is_file())
    assert after == before
    baseline = json.loads((place / "other-state" / "expected.json").read_text())["baseline"]
    assert baseline["environment"]["python"] == python


@pytest.fixture
def damaged(place):
    (victim,) = (place / "venv").glob("lib/python3*/site-packages/torch/lib/libtorch_cpu.so")
    hidden = place / victim.name
    victim.rename(hidden)
    yield victim
    if not victim.exists():
        hidden.rename(victim)


def test_a_deleted_shared_object_fails_the_proof_and_the_drift_by_name(place, damaged):
    code, output, report = play(place, "verify")
    assert code != 0, output
    assert report["hosts"]["localhost"]["state"] == "not_ready"
    assert "libtorch_cpu.so" in json.dumps(report["hosts"]["localhost"]["findings"])
    code, output, report = play(place, "drift")
    assert code != 0, output
    assert report["hosts"]["localhost"]["state"] == "not_ready"
    assert "libtorch_cpu.so" in json.dumps(report["hosts"]["localhost"]["findings"])


@pytest.mark.parametrize(
    ("path", "check"),
    [
        ("numpy/__init__.py", "environment-whole"),
        ("torch/nn/functional.py", "environment-whole"),
        ("sympy/core/add.py", "environment-whole"),
        ("networkx-*.dist-info/METADATA", "drift-packages"),
    ],
)
def test_drift_sees_any_changed_file_and_package(place, path, check):
    (victim,) = (place / "venv").glob("lib/python3*/site-packages/" + path)
    whole = victim.read_text()
    version = re.search(r"^Version: (.*)$", whole, re.M) if "dist-info" in path else None
    changed = whole.replace(version.group(0), "Version: 1.0") if version else whole + "\nraise RuntimeError\n"
    victim.write_text(changed)
    try:
        code, output, report = play(place, "drift")
    finally:
        victim.write_text(whole)
    assert code != 0, output
    found = [finding["check"] for finding in report["hosts"]["localhost"]["findings"] if finding["state"] == "fail"]
    assert check in found, output


def test_drift_in_check_mode_judges_the_same_and_leaves_the_report_alone(place):
    _code, _output, before = play(place, "drift")
    code, output, after = play(place, "drift", "--check")
    assert code == 0 and "drift: 1 of 1 hosts ready" in output
    assert after == before


def test_site_repairs_its_own_environment(place, damaged):
    code, output, report = play(place, "site")
    assert code == 0, output
    assert damaged.exists()
    assert report["ok"] is True


def test_a_truncated_record_is_unknown_and_says_what_to_do(place):
    path = place / "state" / "expected.json"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    try:
        code, output, report = play(place, "drift")
    finally:
        path.write_text(whole)
    assert code != 0, output
    (finding,) = report["hosts"]["localhost"]["findings"]
    assert (finding["check"], finding["state"]) == ("expected-readable", "unknown")
    assert "prove the host again" in finding["found"]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"pytorch_version": "2.99.0"}, ["unknown-torch", "2.99.0"]),
        ({"pytorch_version": "two"}, ["unknown-torch", "two"]),
        ({"pytorch_version": 2.1}, ["2.1", "quote"]),
        ({"pytorch_versoin": "2.13.0"}, ["pytorch_versoin", "did you mean pytorch_version"]),
        ({"gpufleet_accelerator": "cuda"}, ["accelerator-present", "0 NVIDIA GPUs"]),
        ({"gpus_expected": 8}, ["accelerator-present", "8 GPUs by gpus_expected"]),
        ({"gate_directory": "relative/state"}, ["an absolute path is needed"]),
        ({"pytorch_python": "/"}, ["interpreter-usable", "is a folder"]),
    ],
)
def test_bad_wishes_are_refused_and_nothing_is_done(place, tmp_path, variables, words):
    there = {"pytorch_venv": str(tmp_path / "venv"), "gate_directory": str(tmp_path / "state")}
    code, output, _report = play(place, "site", **{**there, **variables})
    assert code != 0, output
    for word in words:
        assert word in output, output
    assert not (tmp_path / "venv").exists() and not (tmp_path / "state").exists()


def test_an_unreachable_host_beside_a_fine_one(place, tmp_path):
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        "all:\n  hosts:\n    gone: {ansible_host: 127.0.0.1, ansible_port: 1, ansible_connection: ssh}\n"
    )
    for limit, expected in (
        ("localhost,gone", {"localhost": "ready", "gone": "unknown"}),
        ("gone", {"gone": "unknown"}),
    ):
        code, output, report = play(place, "site", "-i", str(inventory), "--limit", limit)
        assert code != 0, output
        states = {name: report["hosts"][name]["state"] for name in expected}
        assert states == expected, output
    # The limited run kept the host that it did not judge.
    assert report["hosts"]["localhost"]["state"] == "ready"
    assert report["ok"] is False


@pytest.mark.parametrize("content", ["print(1)\n", "\x00\xff", "{}"])
def test_a_file_that_is_no_lock_of_ours_is_never_replaced(place, tmp_path, content):
    mine = tmp_path / "mine.py"
    mine.write_bytes(content.encode("latin-1"))
    code, output, _report = play(place, "plan", plan_lock=str(mine))
    assert code != 0, output
    assert mine.read_bytes() == content.encode("latin-1")
    assert str(mine) in output and "lock" in output


def test_a_misspelt_variable_is_told_by_the_plan_too(place):
    code, output, _report = play(place, "plan", gpus_expectd=8)
    assert code != 0 and "did you mean gpus_expected" in output


def test_every_conflict_is_shown_at_once_also_where_nothing_can_be_locked(place, tmp_path):
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        "all:\n  hosts:\n    bad: {pytorch_version: '2.99', plan_group: b}\n"
        "    worse: {pytorch_version: two, plan_group: c}\n"
        "  vars: {ansible_connection: local, ansible_python_interpreter: '{{ ansible_playbook_python }}'}\n"
    )
    code, output, _report = play(place, "plan", "-i", str(inventory), plan_lock=str(tmp_path / "lock.yml"))
    assert code != 0, output
    assert "localhost: torch==2.13.0+cpu" in output
    assert "found torch '2.99'" in output and "found torch 'two'" in output
    assert "nothing is locked while" in output
    assert "lost before the end" not in output and "undefined" not in output
    assert not (tmp_path / "lock.yml").exists()


def test_a_rollout_does_what_site_does(place):
    before = (place / "state" / "expected.json").read_text()
    code, output, report = play(place, "rollout")
    assert code == 0, output
    assert report["hosts"]["localhost"]["state"] == "ready"
    assert (place / "state" / "expected.json").read_text() == before
    assert not (place / "state" / "rollout.json").exists()


def test_a_failed_rollout_goes_back_to_what_was_proved(place, tmp_path):
    """The change breaks torch for real: the proof fails, the environment is repaired and proved, the host stays out."""
    (victim,) = (place / "venv").glob("lib/python3*/site-packages/torch/nn/functional.py")
    whole = victim.read_text()
    change = tmp_path / "change.yml"
    change.write_text(
        f"- name: Break it\n  ansible.builtin.lineinfile:\n    path: {victim}\n    line: raise RuntimeError\n"
    )
    code, output, report = play(place, "rollout", rollout_tasks=str(change), rollout_rollback=True)
    assert code != 0, output
    assert victim.read_text() == whole, output
    host = report["hosts"]["localhost"]
    assert host["state"] == "not_ready"
    said = next(finding["found"] for finding in host["findings"] if finding["check"] == "rollout")
    assert said.startswith("failed at proving") and "back to its last proved plan, and proved" in said
    assert (place / "state" / "rollout.json").exists(), "the host is still this rollout's"
    code, output, report = play(place, "rollout")
    assert code == 0, output
    assert report["ok"] is True


def test_tags_that_match_nothing_judge_no_host(place):
    code, output, report = play(place, "drift", "--tags", "nothing")
    assert code == 2, output
    assert report["hosts"]["localhost"]["state"] == "unknown"
