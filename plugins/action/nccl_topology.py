# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the topology: the module on the host, then the picture of what it returned."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import svg, tree


class ActionModule(ActionBase):
    """See the documentation of the module of the same name."""

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """What the module returns, and the path of the picture."""
        super().run(tmp, task_vars)
        variables = task_vars or {}
        arguments = dict(self._task.args)
        folder = str(arguments.pop("picture", None) or "")
        result: dict[str, t.Any] = self._execute_module(
            module_name="gpufleet.pytorch.nccl_topology", module_args=arguments, tmp=tmp, task_vars=variables
        )
        if folder and result.get("topology") and not self._play_context.check_mode:
            host = str(variables["inventory_hostname"])
            result["picture"] = _draw(Path(folder), host, result)
        return result


def _draw(folder: Path, host: str, result: t.Mapping[str, t.Any]) -> str:
    """Write the picture and return its path. A host's name may hold what a file's name may not."""
    path = folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', host).lstrip('.') or 'host'}.svg"
    text = svg.draw(host, tree.parse(result["xml"]), result["topology"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise AnsibleActionFail(
            f"the picture cannot be written to {path}: {error}; set topology_picture: false, or report_directory to a"
            " writable folder"
        ) from error
    return str(path)
