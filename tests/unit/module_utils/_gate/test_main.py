# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The exit status is the verdict's, whatever becomes of the output; what goes wrong is "could not tell"."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, now
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import verdict as folded
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import archive, main, verdict

#: The gate as its archive starts it, for a folder and an owner of the test's.
GATE = """
import os, sys
sys.path[:0] = {path!r}
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import main, verdict
main.RUN_DIR = {folder!r}
verdict.read.__defaults__ = (os.geteuid(),)
sys.exit(main.main(sys.argv[1:], {{"build": "b", "directory": {folder!r}, "valid_for": 900}}))
"""
FINE = Finding("drift", "ok", found="as proved")
BAD = Finding("gpu-count", "fail", found="7 of 8 \u00e9\x1b[31m\n" + "x" * 9000, expected="8", action="replace")
LATE = Finding("pull", "warn", found="failed", policy="report")
STATES = {"ready": [FINE, LATE], "not_ready": [FINE, BAD], "unknown": [FINE, Finding("xid", "unknown")]}


@pytest.fixture
def gate(tmp_path):
    """Runs the gate, as a shell does, on a host with such a verdict."""
    script = tmp_path / "gate.py"
    script.write_text(GATE.format(path=[one for one in sys.path if one], folder=str(tmp_path)))

    def run(words, state="ready", **environment):
        at = verdict.now()
        made = {**folded(STATES[state]), "schema": 1, "judged_at": now(), "uptime": at.uptime, "boot_id": at.boot_id}
        (tmp_path / verdict.FILE).write_text(json.dumps({**made, "valid_for": 900}))
        (tmp_path / verdict.FILE).chmod(0o644)
        tmp_path.chmod(0o755)
        return subprocess.run(
            ["sh", "-c", f'exec "{sys.executable}" -B "$0" {words}', str(script)],
            env={**os.environ, **environment}, capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    return run


@pytest.mark.parametrize(
    ("words", "state", "status", "says"),
    [
        ("", "ready", 0, ""),
        ("", "not_ready", 1, ""),
        ("", "unknown", 2, ""),
        (">&-", "ready", 0, ""),
        (">&-", "not_ready", 1, ""),
        (">&- 2>&- <&-", "not_ready", 1, ""),
        (">/dev/full", "ready", 0, "the answer cannot be written"),
        ("--json >/dev/full", "not_ready", 1, "the answer cannot be written"),
        ("--help >/dev/full", "not_ready", 0, "the answer cannot be written"),
        ("--fine", "ready", 2, "--fine is no option"),
        ("--fine 2>&-", "ready", 2, ""),
        ("fine", "ready", 2, "fine: is no command"),
        ("--within=60", "ready", 2, "--fresh beside it"),
        ("--fresh --within=-1", "ready", 2, "a number of seconds is needed"),
        ("--fresh --within=1 --within=2", "ready", 2, "a number of seconds is needed"),
        ("metrics", "ready", 2, "--to= is needed"),
        ("metrics --too=/x", "ready", 2, "--too is no option; there are --to="),
        ("metrics --to=x", "ready", 2, "an absolute path is needed"),
        ("metrics --to=/proc/x", "ready", 2, "No such file"),
        ("slurm-wiring", "ready", 2, "--scontrol= is needed"),
        ("node-condition", "ready", 2, "--node= is needed"),
        ("node-condition --node=n1", "ready", 2, "KUBERNETES_SERVICE_HOST"),
        ("node-condition --node=n1 --every=nan", "ready", 2, "--every=nan: a number of seconds"),
        ("pulled --result=success --valid-for=-1", "ready", 2, "--valid-for=-1: a number of seconds"),
    ],
)
def test_the_exit_status(gate, words, state, status, says):
    done = gate(words, state)
    error = done.stderr.decode()
    assert (done.returncode, says in error, "Traceback" in error) == (status, True, False), error
    assert bool(error) is bool(says)


def test_a_person_reads_what_the_playbooks_print(gate):
    said = gate("", "not_ready", PYTHONIOENCODING="ascii").stdout.decode("ascii").splitlines()
    assert said[0] == "not ready"
    assert said[1].startswith("  fail gpu-count: 7 of 8 \\xe9\\x1b[31m xxx") and said[1].endswith("x...")
    assert gate("").stdout.decode() == "ready\n  warn pull: failed [report only]\n"
    assert main._words(folded([Finding("gpu-count", "fail", found="7", expected="8", action="replace")])) == (
        "not ready\n  fail gpu-count: 7 (expected 8) -> replace\n"
    )


@pytest.mark.parametrize(
    ("change", "stands"),
    [
        ({}, True),
        ({"uptime": -61}, False),
        ({"uptime": -59}, True),
        ({"state": "not_ready", "ok": False}, False),
        ({"looked_by": "another:/etc/gpufleet"}, False),
        ({"looked_by": None}, False),
        ({"boot_id": "another"}, False),
        ({"valid_for": float("inf")}, False),
    ],
)
def test_a_verdict_stands_only_where_a_look_would_say_the_same(tmp_path, monkeypatch, change, stands):
    monkeypatch.setattr(main, "RUN_DIR", str(tmp_path))
    monkeypatch.setattr(verdict.read, "__defaults__", (os.geteuid(),))
    tmp_path.chmod(0o755)
    records = tmp_path / "records"
    records.mkdir()
    (records / "expected.json").write_text("{}")
    installed = {"build": "b", "directory": str(records)}
    at = verdict.now()
    made = {**folded(STATES["ready"]), "schema": 1, "judged_at": now(), "uptime": 0.0, "boot_id": at.boot_id,
            "valid_for": 900, "looked_by": main._looker(installed), **change}  # fmt: skip
    (tmp_path / verdict.FILE).write_text(json.dumps({**made, "uptime": at.uptime + made["uptime"]}))
    (tmp_path / verdict.FILE).chmod(0o644)
    said = main._standing(installed, 60)
    assert bool(said) is stands
    if said:
        assert [item["check"] for item in said["findings"]] == ["drift", "pull", "verdict-standing"]
        assert (said["state"], said["findings"][-1]["state"], said["findings"][-1]["policy"]) == (
            "ready",
            "ok",
            "report",
        )
    (records / "nowhere").symlink_to(records / "no such file")
    before = main._looker(installed)
    (records / "expected.json").write_text("{ }")
    assert main._looker(installed) != before
    assert main._standing(installed, 60) is None


def test_an_output_that_nobody_reads_holds_nobody(gate, tmp_path):
    gate("")
    script = f'exec "{sys.executable}" -B "$0" --json 2>&1'
    held = tmp_path / verdict.FILE
    made = json.loads(held.read_text())
    made["findings"][0]["found"] = "x" * 200000
    held.write_text(json.dumps(made))
    began = time.monotonic()
    one = subprocess.Popen(["sh", "-c", script, str(tmp_path / "gate.py")], stdout=subprocess.PIPE)
    try:
        assert one.wait(20) == 2
    finally:
        one.kill()
        one.stdout.close()
    assert time.monotonic() - began < 15


def test_a_gate_whose_modules_are_broken_does_not_say_not_ready(tmp_path):
    script = Path(str(tmp_path / "__main__.py"))
    script.write_text(archive.MAIN.format("no.such.module"))
    done = subprocess.run([sys.executable, "-B", str(script)], stderr=subprocess.PIPE, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.decode() == "gpufleet-gate: ModuleNotFoundError: No module named 'no'\n"
