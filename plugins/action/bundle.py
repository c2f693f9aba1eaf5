# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of a bundle: begins its folder, gathers wheels, and writes the manifest that makes it one."""

from __future__ import annotations

import os
import tarfile
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import default_store
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import BUNDLE, LIST
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.closure import PLACE, WHOLE, source
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import gather, kinds, manifest
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import lock
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import targets

Vars = t.Mapping[str, t.Any]
#: Modules that are called here and have an action plugin.
ACTIONS = ("ansible.builtin.copy", "ansible.builtin.unarchive")
#: Where check mode puts an index; gone with the next start, if nothing else removes it.
PREDICTED = "/run/gpufleet-packages"


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
        """Bring the packages for one host there; the variable by which modules see them and nothing else.

        In check mode it is apt's index alone, in a folder that the role removes again.
        """
        seen, plan = facts["gpufleet_observed"], facts["gpufleet_plan"]
        try:
            name = kinds.archive(manifest.read(folder)["files"], seen)
        except manifest.BundleProblem as problem:
            raise AnsibleActionFail(str(problem)) from problem
        wanted = [f"to {plan['driver']['action']} a driver"] if kinds.changes(plan) else []
        wanted += [f"to have {item['part'].replace('_', ' ')}" for item in kinds.parts(facts)]
        if not name and wanted:
            raise AnsibleActionFail(
                f"the bundle {folder} has no packages for {kinds.kind(seen)}, and this host is {' and '.join(wanted)}:"
                " gather it with a host of this system, which has the same wishes, in the inventory"
            )
        if not name:
            return {"changed": False, "environment": {}, "predicted": ""}
        digest = Path(name).stem.rpartition("-")[2]
        place = f"{PLACE}/{digest}"
        there = self._call(
            "ansible.builtin.stat", {"path": f"{place}/{WHOLE}", "get_checksum": False, "get_mime": False}, facts
        )
        if there.get("failed"):
            return there
        if not there["stat"]["exists"]:
            archive = folder / name
            return (
                self._predict(archive, digest, facts) if self._task.check_mode else self._unpack(archive, place, facts)
            )
        return {"changed": False, "environment": {BUNDLE: place}, "predicted": ""}

    def _unpack(self, archive: Path, place: str, facts: Vars) -> dict[str, t.Any]:
        for module, args in (
            ("ansible.builtin.file", {"path": f"{place}/lists", "state": "directory", "mode": "0755"}),
            ("ansible.builtin.unarchive", {"src": str(archive), "dest": place}),
        ):
            result = self._call(module, args, facts)
            if result.get("failed"):
                return result
        return {"changed": True, "environment": {BUNDLE: place}, "predicted": ""}

    def _predict(self, archive: Path, digest: str, facts: Vars) -> dict[str, t.Any]:
        with tarfile.open(archive) as tar:
            index = tar.extractfile("Packages") if "Packages" in tar.getnames() else None
            text = index.read().decode("utf-8") if index else ""
        if not text:
            raise AnsibleActionFail(
                f"check mode unpacks nothing, and dnf reads packages themselves: what it would do with {archive} cannot"
                " be predicted before the first run"
            )
        place = f"{PREDICTED}-{digest}"
        for module, args in (
            ("ansible.builtin.file", {"path": f"{place}/lists", "state": "directory", "mode": "0755"}),
            ("ansible.builtin.copy", {"content": text, "dest": f"{place}/Packages", "mode": "0644"}),
            ("ansible.builtin.copy", {"content": source(place), "dest": f"{place}/{LIST}", "mode": "0644"}),
        ):
            result = self._call(module, args, facts)
            if result.get("failed"):
                return result
        return {"changed": True, "environment": {BUNDLE: place}, "predicted": place}

    def _call(self, name: str, args: dict[str, t.Any], facts: Vars) -> dict[str, t.Any]:
        """Run another module on the host, through its action plugin where it has one; in check mode too."""
        task = self._task.copy()
        task.action, task.args, task.check_mode = name, args, False
        action = self._shared_loader_obj.action_loader.get(
            name if name in ACTIONS else "ansible.legacy.normal",
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
