# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining and resuming a node of Slurm, on a host that has scontrol and may use it."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._rollout.drain import (
    Drain,
    Run,
    SchedulerError,
    of_rollout,
    ours,
)

#: What slurmctld says by itself of a node that it lost: no person's word.
LOST = ("Not responding", "Node unexpectedly rebooted")
_STATE = re.compile(r"\bState=(\S+)")
#: Near the end of the line, with who set it and when; the fields that may follow are named.
_REASON = re.compile(r"\bReason=(.*?)(?: \[(\S+)@\S+\])?(?: (?:Comment|Extra|InstanceId|InstanceType)=.*)?$")


class Node(t.NamedTuple):
    """State flags in capitals, such as IDLE and DRAIN; the reason and who set it, empty where there is none."""

    flags: t.FrozenSet[str]
    reason: str
    user: str

    @property
    def out(self) -> bool:
        """Whether no job can start here."""
        return bool(self.flags & {"DRAIN", "DOWN", "FAIL"})

    @property
    def others(self) -> str:
        """The reason of somebody else who took the node out, empty where nobody did."""
        if not self.out or ours(self.reason) or (self.reason in LOST and "DRAIN" not in self.flags):
            return ""
        return f"{self.reason or 'no reason given'}{f' ({self.user})' if self.user else ''}"


def parse(line: str) -> Node:
    """A node of ``scontrol --oneliner show node``."""
    text = line.strip()
    state = _STATE.search(text)
    reason = _REASON.search(text)
    flags = frozenset(re.sub(r"[*~#!%$@^-]", "", state.group(1)).upper().split("+")) if state else frozenset()
    return Node(flags, reason.group(1).strip() if reason else "", (reason.group(2) or "") if reason else "")


def show(run: Run, name: str) -> Node:
    """The node as Slurm has it. Raises SchedulerError where that is not one node."""
    text = run(["scontrol", "--oneliner", "show", "node", name])
    lines = [line for line in text.splitlines() if line.startswith("NodeName=")]
    if len(lines) != 1 or not _STATE.search(lines[0]):
        raise SchedulerError(f"scontrol show node {name} shows {len(lines)} nodes where one with a state is needed")
    return parse(lines[0])


def jobs(run: Run, name: str) -> t.List[str]:
    """What holds the node: a line a job."""
    # Those of hidden partitions too. A user's name can have spaces.
    listed = run(["squeue", "--all", "--noheader", f"--nodelist={name}", "--format=%i %u %T"])
    rows = [line.split() for line in listed.splitlines() if line.strip()]
    return [f"job {row[0]} of {' '.join(row[1:-1]) or 'unknown'} ({row[-1].lower()})" for row in rows]


def drain(run: Run, name: str, reason: str) -> Drain:
    """Let no job start on the node any more, with our reason; what somebody else drained stays as it is."""
    node = show(run, name)
    if node.others:
        return Drain(held=node.others)
    changed = "DRAIN" not in node.flags or node.reason != reason
    if changed:
        run(["scontrol", "update", f"nodename={name}", "state=drain", f"reason={reason}"])
    return Drain(changed, jobs(run, name))


def resume(run: Run, name: str) -> Drain:
    """Give the node back to its jobs where the drain is a rollout's; any other stays, with its reason."""
    node = show(run, name)
    if not node.out:
        return Drain()
    if not of_rollout(node.reason):
        return Drain(held=node.others or node.reason)
    run(["scontrol", "update", f"nodename={name}", "state=resume"])
    return Drain(changed=True)
