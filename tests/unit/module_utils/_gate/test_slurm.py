# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which verdict holds or clears which node, from what Slurm 22.05 prints."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import slurm, slurm_wiring

NODE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=8  CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=28.94 Gres=gpu:8 NodeAddr=n1"
    " OS=Linux 6.18.44-fc-v1045 #1 SMP PREEMPT_DYNAMIC @0  State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A"
    " BootTime=2026-12-01T10:50:54 CfgTRES=cpu=8,mem=1000M,billing=8 AllocTRES= ExtSensorsTemp=n/s{reason}"
)
BAD = {"check": "gpu-count", "subject": {"kind": "host", "key": ""}, "state": "fail", "found": "7 of 8",
       "action": "replace", "policy": "block"}  # fmt: skip
OURS = "gpufleet: gate: gpu-count: 7 of 8 -> replace"


def node(name="n1", state="IDLE", reason="", at="2026-12-01T11:34:49"):
    return NODE.format(name=name, state=state, reason=f" Reason={reason} [root@{at}]" if reason else "")


def made(state, *findings):
    return {"ok": state == "ready", "state": state, "findings": list(findings)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (node(), ("n1", {"IDLE"}, "", "")),
        (node(state="MIXED+DRAIN", reason="a cable"), ("n1", {"MIXED", "DRAIN"}, "a cable", "2026-12-01T11:34:49")),
        (
            node(state="DOWN*+DRAIN", reason="State=IDLE [ann@x] Reason=y"),
            ("n1", {"DOWN", "DRAIN"}, "State=IDLE [ann@x] Reason=y", "2026-12-01T11:34:49"),
        ),
        (
            node(state="IDLE+DRAIN", reason=OURS) + " Comment=see [ann@2026-12-02T00:00:00]",
            ("n1", {"IDLE", "DRAIN"}, OURS, "2026-12-01T11:34:49"),
        ),
    ],
)
def test_a_node_is_read(line, expected):
    (found,) = slurm.nodes(line + "\n\n")
    assert found == slurm.Node(expected[0], frozenset(expected[1]), *expected[2:])


@pytest.mark.parametrize(
    ("verdict", "unknown_too", "reason"),
    [
        (made("not_ready", BAD), False, OURS),
        (made("not_ready", {**BAD, "state": "unknown"}, BAD), True, OURS + " (and 1 more)"),
        (made("not_ready", {**BAD, "action": "none"}), False, ""),
        (made("not_ready", {**BAD, "policy": "report"}), False, ""),
        (made("ready", {**BAD, "state": "warn"}), True, ""),
        (made("unknown", {**BAD, "state": "unknown"}), False, ""),
        (made("unknown", {**BAD, "state": "unknown"}), True, OURS),
        # Somebody answers for it: the verdict is ready although it is there.
        (made("ready", BAD), False, ""),
        (made("not_ready", {**BAD, "found": "[a]\n'b'", "subject": {"kind": "gpu", "key": "GPU-1"}}), False,
         "gpufleet: gate: gpu-count GPU-1: (a) 'b' -> replace"),
        (made("not_ready", {**BAD, "found": "\x1b[31mred\0"}), False,
         "gpufleet: gate: gpu-count: \\x1b(31mred\\x00 -> replace"),
    ],
)  # fmt: skip
def test_why_a_verdict_drains(verdict, unknown_too, reason):
    assert slurm.due(verdict, unknown_too) == reason


def test_a_long_reason_keeps_what_to_do():
    told = slurm.due(made("not_ready", {**BAD, "found": "x" * 4000}))
    assert len(told) == slurm.REASON_LIMIT and told.endswith("x -> replace")


@pytest.mark.parametrize(
    ("state", "reason", "verdict", "refused", "what"),
    [
        ("IDLE", "", "ready", False, ""),
        ("IDLE", "", "not_ready", False, "hold"),
        ("DOWN", "a person's", "ready", False, ""),
        ("IDLE+DRAIN", OURS, "ready", False, "clear"),
        ("IDLE+DRAIN", OURS, "unknown", False, ""),
        ("IDLE+DRAIN", OURS, "not_ready", False, ""),
        ("IDLE+DRAIN", "a person's", "ready", True, ""),
        ("IDLE+DRAIN", "a person's", "not_ready", True, ""),
        ("IDLE+DRAIN", "gpufleet: rollout 7", "ready", True, ""),
        ("IDLE+DRAIN", "gpufleet", "ready", True, ""),
        ("IDLE+DRAIN", "gpufleet: mine", "ready", True, ""),
        ("IDLE+DRAIN", "gpufleet: gate:mine", "ready", True, ""),
        ("IDLE+DRAIN", "NHC: gpufleet: gate: x", "ready", True, ""),
        ("IDLE+DRAIN", "Prolog error", "ready", False, ""),
        ("IDLE+DRAIN", "Prolog error", "not_ready", False, ""),
        ("IDLE+DRAIN", "Prolog error", "ready", True, "clear"),
        ("IDLE+DRAIN", "Prolog error", "not_ready", True, "hold"),
        ("IDLE+DRAIN", "Prolog error", "unknown", True, "hold"),
    ],
)
def test_what_is_done(state, reason, verdict, refused, what):
    (found,) = slurm.nodes(node(state=state, reason=reason))
    given = made(verdict, BAD) if verdict == "not_ready" else made(verdict)
    assert slurm.step(given, found, refused, slurm.due(given)) == what


@pytest.mark.parametrize(
    ("limit", "total", "number"), [("2", 4, 2), ("0", 4, 0), ("5%", 1000, 50), ("5%", 4, 1), ("0%", 4, 0)]
)
def test_the_limit_is_a_number_or_a_share(limit, total, number):
    assert slurm.allowed(limit, total) == number


@pytest.mark.parametrize("limit", ["", "-1", "2.5", "101%", "many", "5 %", "1" * 20])
def test_no_limit_is_refused(limit):
    with pytest.raises(ValueError, match="a number, or a share"):
        slurm.allowed(limit, 4)


class Controller:
    """Answers as slurmctld does; ``late``: drains of other nodes that it takes between ours and our second look."""

    def __init__(self, nodes, late=()):
        self.nodes = nodes
        self.late = late
        self.second = 50

    def __call__(self, words):
        if words[0] == "update":
            given = dict(word.split("=", 1) for word in words[1:])
            self.second += 1
            at = f"2026-12-01T11:34:{self.second}"
            self.nodes[given["nodename"]] = (
                ("IDLE+DRAIN", given["reason"], at) if given["state"] == "drain" else ("IDLE", "", "")
            )
            if given["state"] == "drain":
                self.nodes.update(self.late)
            return ""
        return "\n".join(node(name, *what) for name, what in self.nodes.items() if len(words) == 3 or words[3] == name)


AT = "2026-12-01T11:34:"


@pytest.mark.parametrize(
    ("others", "late", "what", "drained"),
    [
        ({}, {}, "held", True),
        ({"n2": ("IDLE+DRAIN", OURS, AT + "01")}, {}, "held", True),
        ({"n2": ("IDLE+DRAIN", "a person's", AT + "01"), "n3": ("DOWN", OURS, AT + "01")}, {}, "held", True),
        ({f"n{number}": ("IDLE+DRAIN", "gpufleet: mine", AT + "01") for number in (2, 3)}, {}, "held", True),
        ({"n2": ("IDLE+DRAIN", OURS, AT + "01"), "n3": ("IDLE+DRAIN", "gpufleet: rollout 7", AT + "02")}, {},
         "limit", False),
        # Two others were drained in the moment between: before us (we give way), in our second, and behind us.
        ({}, {"n2": ("IDLE+DRAIN", OURS, AT + "50"), "n3": ("IDLE+DRAIN", OURS, AT + "50")}, "limit", False),
        ({}, {"n0": ("IDLE+DRAIN", OURS, AT + "51"), "n00": ("IDLE+DRAIN", OURS, AT + "51")}, "limit", False),
        ({}, {"n2": ("IDLE+DRAIN", OURS, AT + "51"), "n3": ("IDLE+DRAIN", OURS, AT + "51")}, "held", True),
        ({}, {"n2": ("IDLE+DRAIN", OURS, AT + "52"), "n3": ("IDLE+DRAIN", OURS, AT + "52")}, "held", True),
    ],
)  # fmt: skip
def test_no_more_are_held_than_may_be(tmp_path, others, late, what, drained):
    controller = Controller({"n1": ("IDLE", "", ""), **others}, late)
    said = []
    health = slurm.Health("n1", controller, str(tmp_path), "2", said.append, lambda seconds: None)
    assert health.run(made("not_ready", BAD)) == what
    assert (controller.nodes["n1"][0] == "IDLE+DRAIN") is drained
    assert len(said) == 1
    health.run(made("not_ready", BAD))
    assert len(said) == 1, "it is said once"
    assert (tmp_path / slurm.AT_LIMIT).exists() is (what == "limit")


@pytest.mark.parametrize(
    "answers",
    [[None], [""], ["\n"], ["NodeName=n1"], [node() + "\n" + node("n2")], [node(), None], [node(), node(), None]],
)
def test_a_slurm_that_does_not_answer_changes_nothing(tmp_path, answers):
    given = list(answers)
    health = slurm.Health("n1", lambda words: given.pop(0) if given else None, str(tmp_path), "2", lambda text: None)
    assert health.run(made("not_ready", BAD)) == ""
    assert list(tmp_path.iterdir()) == []


CONFIG = """Configuration data as of 2026-12-01T11:31:35
HealthCheckInterval     = 300 sec
HealthCheckNodeState    = ANY,CYCLE
HealthCheckProgram      = /usr/local/lib/gpufleet/slurm-health
JobRequeue              = 1
Prolog                  = /usr/local/lib/gpufleet/slurm-prolog
PrologEpilogTimeout     = 65534
PrologSlurmctld         = (null)
PrologFlags             = Alloc,DeferBatch
SchedulerParameters     = nohold_on_prolog_fail,bf_interval=1
"""


@pytest.mark.parametrize(
    ("old", "new", "missing"),
    [
        ("", "", []),
        ("Alloc,DeferBatch", "Alloc,Contain,DeferBatch", []),
        ("Alloc,DeferBatch", "Alloc", ["PrologFlags=Alloc,DeferBatch"]),
        ("Prolog                  = /usr/local/lib/", "Prolog[0]  = /a\nProlog[1]  = /usr/local/lib/", []),
        ("/usr/local/lib/gpufleet/slurm-prolog", "/usr/local/lib/gpufleet/*prolog", []),
        ("/usr/local/lib/gpufleet/slurm-prolog", "/site/prolog", []),
        ("/usr/local/lib/gpufleet/slurm-prolog", "/other/prolog", ["Prolog=/usr/local/lib/gpufleet/slurm-prolog"]),
        ("/usr/local/lib/gpufleet/slurm-prolog", "(null)", ["Prolog=/usr/local/lib/gpufleet/slurm-prolog"]),
        ("= Alloc,DeferBatch", "= (null)", ["PrologFlags=Alloc,DeferBatch"]),
        ("nohold_on_prolog_fail,", "", ["SchedulerParameters=nohold_on_prolog_fail"]),
        ("JobRequeue              = 1", "JobRequeue              = 0", ["JobRequeue=1"]),
        ("= 300 sec", "= 0 sec", ["HealthCheckInterval=300"]),
        ("ANY,CYCLE", "IDLE", ["HealthCheckNodeState=ANY,CYCLE"]),
    ],
)  # fmt: skip
def test_what_slurm_conf_lacks(old, new, missing):
    assert old in CONFIG
    scripts = {
        "/site/prolog": "#!/bin/sh\n/usr/local/lib/gpufleet/slurm-prolog || exit 1\n",
        "/other/prolog": "exit 0\n",
    }
    found = slurm_wiring.check(CONFIG.replace(old, new) if old else CONFIG, scripts.get)
    assert (found.state, list(found.evidence.get("missing", []))) == ("warn" if missing else "ok", missing)


def test_a_controller_that_is_silent_is_unknown():
    assert slurm_wiring.check(None, lambda path: None).state == "unknown"
