#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: cuda_toolkit
short_description: Tells which CUDA toolkits a host has, and compiles a kernel with the planned one
version_added: "0.1.0"
description:
  - Finds the toolkits of packages and installers side by side in C(/usr/local), a distribution's own, and the one that
    wheels brought into an environment.
  - Compiles a kernel with that of O(version). That takes no GPU. The object is thrown away.
  - C(/usr/local/cuda) may belong to anybody. It is told where it leads, and it is never changed.
options:
  version:
    description: Major and minor of the toolkit that has to be there. Not given, any will do, and the newest compiles.
    type: str
    default: ""
  source:
    description: Where it was to come from, for the words of the finding where it is not there.
    type: str
    choices: [packages, pip]
    default: packages
  venv:
    description: Folder of the environment. Empty for its usual place.
    type: path
    default: ""
  architectures:
    description: Compute capabilities to compile for, such as V(9.0). None for nvcc's own choice.
    type: list
    elements: str
    default: []
  toolkit:
    description: Whether a toolkit has to be there.
    type: bool
    default: true
  headers:
    description: Whether the header files of the environment's Python have to be there, as for torch.compile.
    type: bool
    default: false
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
    details: It changes nothing, and compiles in a temporary folder.
  diff_mode:
    support: none
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Compile a kernel with the toolkit of the planned wheel
  gpufleet.pytorch.cuda_toolkit:
    version: "{{ gpufleet_plan.cuda.toolkit }}"
"""

RETURN = r"""
toolkits:
  description: Each toolkit with its path, its version and where it is from.
  type: list
  elements: dict
  returned: always
  sample: [{path: /usr/local/cuda-13.0, version: "13.0", build: 13.0.88, packaged: host}]
findings:
  description: What was seen, as Findings.
  type: list
  elements: dict
  returned: always
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import toolkit as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import default_venv
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import toolkits as probe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner


def main() -> None:
    """Look, compile, answer."""
    module = AnsibleModule(
        argument_spec={
            "version": {"type": "str", "default": ""},
            "source": {"type": "str", "choices": ["packages", "pip"], "default": "packages"},
            "venv": {"type": "path", "default": ""},
            "architectures": {"type": "list", "elements": "str", "default": []},
            "toolkit": {"type": "bool", "default": True},
            "headers": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given, runner = module.params, Runner()
    venv = given["venv"] or default_venv(os.geteuid(), os.environ)
    there = probe.toolkits(runner, venv)
    findings = []
    if given["toolkit"]:
        findings += checks.toolkit(there, given["version"], probe.link(runner), given["source"])
        one = checks.chosen(there, given["version"])
        if one is not None:
            with tempfile.TemporaryDirectory(dir=module.tmpdir) as folder:
                result = probe.compiled(runner, one["path"], given["architectures"], folder)
            findings.append(checks.compiles(result, one["path"], given["architectures"]))
    if given["headers"]:
        python = os.path.join(venv, "bin", "python")
        findings.append(checks.headers(probe.python_headers(runner, python), python))
    findings = _finding.stamp(findings, _finding.now())
    module.exit_json(changed=False, toolkits=there, findings=[finding.to_dict() for finding in findings])


if __name__ == "__main__":
    main()
