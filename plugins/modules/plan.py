#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: plan
short_description: Decides what every host of the play should run
version_added: "0.1.0"
description:
  - Runs on the controller, once for all hosts of the play, after M(gpufleet.pytorch.gpu_info) was registered as
    C(plan_observed) on each.
  - Decides for each host whether it may be planned at all (a GPU host never becomes a CPU host), and plans hosts that
    share jobs together. It touches no host.
  - The role P(gpufleet.pytorch.plan#role) says which variables it reads.
options:
  lock:
    description: File of the lock on the controller. Empty for none.
    type: path
    default: ""
  write_lock:
    description:
      - With V(true), the lock is written from the plans, with exact versions and the SHA-256 of every wheel.
      - With V(false), the plans must be what the lock holds, and get its wheels.
    type: bool
    default: false
  bundle:
    description:
      - Folder of a bundle on the controller. Every file of it is checked, its lock holds where O(lock) is empty, and a
        host that it does not name may have what it locks for another. With O(write_lock) it is not read.
    type: path
    default: ""
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
- name: Decide what every host should run
  gpufleet.pytorch.plan:
  register: plan_all
  run_once: true
"""

RETURN = r"""
hosts:
  description: By host, C(plan) as P(gpufleet.pytorch.compat#lookup) gives it, C(accelerator), C(findings), the C(steps)
    that C(site.yml) takes, and C(msg), which is empty where all is well.
  type: dict
  returned: always
"""
