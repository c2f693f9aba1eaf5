# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining under Slurm, with lines of a real Slurm 22.05, and under Kubernetes, with objects as in its reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._rollout import kubernetes, slurm
from ansible_collections.gpufleet.pytorch.plugins.module_utils._rollout.drain import Drain, SchedulerError

#: Recorded with `scontrol --oneliner show node` from a cluster in containers.
LINES = dict(
    line.split("\t", 1) for line in Path(__file__).with_name("scontrol.tsv").read_text(encoding="utf-8").splitlines()
)
OURS = 'gpufleet: rollout of a b=c: "x" [y]'


class Commands:
    """Answers commands by their first words, and remembers those that change something."""

    def __init__(self, **answers):
        self.answers = answers
        self.changed = []

    def __call__(self, argv):
        for words, answer in self.answers.items():
            parts = words.split("_")
            if [word for word in argv if not word.startswith("--")][: len(parts)] == parts:
                return answer
        self.changed.append(" ".join(argv[1:]))
        return ""


@pytest.mark.parametrize(
    ("name", "flags", "reason", "others"),
    [
        ("idle", {"IDLE"}, "", ""),
        ("draining with job", {"MIXED", "DRAIN"}, OURS, ""),
        ("drained", {"IDLE", "DRAIN"}, OURS, ""),
        ("person changed the reason", {"IDLE", "DRAIN"}, "fan is loud, bob", "fan is loud, bob (root)"),
        ("resumed", {"IDLE"}, "", ""),
        ("down by a person", {"DOWN"}, "broken", "broken (root)"),
        ("drained, slurmd gone", {"DOWN", "DRAIN", "NOT_RESPONDING"}, "gpufleet: rollout x", ""),
    ],
)
def test_a_node_of_slurm(name, flags, reason, others):
    node = slurm.parse(LINES[name])
    assert (node.flags, node.reason, node.others) == (flags, reason, others)


@pytest.mark.parametrize(
    ("line", "out", "others"),
    [
        ("NodeName=n1 State=IDLE* ThreadsPerCore=1", False, ""),
        ("NodeName=n1 State=DOWN* ThreadsPerCore=1 Reason=Not responding [slurm@2026-12-01T11:18:46]", True, ""),
        ("NodeName=n1 State=DOWN Reason=Node unexpectedly rebooted [slurm@2026-12-01T11:18:46]", True, ""),
        # A node that Slurm drained itself waits for a person.
        (
            "NodeName=n1 State=IDLE+DRAIN Reason=Kill task failed [root@2026-12-01T11:18:46]",
            True,
            "Kill task failed (root)",
        ),
        ("NodeName=n1 State=IDLE+DRAIN ThreadsPerCore=1", True, "no reason given"),
        ("NodeName=n1 State=IDLE+DRAIN Reason=gpufleet: gate: row-remap", True, ""),
        ("NodeName=n1 State=IDLE+DRAIN Reason=gpufleet: rollout", True, ""),
        # A person's word that begins like ours.
        ("NodeName=n1 State=IDLE+DRAIN Reason=gpufleet: mine [bob@2026-12-01T11:18:46]", True, "gpufleet: mine (bob)"),
        ("NodeName=n1 State=IDLE+DRAIN Reason=gpufleet: rollouts stop here", True, "gpufleet: rollouts stop here"),
        ("NodeName=n1 State=IDLE+DRAIN Reason=gpufleet", True, "gpufleet"),
        ("NodeName=n1 State=IDLE+DRAIN Reason=mine [bob@2026-12-01T11:18:46] Comment=x y", True, "mine (bob)"),
    ],
)
def test_who_took_a_node_out(line, out, others):
    node = slurm.parse(line)
    assert (node.out, node.others) == (out, others)


@pytest.mark.parametrize(
    ("name", "reason", "expected", "did"),
    [
        ("idle", "gpufleet: rollout a", Drain(True), ["update nodename=n1 state=drain reason=gpufleet: rollout a"]),
        ("drained", OURS, Drain(), []),
        # Another reason of ours: of a failure, or of the health check.
        ("drained", "gpufleet: rollout failed", Drain(True),
         ["update nodename=n1 state=drain reason=gpufleet: rollout failed"]),
        ("person changed the reason", OURS, Drain(held="fan is loud, bob (root)"), []),
        ("down by a person", OURS, Drain(held="broken (root)"), []),
    ],
)  # fmt: skip
def test_drain_of_slurm(name, reason, expected, did):
    run = Commands(scontrol_show_node=LINES[name], squeue="")
    assert slurm.drain(run, "n1", reason) == expected
    assert run.changed == did


def test_jobs_hold_a_node_of_slurm():
    listed = "1 ops RUNNING\n2 ann COMPLETING\n\n3_[4-5] EX\\ann lee SUSPENDED\n6\n"
    run = Commands(scontrol_show_node=LINES["draining with job"], squeue=listed)
    assert slurm.drain(run, "n1", OURS).busy == [
        "job 1 of ops (running)",
        "job 2 of ann (completing)",
        "job 3_[4-5] of EX\\ann lee (suspended)",
        "job 6 of unknown (6)",
    ]


@pytest.mark.parametrize(
    "answer", ["", "Node n1 not found\n", "NodeName=n1 Arch=x", LINES["idle"] + "\n" + LINES["idle"]]
)
def test_what_is_not_one_node_is_neither_drained_nor_taken_for_resumed(answer):
    run = Commands(scontrol_show_node=answer)
    for what in (lambda: slurm.drain(run, "n[1-2]", OURS), lambda: slurm.resume(run, "n[1-2]")):
        with pytest.raises(SchedulerError, match="one with a state is needed"):
            what()
    assert run.changed == []


@pytest.mark.parametrize(
    ("line", "expected", "did"),
    [
        (LINES["drained"], Drain(True), ["update nodename=n1 state=resume"]),
        (LINES["drained, slurmd gone"], Drain(True), ["update nodename=n1 state=resume"]),
        (LINES["person changed the reason"], Drain(held="fan is loud, bob (root)"), []),
        # The health check's own drain is its own to end.
        ("NodeName=n1 State=IDLE+DRAIN Reason=gpufleet: gate: row-remap [root@x]",
         Drain(held="gpufleet: gate: row-remap"), []),
        ("NodeName=n1 State=IDLE+DRAIN Reason=gpufleet: rollouts, mine [bob@x]",
         Drain(held="gpufleet: rollouts, mine (bob)"), []),
        (LINES["idle"], Drain(), []),
    ],
)  # fmt: skip
def test_resume_of_slurm(line, expected, did):
    run = Commands(scontrol_show_node=line)
    assert slurm.resume(run, "n1") == expected
    assert run.changed == did


def node(cordoned, reason=""):
    annotations = {kubernetes.REASON: reason} if reason else {}
    spec = {"unschedulable": True} if cordoned else {}
    return json.dumps({"metadata": {"name": "n1", "annotations": annotations}, "spec": spec})


def pod(name, phase="Running", owner="Job", mirror=False):
    meta = {"name": name, "namespace": "lab", "ownerReferences": [{"kind": owner}]}
    if mirror:
        meta["annotations"] = {kubernetes.MIRROR: "x"}
    return {"metadata": meta, "status": {"phase": phase}}


PODS = [
    pod("train"),
    pod("waits", "Pending"),
    pod("ended", "Succeeded"),
    pod("broke", "Failed"),
    pod("exporter", owner="DaemonSet"),
    pod("static", mirror=True),
]
HOLD = ["pod lab/train", "pod lab/waits"]


@pytest.mark.parametrize(
    ("there", "evict", "expected", "did"),
    [
        (node(False), False, Drain(True, HOLD), ["annotate node n1 {}=gpufleet: rollout --overwrite", "cordon n1"]),
        (node(True, "gpufleet: rollout"), False, Drain(False, HOLD), []),
        # Cut off between the annotation and the cordon.
        (node(False, "gpufleet: rollout"), False, Drain(True, HOLD), ["cordon n1"]),
        (node(True, "gpufleet: rollout"), True, Drain(False, HOLD),
         ["drain n1 --ignore-daemonsets --delete-emptydir-data --timeout=20s"]),
        (node(True), False, Drain(held="cordoned by somebody else"), []),
        (node(True, "bob: fan"), False, Drain(held="cordoned by somebody else"), []),
        (node(True, "gpufleet: mine"), False, Drain(held="cordoned by somebody else"), []),
    ],
)  # fmt: skip
def test_drain_of_kubernetes(there, evict, expected, did):
    run = Commands(kubectl_get_node=there, kubectl_get_pods=json.dumps({"items": PODS}))
    assert kubernetes.drain(run, "n1", "gpufleet: rollout", evict) == expected
    assert run.changed == [line.format(kubernetes.REASON) for line in did]


@pytest.mark.parametrize(
    ("there", "expected", "did"),
    [
        (node(True, "gpufleet: rollout x"), Drain(True), ["uncordon n1", "annotate node n1 {}-"]),
        (node(False, "gpufleet: rollout x"), Drain(), ["annotate node n1 {}-"]),
        (node(True), Drain(held="cordoned by somebody else"), []),
        (node(True, "gpufleet: rollouts, mine"), Drain(held="gpufleet: rollouts, mine"), []),
        (node(False), Drain(), []),
    ],
)
def test_resume_of_kubernetes(there, expected, did):
    run = Commands(kubectl_get_node=there)
    assert kubernetes.resume(run, "n1") == expected
    assert run.changed == [line.format(kubernetes.REASON) for line in did]


def test_pods_that_may_not_be_evicted_yet_are_told():
    def run(argv):
        if argv[1] == "drain":
            raise SchedulerError("kubectl drain n1: exit status 1: disruption budget")
        return node(True, "gpufleet: rollout") if "node" in argv else json.dumps({"items": PODS})

    found = kubernetes.drain(run, "n1", "gpufleet: rollout", True)
    assert found.busy == [*HOLD, "kubectl drain n1: exit status 1: disruption budget"]
