# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of a bundle: begins its folder, gathers wheels, and writes the manifest that makes it one."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import default_store
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.closure import PLACE
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import gather, kinds, manifest
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import lock
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import targets

Vars = t.Mapping[str, t.Any]


class ActionModule(ActionBase):
    """See the documentation of the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """What the bundle holds, by path, once it is gathered."""
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            argument_spec={
                "state": {"type": "str", "choices": ["begun", "gathered", "placed"], "required": True},
                "directory": {"type": "path", "required": True},
                "pythons": {"type": "list", "elements": "str", "default": []},
            }
        )
        folder = Path(options["directory"]).absolute()
        if options["state"] == "placed":
            return self._place(folder, task_vars or {})
        if self._play_context.check_mode:
            return {"changed": False, "skipped": True, "msg": "a bundle is not predicted: plan.yml shows the plans"}
        try:
            if options["state"] == "begun":
                manifest.begin(folder)
                return {"changed": True}
            return self._gather(folder, task_vars or {}, options)
        except (manifest.BundleProblem, lock.LockProblem, OSError) as problem:
            raise AnsibleActionFail(str(problem)) from problem

    def _place(self, folder: Path, facts: Vars) -> dict[str, t.Any]:
        """Bring the packages for one host there; how apt is to be called for it to see them and nothing else."""
        seen, plan = facts["gpufleet_observed"], facts["gpufleet_plan"]
        try:
            name = kinds.archive(manifest.read(folder)["files"], seen)
        except manifest.BundleProblem as problem:
            raise AnsibleActionFail(str(problem)) from problem
        if not name and kinds.changes(plan):
            raise AnsibleActionFail(
                f"the bundle {folder} has no packages for {kinds.kind(seen)}, and the plan is to"
                f" {plan['driver']['action']} a driver: gather it with a host of this system in the inventory"
            )
        if not name:
            return {"changed": False, "environment": {}}
        place = f"{PLACE}/{Path(name).stem.rpartition('-')[2]}"
        changed = False
        for module, args in (
            ("ansible.builtin.file", {"path": f"{place}/lists", "state": "directory", "mode": "0755"}),
            (
                "ansible.builtin.unarchive",
                {"src": str(folder / name), "dest": place, "creates": f"{place}/apt.conf"},
            ),
        ):
            result = self._call(module, args, facts)
            if result.get("failed"):
                return result
            changed = changed or bool(result.get("changed"))
            if changed and self._play_context.check_mode:
                raise AnsibleActionFail(
                    f"check mode unpacks nothing, so what apt would do with {folder / name} cannot be predicted"
                    " before the first run"
                )
        return {"changed": changed, "environment": {"APT_CONFIG": f"{place}/apt.conf"}}

    def _call(self, name: str, args: dict[str, t.Any], facts: Vars) -> dict[str, t.Any]:
        """Run another module on the host, through its action plugin where it has one."""
        if name == "ansible.builtin.file":
            done: dict[str, t.Any] = self._execute_module(module_name=name, module_args=args, task_vars=dict(facts))
            return done
        task = self._task.copy()
        task.args = args
        action = self._shared_loader_obj.action_loader.get(
            name,
            task=task,
            connection=self._connection,
            play_context=self._play_context,
            loader=self._loader,
            templar=self._templar,
            shared_loader_obj=self._shared_loader_obj,
        )
        result: dict[str, t.Any] = action.run(task_vars=dict(facts))
        return result

    def _gather(self, folder: Path, facts: Vars, options: Vars) -> dict[str, t.Any]:
        text = (folder / manifest.LOCK).read_text(encoding="utf-8")
        locked = lock.parse(text)
        stores = [default_store(os.geteuid(), os.environ)]
        for name, plan in locked["hosts"].items():
            variables = facts["hostvars"][name]
            wanted = targets.target(variables, variables["gpufleet_observed"], variables["gpufleet_plan"])
            Display().display(f"  {name}: gathering the wheels of {plan}")
            own = [str(variables["pytorch_wheel_store"])] if variables.get("pytorch_wheel_store") else []
            gather.of_lock(wanted, locked["plans"][plan]["wheels"], folder / manifest.WHEELS, [*own, *stores])
        Display().display("  gathering the wheels of ./run")
        gather.of_run(options["pythons"], folder / manifest.RUN)
        made = manifest.finish(folder)
        size = sum(entry["size"] for entry in made["files"].values())
        Display().display(f"bundle: {folder}, {len(made['files'])} files, {size / 1e6:.0f} MB")
        return {"changed": True, "files": sorted(made["files"])}
