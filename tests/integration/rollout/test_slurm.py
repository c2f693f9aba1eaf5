# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout over a real Slurm: jobs that hold a node, a person's drain, a drain without an end, and kills."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, slurm
from ansible_collections.gpufleet.pytorch.tests.integration.rollout.fleet import Fleet

OURS = "gpufleet: rollout"
#: On n2 a person takes the node over while it is changed.
CHANGE = """---
- name: Change the host
  ansible.builtin.command: touch /srv/changed-{{ wanted }}
- name: A person has a look
  ansible.builtin.command: scontrol update nodename=n2 state=drain reason="fan is loud"
  delegate_to: ctl
  when: inventory_hostname == 'n2' and person | default(false)
"""


class Place(t.NamedTuple):
    cluster: slurm.Cluster
    fleet: Fleet

    def nodes(self) -> dict[str, dict[str, str]]:
        return {name: self.cluster.node(name) for name in self.cluster.names}

    def changed(self, wanted: str) -> set[str]:
        """The nodes that have the change."""
        return {
            name for name in self.cluster.names if f"changed-{wanted}" in self.cluster.on(name, "ls", "/srv").split()
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Place]:
    run = tmp_path_factory.mktemp("slurm")
    with slurm.cluster(run, nodes=4) as cluster:
        fleet = Fleet(
            run,
            4,
            gate_directory="/srv/state",
            rollout_drain="slurm",
            rollout_drain_interval=1,
            rollout_slurm_controller="ctl",
            rollout_batches=[4],
        )
        (run / "change.yml").write_text(CHANGE)
        fleet.variables |= {
            "ansible_connection": "ssh",
            "ansible_user": "root",
            "ansible_python_interpreter": "/usr/bin/python3",
            "ansible_ssh_common_args": f'-F "{boxes.ssh_config(run / "ssh_config")}"',
        }
        for name in fleet.names:
            fleet.hosts[name] = {"ansible_host": cluster.boxes[name]}
        # Slurm's controller is no host of the rollout.
        fleet.hosts["ctl"] = {"ansible_host": cluster.boxes["ctl"]}
        yield Place(cluster, fleet)


@pytest.mark.container
def test_jobs_persons_and_a_drain_without_an_end(place: Place) -> None:
    cluster, fleet = place
    short = cluster.submit("sleep 15; touch /tmp/job-ended", "--nodelist=n1")
    endless = cluster.submit("sleep 600", "--nodelist=n4")
    cluster.until(lambda: {cluster.job(job)["state"] for job in (short, endless)} == {"RUNNING"})
    cluster.ctl("scontrol", "update", "nodename=n3", "state=drain", "reason=mine")

    done = fleet.roll("--limit", "!ctl", wanted="a", person=True, rollout_drain_timeout=40)
    assert done.code != 0, done.output
    assert fleet.states() == {"n1": "done", "n2": "done", "n3": "held", "n4": "failed"}, done.output
    assert place.changed("a") == {"n1", "n2"}
    assert cluster.job(endless)["state"] == "RUNNING"
    ended, changed = (
        int(cluster.on("n1", "stat", "--format=%Y", path)) for path in ("/tmp/job-ended", "/srv/changed-a")
    )
    assert ended <= changed, "the job held the node until its end"
    nodes = place.nodes()
    assert nodes["n1"] == {"state": "idle", "reason": "none", "user": "Unknown"}
    assert (nodes["n2"]["reason"], nodes["n3"]["reason"]) == ("fan is loud", "mine"), "what a person drained stays so"
    assert "fan is loud" in fleet.journal()["n2"]["note"] and "mine" in fleet.journal()["n3"]["note"]
    assert nodes["n4"]["state"] == "draining", (nodes, fleet.journal()["n4"], done.output)
    assert nodes["n4"]["reason"].startswith(f"{OURS} failed at draining") and f"job {endless} of ops" in done.output

    cluster.ctl("scancel", str(endless))
    cluster.ctl("scontrol", "update", "nodename=n2,n3", "state=resume")
    done = fleet.roll("--limit", "!ctl", wanted="a")
    assert done.code == 0, done.output
    assert {node["state"] for node in place.nodes().values()} == {"idle"}
    assert place.changed("a") == set(cluster.names)


@pytest.mark.container
def test_killed_between_drain_and_resume(place: Place) -> None:
    """At every moment a drained node says who drained it, and in the end none is drained."""
    cluster, fleet = place
    fleet.variables |= {"rollout_batches": [1, 3], "wanted": "b"}
    for point in (
        "after n1 Drain the node",
        "before n1 Change the host",
        "before n1 Resume the node",
        "after n1 Resume the node",
        "after n2 Drain the node",
        "before n3 Resume the node",
    ):
        killed = fleet.roll("--limit", "!ctl", kill_at=point)
        assert killed.code == -9, killed.output
        for name, node in place.nodes().items():
            if node["state"] != "idle":
                assert node["reason"].startswith(OURS), (point, name, node)
                assert fleet.states()[name] == "changing", (point, name, node)
    done = fleet.roll("--limit", "!ctl")
    assert done.code == 0, done.output
    assert {node["state"] for node in place.nodes().values()} == {"idle"}
    assert set(fleet.states().values()) == {"done"} and place.changed("b") == set(cluster.names)
