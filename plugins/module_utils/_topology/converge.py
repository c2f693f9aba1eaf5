# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of things: look at the host, decide, and write what changes unless somebody computes."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import paths
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import topology as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import busy
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host as host_probe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import visibility
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.observe import observe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import (
    acs,
    build,
    decide,
    files,
    look,
    tree,
)


@dataclass
class Done:
    """What the module answers."""

    shape: str
    xml: str
    topology: t.Dict[str, t.Any]
    environment: t.Dict[str, str]
    changed: t.List[str]
    diff: t.List[t.Dict[str, str]]
    findings: t.List[Finding]


def converge(runner: Runner, wish: decide.Wish, proceed: bool, check: bool, python: str, script: str) -> Done:
    """Make the host as the wish says; with ``check``, say what would change.

    ``proceed``: also while GPUs are in use. ``script``: the text of what the boot unit runs. Raises ValueError for a
    wish that cannot be, and OSError for a file that cannot be written, with its path.
    """
    observed = observe(runner)
    machine = host_probe.machine(runner)
    virtual = "" if machine == "none" else machine
    seen, gpus, topology, error = look.look(runner, observed)
    # What belongs to the host is not a container's to change.
    container = observed["host"]["virtualization"] in visibility.CONTAINERS
    host = decide.Host(
        seen=seen,
        topology=topology,
        virtual=virtual,
        plugin=files.plugin(runner),
        texts=files.texts(runner, wish.files),
        interfaces=runner.listdir("/sys/class/net"),
        read=lambda path: _text(runner, path),
        wanted_by=runner.link(decide.WANTS) or "",
    )
    clears = wish.clear_acs and not virtual and not container
    decision = decide.decide(host, decide.replaced(wish, clears), python, script)
    ids = {address: str(seen["devices"][address]["device"] or "")[2:] for address in topology["gpus"]}
    findings = [*decision.findings, *checks.judge(topology, ids, bool(virtual), error)]
    registers = acs.read(runner.path(acs.DEVICES))
    redirects = clears and any(value and value & acs.REDIRECTION for value in registers.values())
    changes = decision.changes
    wanted = [*(change.path for change in changes), *(["ACS"] if redirects else [])]
    waits = _waits(runner, observed, proceed) if wanted else ""
    if waits:
        findings.append(
            Finding(
                "topology-waits",
                "warn",
                found=f"not changed: {', '.join(wanted)}, {waits}",
                expected="root, and no process and no job on the GPUs",
                reason="drain the host and run again, or set topology_when_busy: proceed",
                policy="report",
            )
        )
        changes, redirects, wanted = [], False, []
    if not check:
        for change in changes:
            files.write(runner, change)
        if redirects:
            acs.clear(runner.path(acs.DEVICES))
            registers = acs.read(runner.path(acs.DEVICES))
    elif redirects:
        registers = dict.fromkeys(registers, 0)
    findings.append(paths.acs(registers, bool(virtual), clears))
    system = decision.choice.system or build.build(seen, gpus, str(observed["host"]["arch"]))
    return Done(
        decision.choice.shape,
        tree.write(system),
        topology,
        decision.environment,
        wanted,
        [
            {"before_header": change.path, "after_header": change.path,
             "before": _shown(change.before), "after": _shown(change.text)}
            for change in changes
        ],
        findings,
    )  # fmt: skip


def _waits(runner: Runner, observed: t.Mapping[str, t.Any], proceed: bool) -> str:
    """Why nothing may be changed now, "" where it may."""
    if runner.uid() != 0 and not runner.root:
        return f"as this is user {runner.uid()}: set become"
    if proceed:
        return ""
    hostname = str(observed["host"]["hostname"] or os.uname().nodename)
    users = [str(user) for user in busy.users(runner.path("/proc")) + busy.jobs(runner, hostname)]
    return f"as the GPUs are in use by {', '.join(users[:4])}" if users else ""


def _text(runner: Runner, path: str) -> t.Optional[str]:
    data = runner.read_bytes(path, files.LIMIT)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _shown(text: t.Optional[str]) -> str:
    """A text that JSON can carry."""
    return (text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
