# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's HealthCheckProgram: drains this node for what the verdict says, and clears what it drained itself.

It looks at nothing but the verdict and always ends with 0: slurmd does not register before it has seen that, and kills
the program after 60 s. Everything it does is said in the system's log.

How many nodes the automation holds is limited over the whole cluster, without a lock: after a drain it waits until the
controller's clock is past that second, so that every earlier drain can be seen, and takes its own back where as many
as are allowed came before. States and verbs are those of slurm.conf(5) and scontrol(1).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _words
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict

#: How each reason of ours begins, and a rollout's, which is not touched here.
OURS = "gpufleet: gate: "
ROLLOUTS = "gpufleet: rollout "
#: What slurmd drains a node with whose Prolog failed.
PROLOG_FAILED = "Prolog error"
#: Written by the Prolog when it refused a job: the job's number.
REFUSED = "slurm-refused"
#: There as long as the limit keeps this node from being drained: it is said once.
AT_LIMIT = "slurm-limit"
REASON_LIMIT = 240
SETTLE_S = 2.0

#: Runs scontrol with these arguments: what it printed, None where it failed.
Scontrol = t.Callable[[t.Sequence[str]], t.Optional[str]]


class Node(t.NamedTuple):
    """A node as ``scontrol --oneliner show node`` prints it."""

    name: str
    states: t.FrozenSet[str]
    reason: str
    since: str

    @property
    def drained(self) -> bool:
        """Whether it takes no new job on somebody's word."""
        return "DRAIN" in self.states


def nodes(text: str) -> t.List[Node]:
    """The nodes of that output. A reason is a person's text and may hold anything."""
    found = []
    for line in text.splitlines():
        name = re.match(r"NodeName=(\S+)", line)
        state = re.search(r" State=(\S+)", line)
        if name and state:
            why = re.search(r" Reason=(.*?) \[[^\s\[\]]+@(\d{4}-[\d:T-]+|Unknown)\](?: [A-Z]\w*=.*)?$", line)
            states = frozenset(re.split(r"[+*~#!%$@^-]", state[1])) - {""}
            found.append(Node(name[1], states, why[1] if why else "", why[2] if why else ""))
    return found


def due(made: verdict.Verdict, unknown_too: bool = False) -> str:
    """Why this verdict drains its node, empty where it does not.

    Only what failed, blocks and names an action does; what could not be told does where the site wants that.
    """
    wanted = {"fail", "unknown"} if unknown_too else {"fail"}
    if made["state"] not in ({"not_ready", "unknown"} if unknown_too else {"not_ready"}):
        return ""
    why = [
        finding
        for finding in made["findings"]
        if finding["state"] in wanted and finding["policy"] == "block" and finding["action"] != "none"
    ]
    return _reason(why) if why else ""


def _reason(why: t.Sequence[t.Mapping[str, t.Any]]) -> str:
    """One line for whoever runs sinfo -R: the worst first, and how many there are."""
    first = min(why, key=lambda finding: finding["state"] != "fail")
    key = f" {first['subject']['key']}" if first["subject"].get("key") else ""
    more = f" (and {len(why) - 1} more)" if len(why) > 1 else ""
    tail = f" -> {first['action']}{more}"
    text = _words.plain(f"{OURS}{first['check']}{key}: {first['found']}")
    # Brackets are how Slurm marks who set a reason, and when.
    return text[: REASON_LIMIT - len(tail)].replace("[", "(").replace("]", ")") + tail


def step(made: verdict.Verdict, node: Node, refused: bool, why: str) -> str:
    """What is to be done: ``hold`` the node drained under our name, ``clear`` it, or nothing.

    ``refused``: the Prolog of ours refused a job here, so what Slurm drained for a failed Prolog is ours.
    """
    ours = node.reason.startswith(OURS) or (node.reason == PROLOG_FAILED and refused)
    if not node.drained:
        return "hold" if why else ""
    if not ours:
        return ""
    if made["state"] == "ready":
        return "clear"
    return "" if node.reason.startswith(OURS) else "hold"


def allowed(limit: str, total: int) -> int:
    """How many nodes of ``total`` may be drained at once; a share of them is one at least. ValueError for no number."""
    match = re.match(r"(\d{1,9})(%?)$", limit.strip())
    if match is None or (match[2] and int(match[1]) > 100):
        raise ValueError(f"the limit of drained nodes is {limit!r}; it is a number, or a share as 5%")
    number = int(match[1])
    return max(total * number // 100, 1) if match[2] and number else number


def held(all_nodes: t.Iterable[Node]) -> t.List[Node]:
    """The nodes that automation of ours holds, a rollout's too, in the order in which they were drained."""
    mine = [node for node in all_nodes if node.drained and node.reason.startswith((OURS, ROLLOUTS))]
    return sorted(mine, key=lambda node: (node.since, node.name))


class Health:
    """One run of the program on this node."""

    def __init__(
        self, name: str, scontrol: Scontrol, folder: str, limit: str, say: t.Callable[[str], None],
        sleep: t.Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._name = name
        self._scontrol = scontrol
        self._refused = os.path.join(folder, REFUSED)
        self._at_limit = os.path.join(folder, AT_LIMIT)
        self._limit = limit
        self._say = say
        self._sleep = sleep

    def run(self, made: verdict.Verdict, unknown_too: bool = False) -> str:
        """Do what the verdict asks for, and return what that was: ``held``, ``cleared``, ``limit`` or nothing."""
        shown = nodes(self._scontrol(["--oneliner", "show", "node", self._name]) or "")
        if len(shown) != 1:
            self._say(f"Slurm does not show node {self._name}: nothing was done")
            return ""
        node = shown[0]
        self._name = node.name
        why = due(made, unknown_too)
        what = step(made, node, os.path.exists(self._refused), why)
        if what == "hold":
            what = self._hold(node, why or f"{OURS}the Prolog refused a job, the host is {made['state']}")
        elif what == "clear":
            what = "cleared" if self._update("undrain") else ""
            if what:
                self._say(f"node {self._name} is ready again, cleared of: {node.reason}")
        if what != "limit":
            _remove(self._at_limit)
        if what == "cleared" or (made["state"] == "ready" and not node.drained):
            _remove(self._refused)
        return what

    def _hold(self, node: Node, why: str) -> str:
        room = self._rank(None)
        if room and self._update("drain", why):
            self._sleep(SETTLE_S)
            if self._rank(self._name) is not False:
                self._say(f"node {self._name} drained: {why}")
                return "held"
            room, node = False, node._replace(states=node.states | {"DRAIN"})
        if room is not False:
            return ""
        if node.drained:
            self._update("undrain")
        if not os.path.exists(self._at_limit):
            self._say(f"node {self._name} stays in service at the limit of {self._limit} drained nodes, for: {why}")
            with open(self._at_limit, "w", encoding="utf-8") as stream:
                stream.write(why + "\n")
        return "limit"

    def _rank(self, name: t.Optional[str]) -> t.Optional[bool]:
        """Whether there is room: for one more, or for ``name`` behind those drained before it. None: nobody can say."""
        shown = nodes(self._scontrol(["--oneliner", "show", "node"]) or "")
        names = [node.name for node in held(shown)]
        if not shown or (name and name not in names):
            return None  # no answer; or a person has given another reason since, which holds
        return (names.index(name) if name else len(names)) < allowed(self._limit, len(shown))

    def _update(self, state: str, reason: str = "") -> bool:
        words = ["update", f"nodename={self._name}", f"state={state}"] + ([f"reason={reason}"] if reason else [])
        done = self._scontrol(words) is not None
        if not done:
            self._say(f"Slurm refused to {state} node {self._name}")
        return done


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
