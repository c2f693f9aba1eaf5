#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: bundle
short_description: Gathers what a fleet without a network installs from
version_added: "0.1.0"
description:
  - V(begun) and V(gathered) run on the controller, once for all hosts of the play. That puts the wheels that a
    lock names, and those that C(./run) needs, into a folder, and writes C(bundle.json), which has the SHA-256 of every
    file there.
  - A folder without C(bundle.json) is no bundle, so one that was interrupted is never installed from.
  - The role P(gpufleet.pytorch.bundle#role) says what else goes in.
options:
  state:
    description:
      - V(begun) makes the folder, or opens one that this module made. Any other folder with something in it is refused.
      - V(placed) unpacks its packages for this host under C(/var/lib/gpufleet/packages); RV(environment) is what makes
        the modules use them and nothing else.
      - V(gathered) brings every wheel of its C(fleet.lock) and ends with C(bundle.json).
    type: str
    choices: [begun, gathered, placed]
    required: true
  directory:
    description: Folder of the bundle on the controller.
    type: path
    required: true
  pythons:
    description: Versions of Python, such as V(3.12), that controllers will run C(./run) with. Empty for this one's.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
    details:
      - Gathers nothing and unpacks nothing. For the modules that install packages through apt, the index of what would
        be unpacked lies in RV(predicted). dnf reads the packages themselves, so that it fails before they are there.
  diff_mode:
    support: none
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Gather what the plans need
  gpufleet.pytorch.bundle:
    state: gathered
    directory: /srv/bundle
  run_once: true
"""

RETURN = r"""
environment:
  description: Variables for the tasks that install packages; empty where the bundle has none for this host.
  type: dict
  returned: with O(state=placed)
  sample: {GPUFLEET_PACKAGES: /var/lib/gpufleet/packages/0123456789abcdef}
predicted:
  description: Folder on the host that check mode made, and that is to be removed after it; empty where there is none.
  type: str
  returned: with O(state=placed)
files:
  description: What the bundle holds, by path.
  type: list
  elements: str
  returned: with O(state=gathered)
  sample: [fleet.lock, wheels/torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl]
"""
