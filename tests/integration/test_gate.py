# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A baseline is recorded only of a host that all findings together call ready."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OK = {"check": "matmul", "state": "ok", "subject": {"kind": "host"}}
BAD = {"check": "row-remap-pending", "state": "fail", "subject": {"kind": "gpu", "key": "GPU-1"}}
UNKNOWN = {**BAD, "state": "unknown"}
REPORTED = {**BAD, "policy": "report"}


@pytest.mark.parametrize(
    ("seen", "recorded"),
    [([OK], True), ([OK, BAD], False), ([OK, UNKNOWN], False), ([OK, REPORTED], True), ([], False)],
)
def test_what_any_role_found_counts(tmp_path, seen, recorded):
    state = tmp_path / "state"
    tasks = [
        {"ansible.builtin.set_fact": {"plan_observed": {"findings": [f for f in seen if f is not OK]}}},
        {"ansible.builtin.set_fact": {"verify_result": {"findings": [f for f in seen if f is OK]}}},
        {
            "gpufleet.pytorch.gpu_drift": {
                "state": "recorded",
                "directory": str(state),
                "python": sys.executable,
                "plan": {"status": "ok", "accelerator": "cpu"},
                "proof": {"devices": []},
            }
        },
    ]
    playbook = tmp_path / "play.yml"
    playbook.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    done = subprocess.run(
        ["ansible-playbook", str(playbook), "-i", str(ROOT / "inventories/local")],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (state / "expected.json").exists() is recorded
