# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Slurm whose four nodes have the gate as the role brings it; two of them have simulated GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, slurm

ROOT = Path(__file__).resolve().parents[3]
FOLDER = "/usr/local/lib/gpufleet"
METRICS = "/var/lib/node-exporter/gpufleet.prom"
#: What README.md asks for, and a scheduler that looks every second.
OURS = (
    f"Prolog={FOLDER}/slurm-prolog",
    "PrologFlags=Alloc,DeferBatch",
    "SchedulerParameters=nohold_on_prolog_fail,bf_interval=1,sched_interval=1",
)
HEALTH = (f"HealthCheckProgram={FOLDER}/slurm-health", "HealthCheckNodeState=ANY")
#: The role's own tasks for a host that was proved; the proof itself has tests of its own.
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.include_role": {"name": "gpufleet.pytorch.gate", "tasks_from": "install"}},
            {"ansible.builtin.debug": {"var": "gate_wired.findings[0]"}},
        ],
    }
]
#: Runs on a node: writes the verdict of this moment, in the gate's form.
WRITE = """
import json, os, sys, time
sys.path.insert(0, "/usr/local/lib/gpufleet/gpufleet-gate")
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict
at = verdict.now()
made = {"schema": 1, "collection": "0.1.0", "judged_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "uptime": at.uptime, "boot_id": at.boot_id, "valid_for": 3600, **json.loads(sys.argv[1])}
os.makedirs("/run/gpufleet", exist_ok=True)
with open("/run/gpufleet/new", "w") as stream:
    json.dump(made, stream)
os.replace("/run/gpufleet/new", "/run/gpufleet/verdict.json")
"""


class Fleet:
    """The cluster, and what a test does with the gate on its nodes."""

    def __init__(self, run: Path, made: slurm.Cluster) -> None:
        self.slurm = made
        reach = {"ansible_user": "root", "ansible_ssh_common_args": f'-F "{boxes.ssh_config(run / "ssh_config")}"'}
        hosts = {"n1": {"ansible_host": made.boxes["n1"]}}
        own = {
            "ansible_python_interpreter": "/usr/bin/python3",
            "gate_for": ["slurm", "nhc", "prometheus"],
            "gate_slurm_drain_limit": "2",
            "gate_metrics": METRICS,
            "gate_before_units": ["training.service"],
        }
        (run / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": {**reach, **own}}}))
        (run / "play.json").write_text(json.dumps(PLAY))
        self._run = run

    def install(self) -> str:
        """Run the role on n1, take what it brought to the others, and return what Ansible printed."""
        done = subprocess.run(
            ["ansible-playbook", str(self._run / "play.json"), "-i", str(self._run / "hosts.json")],
            env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        self.slurm.on("n1", "systemctl", "disable", "--now", "--quiet", "gpufleet-gate.timer")
        self.slurm.on(
            "n1", "tar", "-C", "/usr/local", "-cf", "/etc/slurm/gate.tar", "lib/gpufleet", "bin/gpufleet-gate"
        )
        self.slurm.each(lambda name: self.slurm.on(name, "tar", "-C", "/usr/local", "-xf", "/etc/slurm/gate.tar"))
        return done.stdout

    def judge(self, name: str, state: str, *found: t.Mapping[str, t.Any]) -> None:
        """Give a node a verdict of this moment."""
        findings = [
            {"id": f"{one['check']}/host", "subject": {"kind": "host", "key": ""}, "state": "fail", "found": "",
             "expected": "", "action": "none", "policy": "block", "reason": "", "evidence": {}, **one}
            for one in ({"check": "drift", "state": "ok"}, *found)
        ]  # fmt: skip
        made = {"ok": state == "ready", "state": state, "findings": findings}
        self.slurm.on(name, "python3", "-B", "-c", WRITE, json.dumps(made))

    def drained(self) -> dict[str, str]:
        """The reason of every node that is drained."""
        found = self.slurm.nodes()
        return {name: node["reason"] for name, node in found.items() if node["state"] in ("drained", "draining")}

    def drain(self, name: str, reason: str) -> None:
        self.slurm.ctl("scontrol", "update", f"nodename={name}", "state=drain", f"reason={reason}")

    def check_all(self) -> None:
        """The health program on all nodes at the same moment, as Slurm runs it; any status but 0 raises."""
        self.slurm.each(lambda name: self.slurm.on(name, f"{FOLDER}/slurm-health"))

    def run(self, *options: str, seconds: float = 90) -> tuple[int, str, float]:
        """Run a job to its end: its number, the nodes that ran it, and how long that took."""
        started = time.monotonic()
        job = self.slurm.submit("hostname", *options)
        self.slurm.until(lambda: self.slurm.job(job)["state"] == "COMPLETED", seconds)
        return job, self.slurm.job(job)["nodes"], time.monotonic() - started

    def log(self, name: str, text: str) -> list[str]:
        """The lines of the gate's programs with this text in a node's log."""
        told = self.slurm.on(name, "journalctl", "-t", "gpufleet-gate", "-t", "gpufleet-prolog", "-o", "cat", "-q")
        return [line for line in told.splitlines() if text in line]


@pytest.fixture(scope="package")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Fleet]:
    run = tmp_path_factory.mktemp("slurm")
    with slurm.cluster(run, nodes=4) as made:
        made.simulate("n1", "--profile", "h100-sxm")
        yield Fleet(run, made)


@pytest.fixture(scope="package")
def installed(fleet: Fleet) -> Fleet:
    """The role on all nodes; from then on the tests say what is judged, and when."""
    told = fleet.install()
    assert "slurm.conf lacks Prolog=" in told
    return fleet
