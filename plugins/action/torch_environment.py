# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls the module of the same name again and again until its work is done, and prints how far it is."""

from __future__ import annotations

import importlib.util
import os
import sysconfig
import tempfile
import typing as t
import uuid
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import pip, wheel
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import manifest
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._environment.progress import Lines

MODULE = "gpufleet.pytorch.torch_environment"
#: Seconds that one call of the module waits: how often a person sees something new.
WAIT = 5.0
display = Display()


class ActionModule(ActionBase):
    """The module in slices, since a module cannot print while it runs."""

    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Run the task: slice after slice until the work is done."""
        super().run(tmp, task_vars)
        args = {"job": uuid.uuid4().hex, "wait": WAIT, **self._task.args}
        lines = Lines(str((task_vars or {}).get("inventory_hostname", "")))
        while True:
            result: dict[str, t.Any] = self._execute_module(module_name=MODULE, module_args=args, task_vars=task_vars)
            if result.get("failed") or result.get("finished", True) or result.get("unreachable"):
                result.pop("finished", None)
                return result
            if "wheels_needed" in result:
                if problem := _bring_wheels(self, args["bundle"], result, task_vars):
                    return {"failed": True, "msg": problem}
                args["brought"] = True
            elif not result.get("pip_needed"):
                for line in lines.next(result.get("progress") or {}):
                    display.display(line)
            elif "pip_wheel" in args or not (path := _bring(self, result["pip_needed"])):
                # Once more without slices: the module says itself what is missing.
                args["wait"] = 0
            else:
                args["pip_wheel"] = path


def _bring_wheels(
    action: ActionModule, bundle: str, needed: dict[str, t.Any], task_vars: dict[str, t.Any] | None
) -> str:
    """Copy wheels of the bundle into the host's store; why that cannot be, "" where it is done."""
    folder = Path(bundle).expanduser().absolute()
    lines = Lines(str((task_vars or {}).get("inventory_hostname", "")))
    for item in pip.read_lock(needed["wheels_needed"]):
        try:
            found = manifest.wheel(folder, item.sha256)
        except manifest.BundleProblem as problem:
            return str(problem)
        if found is None:
            return f"the bundle {folder} holds no wheel of {item.line}: make it again with this lock"
        for line in lines.next({"stage": f"bringing {found.name}"}):
            display.display(line)
        task = action._task.copy()
        task.args = {"src": str(found), "dest": f"{needed['store']}/{found.name}", "mode": "0644"}
        copy = action._shared_loader_obj.action_loader.get(
            "ansible.builtin.copy",
            task=task,
            connection=action._connection,
            play_context=action._play_context,
            loader=action._loader,
            templar=action._templar,
            shared_loader_obj=action._shared_loader_obj,
        )
        result = copy.run(task_vars=task_vars)
        if result.get("failed"):
            return f"{found.name} of the bundle could not be brought to {needed['store']}: {result.get('msg')}"
    return ""


def _bring(action: ActionModule, python: str) -> str:
    """Bring the controller's pip to the host; the path there, empty where the controller has none for that Python."""
    folders = [Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or "/nonexistent")]
    ensurepip = importlib.util.find_spec("ensurepip")
    if ensurepip and ensurepip.origin:  # Debian splits it off from Python
        folders.append(Path(ensurepip.origin).with_name("_bundled"))
    with tempfile.TemporaryDirectory() as made:
        wheels = [str(path) for folder in folders for path in folder.glob("pip-*.whl")]
        spec = importlib.util.find_spec("pip")
        if spec and spec.origin:
            wheels.append(wheel.wheel_of_installed(os.path.dirname(spec.origin), made))
        best = wheel.best_pip(filter(None, wheels), tuple(int(part) for part in python.split(".")))
        if not best:
            return ""
        folder = action._connection._shell.tmpdir or action._make_tmp_path()
        path: str = action._connection._shell.join_path(folder, os.path.basename(best))
        action._transfer_file(best, path)
        action._fixup_perms2((folder, path))
        return path
