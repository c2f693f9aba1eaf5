#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_claim
short_description: Takes a host for a rollout, and gives it back
version_added: "0.1.0"
description:
  - Leaves the mark C(rollout.json) with its owner beside C(expected.json), so that a rollout of another controller does
    not touch the host. The mark survives a restart.
  - Before that, waits for commands of an earlier run of a rollout that outlived it. It knows them by the variable
    C(GPUFLEET_ROLLOUT) in their environment.
options:
  state:
    description: Whether to take the host or to give it back.
    type: str
    choices: [claimed, released]
    required: true
  owner:
    description: Controller and folder of the rollout. The same owner takes the host again, another one is refused.
    type: str
    required: true
  run:
    description: This run, as before the slash in C(GPUFLEET_ROLLOUT). Commands of the same run are not waited for.
    type: str
    required: true
  host:
    description: Name of the host, as behind the slash in C(GPUFLEET_ROLLOUT).
    type: str
    required: true
  directory:
    description: Folder of the mark. Not given, it is that of M(gpufleet.pytorch.gpu_drift).
    type: path
  timeout:
    description: Seconds to wait for commands that outlived an earlier run.
    type: int
    default: 600
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Take the host
  gpufleet.pytorch.rollout_claim:
    state: claimed
    owner: "{{ rollout_begun.owner }}"
    run: "{{ rollout_begun.run }}"
    host: "{{ inventory_hostname }}"
"""

RETURN = r"""
held:
  description: Why the host cannot be taken or given back, because another rollout has it. Empty where that went well.
  type: str
  returned: always
proved_plan:
  description: The plan of the last proof of this host, from C(expected.json); empty where there is none.
  type: dict
  returned: O(state=claimed)
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import now
from ansible_collections.gpufleet.pytorch.plugins.module_utils._rollout import claim
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import StateError, directory_of, read_expected


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["claimed", "released"], "required": True},
            "owner": {"type": "str", "required": True},
            "run": {"type": "str", "required": True},
            "host": {"type": "str", "required": True},
            "directory": {"type": "path"},
            "timeout": {"type": "int", "default": 600},
        },
        supports_check_mode=True,
    )
    try:
        directory = directory_of(module.params["directory"] or "", os.geteuid(), os.environ)
        module.exit_json(**(_take if module.params["state"] == "claimed" else _give)(module, directory))
    except StateError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"the rollout's mark cannot be written to this host: {error}; nothing was changed on it")


def _take(module: AnsibleModule, directory: str) -> t.Dict[str, t.Any]:
    params = module.params
    try:
        made = claim.claim(directory, params["owner"], now(), module.check_mode)
    except claim.Claimed as error:
        return {"changed": False, "held": str(error), "proved_plan": {}}
    end = time.monotonic() + params["timeout"]
    left = claim.outlived(params["run"], params["host"])
    while left:
        if time.monotonic() > end:
            names = "; ".join(f"{pid}: {command}" for pid, command in left[:5])
            module.fail_json(
                msg=f"commands of an earlier run still change this host after {params['timeout']} s: {names}"
            )
        time.sleep(0.5)
        left = claim.outlived(params["run"], params["host"])
    try:
        expected = read_expected(directory) or {}
    except StateError:
        expected = {}  # A rollback is then not possible, and a proof writes it anew.
    return {"changed": made, "held": "", "proved_plan": expected.get("plan") or {}}


def _give(module: AnsibleModule, directory: str) -> t.Dict[str, t.Any]:
    try:
        if module.check_mode:
            return {"changed": claim.read(directory) is not None, "held": ""}
        return {"changed": claim.release(directory, module.params["owner"]), "held": ""}
    except claim.Claimed as error:
        return {"changed": False, "held": str(error)}


if __name__ == "__main__":
    main()
