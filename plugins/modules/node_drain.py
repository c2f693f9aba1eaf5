#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_drain
short_description: Drains a node of a scheduler with a reason, and resumes it
version_added: "0.1.0"
description:
  - Runs where the scheduler's command is, C(scontrol) and C(squeue) of Slurm or C(kubectl), as a user who may drain.
  - It waits for nothing. It tells what still runs on the node, so that a task can ask again.
  - What somebody else drained is left as it is, and only a drain of a rollout is resumed.
options:
  scheduler:
    description: The scheduler.
    type: str
    choices: [slurm, kubernetes]
    required: true
  node:
    description: Name of the node in the scheduler.
    type: str
    required: true
  state:
    description:
      - V(drained) lets no job start on the node any more.
      - V(resumed) gives it back, where the reason of its drain begins with the words of O(reason)'s default.
    type: str
    choices: [drained, resumed]
    required: true
  reason:
    description: Why, in the scheduler's own list. It begins with the words of O(reason)'s default.
    type: str
    default: "gpufleet: rollout"
  evict:
    description:
      - Of Kubernetes, whether pods are evicted. Otherwise their end is waited for.
      - Pods of a DaemonSet stay in either case.
    type: bool
    default: false
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
- name: Drain a node and wait for its jobs
  gpufleet.pytorch.node_drain:
    scheduler: slurm
    node: gpu01
    state: drained
    reason: "gpufleet: rollout of driver 580"
  delegate_to: slurm-controller
  register: drained
  until: drained.busy is defined and not drained.busy
  retries: 720
  delay: 5
"""

RETURN = r"""
busy:
  description: What still runs on the node.
  type: list
  elements: str
  returned: success
  sample: ["job 12 of alice (running)"]
clock:
  description: Seconds on a clock of the scheduler's host that nobody sets, to tell how long a drain takes.
  type: float
  returned: success
held:
  description: The reason of somebody else's drain, which stays. Empty where there is none.
  type: str
  returned: success
"""

import re
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._rollout import kubernetes, slurm
from ansible_collections.gpufleet.pytorch.plugins.module_utils._rollout.drain import (
    LIMIT,
    ROLLOUT,
    Drain,
    SchedulerError,
    of_rollout,
)

#: What the schedulers' commands are told to do where they change something.
CHANGING = ("update", "annotate", "cordon", "uncordon", "drain")


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "scheduler": {"type": "str", "choices": ["slurm", "kubernetes"], "required": True},
            "node": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["drained", "resumed"], "required": True},
            "reason": {"type": "str", "default": ROLLOUT},
            "evict": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params = module.params
    reason = " ".join(params["reason"].split())
    # Of a list or a range of names, as gpu[1-8], all would be drained.
    if not re.match(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z", params["node"]):
        module.fail_json(msg=f"rollout_node is {params['node']!r}; the name of one node is needed. Nothing was done")
    if not of_rollout(reason):
        module.fail_json(msg=f"the reason {reason!r} does not begin with {ROLLOUT!r}: nobody could resume the node")
    runner = Runner()

    def run(argv: t.Sequence[str]) -> str:
        if module.check_mode and argv[1] in CHANGING:
            return ""
        result = runner.run(argv, limit=LIMIT)
        if result.problem:
            raise SchedulerError(f"{' '.join(argv)}: {result.problem}")
        return result.out

    try:
        drain = _converge(run, params, reason)
    except (SchedulerError, ValueError, KeyError, TypeError, AttributeError) as error:
        module.fail_json(msg=f"{params['scheduler']} did not answer as needed: {error}")
    running = f"still runs there: {', '.join(drain.busy)}" if drain.busy else ""
    module.exit_json(changed=drain.changed, busy=drain.busy, held=drain.held, clock=time.monotonic(), msg=running)


def _converge(run: t.Callable[[t.Sequence[str]], str], params: t.Mapping[str, t.Any], reason: str) -> Drain:
    name = params["node"]
    if params["scheduler"] == "slurm":
        return slurm.resume(run, name) if params["state"] == "resumed" else slurm.drain(run, name, reason)
    if params["state"] == "resumed":
        return kubernetes.resume(run, name)
    return kubernetes.drain(run, name, reason, params["evict"])


if __name__ == "__main__":
    main()
