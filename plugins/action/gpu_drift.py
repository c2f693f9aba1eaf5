# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of drift: asks the gate that is installed on the host, and gives a recording every finding."""

from __future__ import annotations

import json
import re
import shlex
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._gate import build
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import collect

MODULE = "gpufleet.pytorch.gpu_drift"
GATE = "/usr/local/bin/gpufleet-gate"
#: Where root's records lie unless the user says otherwise.
SYSTEM_DIR = "/etc/gpufleet"
#: Once a playbook, not once a host: Ansible imports this file before it makes a process for each host.
BUILD = build.build()


class ActionModule(ActionBase):
    """A host that the verdict would not call ready is not recorded, however well it multiplied."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """What the module returns; ``through`` says whether the gate or the module looked."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        if arguments.get("state") == "compared":
            return self._compare(arguments, variables)
        if arguments.get("state") == "recorded" and arguments.get("findings") is None:
            found = collect.host_findings(
                variables,
                finished=True,
                failure={},
                planned=collect.planned_of(str(variables["inventory_hostname"]), [variables]),
            )
            arguments["findings"] = [finding.to_dict() for finding in found]
        return self._module(arguments, variables)

    def _module(self, arguments: t.Mapping[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        result = self._execute_module(module_name=MODULE, module_args=dict(arguments), task_vars=variables)
        return {**result, "through": "module"}

    def _compare(self, arguments: dict[str, t.Any], variables: dict[str, t.Any]) -> dict[str, t.Any]:
        """Accept, look, acknowledge: the happy path, where nobody accepts anything, is one command on the host."""
        steps = []
        if arguments.get("accept"):
            steps.append(self._module({**arguments, "state": "accepted"}, variables))
            if steps[-1].get("failed"):
                return steps[-1]
        looked = None
        # A predicted acceptance is in no file that a gate could read.
        predicted = bool(steps) and self._task.check_mode and steps[-1].get("changed")
        if not arguments.get("python") and not predicted:
            within = 0 if arguments.get("accept") or arguments.get("acknowledge") else arguments.get("within") or 0
            looked = self._ask_gate(str(arguments.get("directory") or SYSTEM_DIR), within)
        steps.append(steps[-1] if predicted else looked or self._module(arguments, variables))
        if arguments.get("acknowledge") and not steps[-1].get("failed"):
            given = {**arguments, "state": "acknowledged", "findings": steps[-1].get("findings")}
            steps.append(self._module(given, variables))
        diffs = [step["diff"] for step in steps if step.get("diff")]
        changed = any(step.get("changed") for step in steps)
        through = steps[-2 if arguments.get("acknowledge") and len(steps) > 1 else -1]["through"]
        return {**steps[-1], "changed": changed, "through": through, **({"diff": diffs} if diffs else {})}

    def _ask_gate(self, directory: str, within: t.Any) -> dict[str, t.Any] | None:
        """The findings of a look by the host's gate, a fresh one or of the last ``within`` seconds.

        None where there is no gate of this code for this folder.
        """
        command = [GATE, "--fresh", "--json", f"--only={BUILD}:{directory}"]
        if not re.fullmatch("[0-9]{1,7}", str(within)):
            raise AnsibleActionFail(f"drift_within needs a number of seconds, 0 for a look of now; found {within!r}")
        if int(within):
            command.append(f"--within={within}")
        done = self._low_level_execute_command(shlex.join(command))
        try:
            verdict = json.loads(done["stdout"])
            if done["rc"] != {"ready": 0, "not_ready": 1, "unknown": 2}[verdict["state"]]:
                return None
            findings = list(verdict["findings"])
        except (ValueError, KeyError, TypeError):
            return None
        return {
            "changed": False,
            "findings": findings,
            "identity": verdict.get("identity") or {},
            "path": f"{directory}/expected.json",
            "through": "gate",
        }
