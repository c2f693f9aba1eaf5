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

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, images

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


def play(folder: Path, host: str, *options: str, **variables: object) -> subprocess.CompletedProcess[str]:
    """Run the role's restart on a host that has a new driver which is not loaded."""
    (folder / "play.yml").write_text(PLAYBOOK)
    command = ["ansible-playbook", "--inventory", f"{host},", *options, str(folder / "play.yml")]
    return subprocess.run(
        [*command, "--extra-vars", json.dumps({"gpufleet_plan": {"accelerator": "cuda"}, **variables})],
        env={**os.environ, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json", "ANSIBLE_NOCOLOR": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


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
    done = play(tmp_path, host, "--connection", connection, driver_result=RESULT, driver_reboot=reboot)
    assert done.returncode == 2, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert f"module 570.133.20 is loaded, and the installed one is 580.95.05. {said}" in words
    assert '"unreachable": 0' in words or "unreachable=0" in words


# A container has its host's boot id: this gives it one of its own at each start.
BOOT_ID = """
node=/proc/sys/kernel/random
printf '%s\\n' '[Unit]' DefaultDependencies=no '[Service]' Type=oneshot \\
  "ExecStart=/bin/sh -c 'cat $node/uuid > /run/id; mount --bind /run/id $node/boot_id'" \\
  '[Install]' WantedBy=sysinit.target > /etc/systemd/system/boot-id.service
systemctl enable --quiet --now boot-id
"""


@pytest.mark.container
def test_a_restart_where_it_is_allowed_and_the_role_goes_on(tmp_path: Path) -> None:
    """Who is on the host is named first; then it restarts for real, is looked at again, and the role goes on."""
    try:
        box = boxes.start(tmp_path, "n1", "debian12", "--restart", "always", "--cap-add", "SYS_ADMIN")
        images.podman("exec", box, "/bin/sh", "-euc", BOOT_ID)
        options = ["--ssh-common-args", f"-F {boxes.ssh_config(tmp_path / 'ssh_config')}", "--user", "ops", "--become"]

        def boot_id() -> str:
            return images.podman("exec", box, "cat", "/proc/sys/kernel/random/boot_id").stdout

        first = boot_id()
        users = ["python3 (pid 900, has /dev/nvidia7 open)", "alice (pid 1764, logged in at pts/3)"]
        done = play(tmp_path, box, *options, driver_result={**RESULT, "users": users}, driver_reboot=True)
        assert done.returncode == 2 and boot_id() == first
        assert f"would load driver 580.95.05 and end {', '.join(users)}. Drain the host" in " ".join(
            done.stdout.split()
        )
        plan = {"accelerator": "cuda", "driver": {"action": "keep"}}
        wish = {"driver_when_busy": "proceed", "driver_reboot": True, "gpufleet_plan": plan}
        done = play(tmp_path, box, *options, "--verbose", driver_result={**RESULT, "users": users}, **wish)
        assert done.returncode == 0, done.stdout + done.stderr
        second = boot_id()
        assert second != first
        # What is known of it now is from after the restart.
        assert f'"boot_id": "{second.strip()}"' in done.stdout
    finally:
        boxes.remove(tmp_path)
