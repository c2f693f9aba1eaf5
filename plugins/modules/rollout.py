#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: Keeps the journal of a rollout, and writes its verdict
version_added: "0.1.0"
description:
  - Runs on the controller and touches no host. C(playbooks/rollout.yml) calls it before and after each step of a host.
  - Every call writes C(rollout/journal.json) and C(rollout/latest.json) in the reports folder, so that a rollout that
    is killed has always said which hosts may be out.
options:
  state:
    description:
      - V(begun) makes the schedule, or goes on with the last one. V(batch) says whether a batch may begin.
      - V(step) marks what is to be done next on the host. V(proved) fails where the findings do not make it ready.
      - V(restore) returns the plan that a failed host goes back to.
      - V(failed), V(held) and V(done) are the ends of a host. V(ended) prints who is where, and fails where a host is
        not done.
    type: str
    choices: [begun, batch, step, proved, failed, restore, held, done, ended]
    required: true
  directory:
    description: Folder of the reports on the controller.
    type: path
    default: reports
  batches:
    description: Sizes of the batches, the last for all that follow, as numbers or as parts of all hosts.
    type: list
    elements: raw
  max_failures:
    description: How many hosts may have failed when a batch begins.
    type: int
    default: 0
  max_out:
    description: How many hosts may be out at once, as a number or as a part. 0 for no limit beside the batches'.
    type: raw
    default: 0
  dry_run:
    description: Whether to print the schedule only.
    type: bool
    default: false
  reset:
    description: Whether to change hosts again that are done.
    type: bool
    default: false
  forget:
    description: Hosts that are out of service and not in the inventory any more, for which nobody waits.
    type: list
    elements: str
    default: []
  step:
    description: What is done next, for O(state=step).
    type: str
    default: ""
  note:
    description: What a person should know.
    type: str
    default: ""
  left:
    description: The reason of somebody else's drain, with which the node was left, for O(state=done).
    type: str
    default: ""
  tasks:
    description: File of tasks that change a host. A relative path counts from the working directory.
    type: str
    default: ""
  proved_plan:
    description: The plan of the last proof, for O(state=restore).
    type: dict
    default: {}
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
    details: Prints the schedule and writes nothing.
  diff_mode:
    support: none
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Mark the host before its drain
  gpufleet.pytorch.rollout:
    state: step
    step: draining
"""

RETURN = r"""
run:
  description: Name of this run.
  type: str
  returned: O(state=begun)
owner:
  description: Controller and folder of the rollout, for M(gpufleet.pytorch.rollout_claim).
  type: str
  returned: O(state=begun)
tasks:
  description: The absolute path of O(tasks), empty where none is given.
  type: str
  returned: O(state=begun)
plan:
  description: The plan to go back to, empty where there is none.
  type: dict
  returned: O(state=restore)
stop:
  description: Whether the rollout ends here.
  type: bool
  returned: O(state=batch)
"""
