#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: verdict
short_description: Begins and ends a playbook with the verdict of its hosts
version_added: "0.1.0"
description:
  - Runs on the controller, once for all hosts of the play.
  - Folds the findings that the roles registered into one state a host, prints them as a table, writes them as JSON,
    and fails where a host is not ready.
options:
  state:
    description:
      - V(checked) refuses misspelt variables of this collection.
      - V(begun) does the same, and marks the hosts in the report as being judged.
      - V(planned) prints what would be done on each host and why, and fails where a host has no plan.
      - V(judged) prints and writes the verdict, and fails where a host is not ready.
    type: str
    choices: [checked, begun, judged, planned]
    required: true
  name:
    description: Name of the playbook, and of the folder of its report.
    type: str
    required: true
  directory:
    description: Folder of the reports on the controller.
    type: path
    default: reports
  inbox:
    description: >-
      Folder on the controller that gets each host's verdict as HOST.json too, for M(gpufleet.pytorch.fleet_report)
      over what many runs found. Empty for none.
    type: path
    default: ""
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
    details: Writes no report; a host that only a proof could judge is unknown, and does not fail the task.
  diff_mode:
    support: none
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: End the playbook with its verdict
  gpufleet.pytorch.verdict:
    state: judged
    name: site
  run_once: true
"""

RETURN = r"""
report:
  description: Path of the report, relative to the working directory; empty in check mode.
  type: str
  returned: O(state=judged)
"""
