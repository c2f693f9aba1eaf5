# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of aliases of this machine that rollout.yml changes for real, cheaply: each host is a folder with a version.

The change is a file of tasks. It takes its time, writes the version in two halves (so that a kill can leave one), and
does what the folder's file `fault` says. It lasts as long as there is a file `hold`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 400
CHANGE = """---
- name: Read what is wrong with the host
  ansible.builtin.set_fact:
    fault: "{{ lookup('ansible.builtin.file', site ~ '/' ~ inventory_hostname ~ '/fault', errors='ignore') or '' }}"
- name: Change the host
  ansible.builtin.shell: |
    echo "$$ {{ wanted }}" >> changes
    echo half > version
    while [ -e hold ]; do sleep 0.1; done
    sleep {{ pause }}
    [ "{{ fault }}" != breaks ] || { echo "the change broke" >&2; exit 1; }
    echo {{ wanted }} > version
  args: {chdir: "{{ site }}/{{ inventory_hostname }}"}
- name: Prove the host
  ansible.builtin.command: grep -qx {{ wanted }} version
  args: {chdir: "{{ site }}/{{ inventory_hostname }}"}
  failed_when: fault == 'wrong'
"""
#: Kills the whole process group of Ansible, as a terminal or an init would: when a task's name comes, or some time
#: behind an event of some number.
KILLER = """
import os, signal, threading
from ansible.plugins.callback import CallbackBase

def kill():
    os.killpg(0, signal.SIGKILL)

class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "killer"
    CALLBACK_NEEDS_ENABLED = True
    events = 0

    def _at(self, moment, host, task):
        self.events += 1
        number, _space, delay = os.environ["KILL_AT"].partition(" ")
        if number == str(self.events):
            threading.Timer(float(delay), kill).start()
        if os.environ["KILL_AT"] == f"{moment} {host.get_name()} {task.get_name().split(' : ')[-1]}":
            kill()

    def v2_runner_on_start(self, host, task):
        self._at("before", host, task)

    def v2_runner_on_ok(self, result):
        self._at("after", result._host, result._task)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._at("after", result._host, result._task)
"""


class Done(t.NamedTuple):
    """How a run ended: its exit code (negative for a signal) and what it printed."""

    code: int
    output: str


class Fleet:
    """`count` hosts below `folder`, which also holds the inventory, the change and the reports."""

    def __init__(self, folder: Path, count: int = 3, **variables: t.Any) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self.hosts: dict[str, dict[str, t.Any]] = {name: {} for name in self.names}
        self.variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": "{{ ansible_playbook_python }}",
            "gate_directory": str(folder / "{{ inventory_hostname }}" / "state"),
            "site": str(folder),
            "wanted": "two",
            "pause": 0,
            "rollout_tasks": str(folder / "change.yml"),
            "rollout_prove": False,
            **variables,
        }
        for name in self.names:
            (folder / name / "state").mkdir(parents=True)
            (folder / name / "version").write_text("one\n")
        (folder / "change.yml").write_text(CHANGE)
        (folder / "plugins").mkdir()
        (folder / "plugins" / "killer.py").write_text(KILLER)

    def fault(self, name: str, kind: str) -> None:
        """What goes wrong on a host from now on: breaks, wrong, or nothing for ""."""
        (self.folder / name / "fault").write_text(kind)

    def start(self, *arguments: str, kill_at: str = "", **variables: t.Any) -> subprocess.Popen[str]:
        """Start rollout.yml in a session of its own."""
        inventory = {"all": {"hosts": self.hosts, "vars": self.variables}}
        (self.folder / "hosts.json").write_text(json.dumps(inventory))
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        if kill_at:
            environment |= {
                "ANSIBLE_CALLBACK_PLUGINS": str(self.folder / "plugins"),
                "ANSIBLE_CALLBACKS_ENABLED": "killer",
                "KILL_AT": kill_at,
            }
        command = ["ansible-playbook", str(ROOT / "rollout.yml"), "-i", "hosts.json", *arguments]
        return subprocess.Popen(
            [*command, "-e", json.dumps(variables)], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip

    def roll(self, *arguments: str, kill_at: str = "", **variables: t.Any) -> Done:
        """Run rollout.yml to its end."""
        return self.end(self.start(*arguments, kill_at=kill_at, **variables))

    def end(self, process: subprocess.Popen[str]) -> Done:
        """Wait for a run, not for its output: workers that outlive a kill hold the pipe."""
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or []), daemon=True)
        reader.start()
        try:
            process.wait(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"not ended after {SECONDS} s: {''.join(lines)}") from None
        reader.join(timeout=0.5 if process.returncode < 0 else 10)
        return Done(process.returncode, "".join(lines))

    def journal(self) -> dict[str, t.Any]:
        """The journal's hosts."""
        path = self.folder / "reports" / "rollout" / "journal.json"
        return t.cast("dict[str, t.Any]", json.loads(path.read_text())["hosts"]) if path.exists() else {}

    def states(self) -> dict[str, str]:
        """The state of each host in the journal."""
        return {name: record["state"] for name, record in self.journal().items()}

    def verdict(self) -> dict[str, str]:
        """The state of each host in the verdict."""
        path = self.folder / "reports" / "rollout" / "latest.json"
        if not path.exists():
            return {}
        return {name: host["state"] for name, host in json.loads(path.read_text())["hosts"].items()}

    def versions(self) -> dict[str, str]:
        """What each host runs."""
        return {name: (self.folder / name / "version").read_text().strip() for name in self.names}

    def changes(self, name: str) -> int:
        """How often the change was begun on a host."""
        path = self.folder / name / "changes"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def marked(self) -> set[str]:
        """The hosts with an owner's mark."""
        return {name for name in self.names if (self.folder / name / "state" / "rollout.json").exists()}

    def consistent(self, output: str) -> None:
        """What holds at every moment, also right after a kill: a host is waiting, or the journal says where it is."""
        states, verdict = self.states(), self.verdict()
        for name in self.names:
            begun = self.changes(name) > 0 or name in self.marked()
            state = states.get(name, "waiting")
            assert not begun or state != "waiting", (name, states, output)
            if state == "done":
                assert self.versions()[name] == "two" and name not in self.marked(), (name, output)
            # The verdict is written right behind the journal, and never better than it.
            assert verdict.get(name) != "ready" or state == "done", (name, states, verdict, output)

    def all_done(self, done: Done) -> None:
        """The end of a rollout that went well."""
        assert done.code == 0, done.output
        assert set(self.states().values()) == {"done"} and len(self.states()) == len(self.names), done.output
        assert set(self.verdict().values()) == {"ready"}, done.output
        assert set(self.versions().values()) == {"two"}, done.output
        assert self.marked() == set(), done.output
