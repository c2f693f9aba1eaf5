# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the gate's installation: says which code it is, and brings pynvml along."""

from __future__ import annotations

import typing as t

from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._gate import build


class ActionModule(ActionBase):
    """The module of the same name, with what only the controller has."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """What the module returns."""
        super().run(tmp, task_vars)
        arguments = {**self._task.args, "build": build.build(), "pynvml": build.pynvml()}
        result = self._execute_module(
            module_name="gpufleet.pytorch.gate", module_args=arguments, tmp=tmp, task_vars=task_vars or {}
        )
        result.pop("invocation", None)
        return t.cast("dict[str, t.Any]", result)
