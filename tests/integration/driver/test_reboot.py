# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A restart never surprises: without the user's word, and here in any case, the role says the command and stops."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: gpufleet.pytorch.driver
        tasks_from: reboot
"""
RESULT = {
    "version": "580.95.05",
    "reboot_required": True,
    "findings": [{"check": "driver-reboot", "found": "module 570.133.20 is loaded"}],
}


@pytest.mark.parametrize(
    ("host", "connection", "reboot", "said"),
    [
        ("here", "local", True, "Restart this host and run again: systemctl reboot"),
        ("here", "local", False, "Restart this host and run again: systemctl reboot"),
        # Nothing answers there: the role ends before it would ask.
        (
            "n1",
            "ssh",
            False,
            "Restart this host and run again, or set driver_reboot: true: ansible n1 -b -m ansible.builtin.reboot",
        ),
    ],
)
def test_no_restart_without_a_word(tmp_path: Path, host: str, connection: str, reboot: bool, said: str) -> None:
    (tmp_path / "play.yml").write_text(PLAYBOOK)
    variables = {"driver_result": RESULT, "driver_reboot": reboot, "gpufleet_plan": {"accelerator": "cuda"}}
    command = ["ansible-playbook", "--inventory", f"{host},", "--connection", connection, str(tmp_path / "play.yml")]
    done = subprocess.run(
        [*command, "--extra-vars", json.dumps(variables)],
        env={**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_NOCOLOR": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert f"module 570.133.20 is loaded, and the installed one is 580.95.05. {said}" in words
    assert '"unreachable": 0' in words or "unreachable=0" in words
