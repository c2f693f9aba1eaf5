# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are lost in a rollout, over SSH: one dies while drained, one never returns from its restart, and one's
connection drops while the change goes on there."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, images
from ansible_collections.gpufleet.pytorch.tests.integration.rollout.fleet import Done, Fleet

#: What each host does when it is changed, once: then its folder's file `calm` is there.
CHANGE = """---
- name: Look whether this is the first time
  ansible.builtin.command: mkdir /srv/calm
  register: first
  failed_when: false
- name: Die
  ansible.builtin.command: podman rm --force --time 0 {{ ansible_host }}
  delegate_to: localhost
  environment: {CONTAINERS_CONF: "{{ containers_conf }}"}
  when: fault == 'dies' and first.rc == 0
- name: Restart, and never come back
  ansible.builtin.reboot: {reboot_timeout: 3, connect_timeout: 1, reboot_command: systemctl poweroff --force --force}
  when: fault == 'restarts' and first.rc == 0
- name: Change the host
  ansible.builtin.shell: |
    echo begin >> /srv/log
    {{ 'pkill -KILL -x sshd; sleep 8' if fault == 'drops' and first.rc == 0 else 'true' }}
    echo end >> /srv/log
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Fleet]:
    run = tmp_path_factory.mktemp("rollout")
    made = Fleet(run, 4, rollout_batches=[1], rollout_max_failures=1, site="/srv", gate_directory="/srv/state")
    (run / "change.yml").write_text(CHANGE)
    made.variables |= {
        "ansible_connection": "ssh",
        "ansible_user": "root",
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_ssh_common_args": f'-F "{boxes.ssh_config(run / "ssh_config")}" -o ConnectTimeout=5',
        "containers_conf": images.podman_environment()["CONTAINERS_CONF"],
        "fault": "",
    }
    try:
        for name, fault in zip(made.names, ("dies", "restarts", "drops", "")):
            made.hosts[name] = {"ansible_host": boxes.start(run, name, "debian12"), "fault": fault}
        yield made
    finally:
        boxes.remove(run)


def log(fleet: Fleet, name: str) -> list[str]:
    path = "/srv/log"
    return images.podman("exec", str(fleet.hosts[name]["ansible_host"]), "cat", path, check=False).stdout.split()


@pytest.mark.container
def test_lost_hosts(fleet: Fleet) -> None:
    # The canary dies: the playbook ends there, and yet it is said who is where.
    done = fleet.roll()
    assert done.code != 0, done.output
    assert fleet.states() == {"n1": "changing", "n2": "waiting", "n3": "waiting", "n4": "waiting"}, done.output
    assert set(fleet.verdict().values()) == {"unknown"}
    assert "rollout: n1: is out: changing" in done.output
    assert [log(fleet, name) for name in fleet.names[1:]] == [[], [], []]

    # It is still gone: it counts as failed, and no canary went well, so nothing else is touched.
    done = fleet.roll()
    assert done.code != 0, done.output
    assert fleet.states() == {"n1": "failed", "n2": "waiting", "n3": "waiting", "n4": "waiting"}, done.output
    assert "does not answer" in fleet.journal()["n1"]["note"]

    # Somebody replaced it. The next one never returns from its restart: one failure is allowed, so it goes on, until
    # the connection to the third drops.
    fleet.hosts["n1"] = {"ansible_host": boxes.start(fleet.folder, "n1b", "debian12"), "fault": ""}
    done = fleet.roll()
    assert done.code != 0, done.output
    states = fleet.states()
    assert (states["n1"], states["n2"], states["n3"], states["n4"]) == ("done", "failed", "changing", "waiting"), done
    assert "Restart, and never come back" in fleet.journal()["n2"]["note"]
    assert log(fleet, "n3")[0] == "begin"

    # Started again at once: what still runs on the third is waited for, never doubled.
    images.podman("start", str(fleet.hosts["n2"]["ansible_host"]))
    again = fleet.roll()
    _all_done(fleet, again)
    assert log(fleet, "n3") == ["begin", "end", "begin", "end"], again.output


def _all_done(fleet: Fleet, done: Done) -> None:
    assert done.code == 0, done.output
    assert set(fleet.states().values()) == {"done"}, done.output
    assert set(fleet.verdict().values()) == {"ready"}
    for name in fleet.names:
        marks = images.podman("exec", str(fleet.hosts[name]["ansible_host"]), "ls", "/srv/state")
        assert "rollout.json" not in marks.stdout
