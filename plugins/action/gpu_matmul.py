# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the proof: lets so many hosts of a group compute at once, and no more."""

from __future__ import annotations

import contextlib
import typing as t

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import turns

MODULE = "gpufleet.pytorch.gpu_matmul"


class ActionModule(ActionBase):
    """The module, in its turn; see its documentation."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """What the module returns."""
        super().run(tmp, task_vars)
        arguments = self._task.args
        group, at_once = str(arguments.get("group") or ""), 0
        with contextlib.suppress(TypeError, ValueError):  # the module says what is wrong with it
            at_once = int(arguments.get("at_once") or 0)
        waits: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if at_once > 0 and not self._play_context.check_mode:
            host = (task_vars or {}).get("inventory_hostname", "")
            waits = turns.turn(
                turns.folder(), group, at_once,
                lambda: Display().display(f"{host}: waits for its turn in group {group!r}, {at_once} at once"),
            )  # fmt: skip
        with waits:
            result: dict[str, t.Any] = self._execute_module(
                module_name=MODULE, module_args=arguments, tmp=tmp, task_vars=task_vars
            )
            return result
