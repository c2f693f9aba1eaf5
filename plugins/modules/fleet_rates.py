#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_rates
short_description: Compares the measured rates of all hosts of the play
version_added: "0.1.0"
description:
  - Runs on the controller, once for all hosts of the play, after M(gpufleet.pytorch.gpu_matmul) was registered as
    C(verify_result) on each. It touches no host.
  - A host whose GPUs are all slow alike looks fine to itself. It is named where it lies remarkably under the other
    hosts with the same model, in every round, or under a baseline that was learnt from a healthy fleet.
options:
  state:
    description:
      - V(checked) proves that a comparison, or learning, can come of a run, before any host is loaded. It fails where
        O(baseline) is missing, cannot be read or is not of our form; where the file could not be written; and where the
        hosts that were planned have fewer than three devices of one model to learn from.
      - V(compared) compares, or learns.
    type: str
    choices: [checked, compared]
    default: compared
  baseline:
    description: File on the controller with the rates of a healthy fleet by model. Empty for none.
    type: path
    default: ""
  learn:
    description:
      - With V(true), writes O(baseline) from the hosts that are ready and where nothing was slow, and keeps what was
        there as C(.previous). Where no model has three healthy devices nothing is written, and C(run_error) says so.
      - With V(false), compares with it.
    type: bool
    default: false
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Compare with what this fleet reached when it was new
  gpufleet.pytorch.fleet_rates:
    baseline: rates.json
  run_once: true
  register: verify_fleet
"""

RETURN = r"""
hosts:
  description: Of each host that was proved C(findings), a finding a device that can be compared.
  type: dict
  returned: when O(state=compared)
run_error:
  description: Why nothing was learnt. It is no fault of a host; the verdict of the run says it, and fails.
  type: str
  returned: when nothing was learnt
"""
