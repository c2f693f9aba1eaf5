# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of planning: plans all hosts of the play at once, and writes or holds a lock."""

from __future__ import annotations

import dataclasses
import json
import os
import typing as t
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import manifest
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import lock, wheels
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import planning, targets

Vars = t.Mapping[str, t.Any]


class ActionModule(ActionBase):
    """Runs once for all hosts of the play; see the documentation of the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """The plan of every host that was observed, by name."""
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            argument_spec={
                "lock": {"type": "path", "default": ""},
                "write_lock": {"type": "bool", "default": False},
                "bundle": {"type": "path", "default": ""},
            }
        )
        facts = task_vars or {}
        hosts = {name: facts["hostvars"][name] for name in facts["ansible_play_hosts_all"]}
        observations = {
            name: found["observed"]
            for name, variables in hosts.items()
            if isinstance(found := variables.get("plan_observed"), t.Mapping) and found.get("observed")
        }
        planned = planning.plan_hosts(hosts, observations)
        changed = False
        bundle = "" if options["write_lock"] else options["bundle"]
        if options["lock"] or bundle:
            try:
                if bundle:
                    # All of it, and before anything is installed.
                    manifest.verify(Path(bundle).absolute())
                    options["lock"] = options["lock"] or os.path.join(bundle, manifest.LOCK)
                if options["write_lock"]:
                    changed = self._write(options["lock"], hosts, observations, planned)
                else:
                    _hold(options["lock"], hosts, observations, planned, anywhere=bool(bundle))
            except (lock.LockProblem, manifest.BundleProblem, OSError) as problem:
                # Every host keeps its plan, and what is wrong with it; the others say what is wrong with the lock.
                for item in planned.values():
                    where = "" if isinstance(problem, manifest.BundleProblem) else f"{options['lock']}: "
                    item.msg = item.msg or f"{where}{problem}"
        return {
            "changed": changed,
            "hosts": {
                name: {**dataclasses.asdict(item), "findings": [finding.to_dict() for finding in item.findings]}
                for name, item in planned.items()
            },
        }

    def _write(self, path: str, hosts: Vars, observations: Vars, planned: t.Mapping[str, planning.Planned]) -> bool:
        """Find the wheels of every plan and write the lock; False where it is there already."""
        file = Path(path).absolute()
        before = _lock_text(file) if file.exists() else ""
        if before:
            lock.parse(before)  # Whatever else lies there belongs to somebody.
        if not os.access(file.parent, os.W_OK):
            raise lock.LockProblem(f"the folder {file.parent} is not there or cannot be written")
        Display().display(f"finding the wheels of {len(planned)} plans; this asks the package index")
        found: dict[tuple[t.Any, ...], list[str]] = {}
        locked: dict[str, lock.Locked] = {}
        for name, item in planned.items():
            if item.plan.get("status") != "ok":
                raise lock.LockProblem(f"nothing is locked while {name} has no plan")
            target = targets.target(hosts[name], observations[name], item.plan)
            requirements = targets.requirements(hosts[name], item.plan)
            key = (target, *requirements)
            if key not in found:
                found[key] = wheels.resolve(target, requirements)
            locked[name] = {"plan": item.plan, "target": targets.cells(target), "wheels": found[key]}
        # Ansible's own kinds of text carry where they come from; a lock holds plain text.
        text = lock.build(json.loads(json.dumps(locked)))
        if before == text:
            return False
        if not self._play_context.check_mode:
            write_atomic(str(file), text)
        return True


def _lock_text(file: Path) -> str:
    """What lies there. Raises LockProblem where it is nothing that a lock could be."""
    if not file.exists():
        raise lock.LockProblem("there is no such file; make it with plan.yml -e plan_lock=FILE")
    if not file.is_file():
        raise lock.LockProblem("this is no file; name the file of a lock")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise lock.LockProblem("this is no text, so no lock; name the file of a lock") from None


def _hold(
    path: str, hosts: Vars, observations: Vars, planned: t.Mapping[str, planning.Planned], anywhere: bool = False
) -> None:
    """Give every plan the wheels of the lock, or say how it is not what was locked.

    ``anywhere``: a host that the lock does not name may have what was locked for another.
    """
    text = _lock_text(Path(path))
    for name, item in planned.items():
        if item.plan.get("status") != "ok":
            continue
        target = targets.cells(targets.target(hosts[name], observations[name], item.plan))
        differences, lines = (lock.check_any if anywhere else lock.check)(text, name, item.plan, target)
        if differences:
            item.msg = f"the plan is not what {path} holds: " + "; ".join(lock.describe(differences))
        else:
            item.plan["torch"]["wheels"] = lines
