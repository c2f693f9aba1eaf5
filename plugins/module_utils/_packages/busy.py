# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses the host right now: processes that hold a GPU, jobs of a scheduler, people who are logged in."""

from __future__ import annotations

import os
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

_NODE = re.compile(r"^/dev/(?:nvidia\d+|nvidia-uvm)$")
#: The driver's own services and monitors: they hold nodes and train nothing.
SERVICES = ("nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-imex", "dcgm-exporter", "nvlsm")
#: Slurm runs one of these for each step of a job on the node.
STEPS = ("slurmstepd",)
#: Seconds. squeue gives up on a controller that is gone after nine.
SQUEUE_LIMIT = 20.0
LOGINCTL_LIMIT = 10.0


@dataclass(frozen=True)
class User:
    """One process or job that uses the GPUs: ``why`` is the node that it holds; ``pid`` is 0 for a job."""

    pid: int
    command: str
    why: str

    def __str__(self) -> str:
        return f"{self.command} ({f'pid {self.pid}, ' if self.pid else ''}{self.why})"


def users(proc: str = "/proc") -> t.List[User]:
    """The processes that would lose their GPU, by pid. As root all are seen; a process that ends meanwhile is none."""
    found = []
    for name in sorted((entry for entry in os.listdir(proc) if entry.isdigit()), key=int):
        folder = os.path.join(proc, name)
        try:
            with open(os.path.join(folder, "comm"), encoding="utf-8", errors="replace") as stream:
                command = stream.read().strip()
            why = _scheduled(folder) if command.startswith(STEPS) else _held(folder)
        except OSError:
            continue
        if why and command not in SERVICES:
            found.append(User(int(name), command, why))
    return found


def of_image(proc: str = "/proc", root: str = "/") -> t.List[User]:
    """Of ``users`` those whose root is the image's: a chroot also sees what the machine that builds it runs."""
    here = os.stat(root)
    found = []
    for user in users(proc):
        try:
            inside = os.path.samestat(os.stat(os.path.join(proc, str(user.pid), "root")), here)
        except OSError:
            continue
        if inside:
            found.append(user)
    return found


def jobs(runner: Runner, hostname: str) -> t.List[User]:
    """What Slurm runs on this host. An allocation may have no process here yet, so Slurm is asked.

    A Slurm that does not answer counts as a job: whether somebody computes is then unknown.
    """
    if runner.which("squeue") is None:
        return []
    node = hostname.split(".", 1)[0]
    argv = ["squeue", "--noheader", f"--nodelist={node}", "--format=%i %u"]
    result = runner.run(argv, limit=SQUEUE_LIMIT)
    if result.rc == 0:
        rows = [line.split() for line in result.out.splitlines() if line.strip()]
        return [User(0, f"job {row[0]}", f"of {row[-1]} in Slurm") for row in rows]
    if "Invalid node name" in result.err:
        return []  # a host that only asks, such as a login node
    return [User(0, "squeue", f"does not say which jobs run here: {result.problem}")]


def sessions(runner: Runner) -> t.List[User]:
    """Who is logged in, or left something running when they logged out: a restart ends it. Our own session is none.

    A logind that does not answer counts as a session: who is there is then unknown.
    """
    if runner.which("loginctl") is None:
        return []
    listed = runner.run(["loginctl", "list-sessions", "--no-legend"], limit=LOGINCTL_LIMIT)
    if listed.rc != 0:
        return [User(0, "loginctl", f"does not say who is logged in: {listed.problem}")]
    own = re.search(r"/session-(\w+)\.scope$", runner.read("/proc/self/cgroup") or "", re.MULTILINE)
    ids = [line.split()[0] for line in listed.out.splitlines() if line.strip()]
    ids = [name for name in ids if own is None or name != own[1]]
    if not ids:
        return []
    fields = "Name,Leader,TTY,RemoteHost,Class,State"
    shown = runner.run(["loginctl", "show-session", *ids, f"--property={fields}"], limit=LOGINCTL_LIMIT)
    return parse_sessions(shown.out)


def parse_sessions(text: str) -> t.List[User]:
    """The people among the sessions of ``loginctl show-session``, whose blocks are parted by an empty line."""
    found = []
    for block in text.strip().split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if values.get("Class") != "user":
            continue  # a greeter, a manager of units, a timer's session
        place = " ".join(filter(None, (values.get("TTY", ""), values.get("RemoteHost", "").replace("UNKNOWN", ""))))
        gone = values.get("State") == "closing"
        why = "logged out, and something of theirs runs" if gone else f"logged in{' at ' + place if place else ''}"
        found.append(User(int(values.get("Leader") or 0), values.get("Name", "somebody"), why))
    return found


def _scheduled(folder: str) -> str:
    with open(os.path.join(folder, "cmdline"), "rb") as stream:
        title = stream.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    match = re.search(r"\[(\d+)\.", title)
    return f"Slurm job {match[1]}" if match else f"a step of Slurm: {title}"


def _held(folder: str) -> str:
    for entry in os.listdir(os.path.join(folder, "fd")):
        try:
            target = os.readlink(os.path.join(folder, "fd", entry))
        except OSError:
            continue
        if _NODE.match(target):
            return f"has {target} open"
    return ""
