# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the packages of a bundle: one host of each system gathers them."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import kinds
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle.manifest import BundleProblem


class ActionModule(ActionBase):
    """Runs the module of the same name on the hosts that gather."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """The module's answer, or one of no archive where another host gathers the same."""
        super().run(tmp, task_vars)
        facts = task_vars or {}
        hosts = {
            name: {"observed": known["gpufleet_observed"], "plan": known["gpufleet_plan"], "parts": kinds.parts(known)}
            for name in facts["ansible_play_hosts"]
            if (known := facts["hostvars"][name]).get("gpufleet_plan")
        }
        try:
            chosen = kinds.gathering(hosts)
        except BundleProblem as problem:
            raise AnsibleActionFail(str(problem)) from problem
        name = facts["inventory_hostname"]
        if chosen.get(kinds.kind(hosts[name]["observed"])) != name:
            return {"changed": False, "archive": "", "name": "", "packages": []}
        args = {**self._task.args, "parts": hosts[name]["parts"]}
        result: dict[str, t.Any] = self._execute_module(module_args=args, task_vars=task_vars)
        return result
