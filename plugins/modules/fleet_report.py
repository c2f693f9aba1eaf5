#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_report
short_description: Folds the verdicts that hosts and earlier runs left into one picture of the fleet
version_added: "0.1.0"
description:
  - Runs on the controller, once for all hosts of the play, and touches no host.
  - Of each host the newest verdict counts, be it from an inbox into which hosts put their own, or from an earlier
    playbook's report. One that is too old, from the future, damaged or missing leaves its host unknown.
  - Reports hosts that differ from most hosts with the same GPUs, and checks that fail on many hosts at once.
  - Writes C(latest.json) and C(index.html), and fails where a host is not ready.
options:
  inbox:
    description: Folder on the controller with a file C(HOST.json) of each host, its gate's verdict. Empty for none.
    type: path
    default: ""
  max_age:
    description: Seconds after which a verdict says nothing of today.
    type: int
    default: 86400
  directory:
    description: Folder of the reports on the controller.
    type: path
    default: reports
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
    details: Writes no report.
  diff_mode:
    support: none
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Fold what the hosts of a pulling fleet left
  gpufleet.pytorch.fleet_report:
    inbox: /srv/gpufleet/inbox
  run_once: true
"""

RETURN = r"""
report:
  description: Path of the report, relative to the working directory; empty in check mode.
  type: str
  returned: always
page:
  description: Path of the page for a browser.
  type: str
  returned: always
"""
