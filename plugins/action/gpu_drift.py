# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of recording: gives the module every finding of the host, not the proof's alone."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import collect


class ActionModule(ActionBase):
    """A host that the verdict would not call ready is not recorded, however well it multiplied."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """What the module returns."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        if arguments.get("state") == "recorded" and arguments.get("findings") is None:
            found = collect.host_findings(
                variables,
                finished=True,
                failure={},
                planned=collect.planned_of(str(variables["inventory_hostname"]), [variables]),
            )
            arguments["findings"] = [finding.to_dict() for finding in found]
        return t.cast(
            "dict[str, t.Any]",
            self._execute_module(
                module_name="gpufleet.pytorch.gpu_drift", module_args=arguments, tmp=tmp, task_vars=variables
            ),
        )
