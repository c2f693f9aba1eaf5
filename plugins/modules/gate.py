#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gate
short_description: Installs gpufleet-gate on a host
version_added: "0.1.0"
description:
  - Builds C(gpufleet-gate) from the code of this collection and installs it as one file,
    C(/usr/local/lib/gpufleet/gpufleet-gate), reached as C(/usr/local/bin/gpufleet-gate).
  - It runs with the system's Python, needs no controller and no network, and answers whether the host is still what was
    proved of it, with 0 for ready, 1 for not ready and 2 for could not tell.
  - Where NVIDIA's Python binding C(pynvml) is on the controller, a copy goes beside it, through which the driver is
    asked without starting nvidia-smi.
  - Installed as root only. For another user nothing is done and the finding says so.
options:
  directory:
    description: Folder of C(expected.json). Not given, it is C(/etc/gpufleet).
    type: path
  valid_for:
    description: Seconds for which a verdict holds. After that it is unknown.
    type: int
    default: 900
  build:
    description: Digest of the code, set by the action plugin. C(drift.yml) uses a gate of its own code only.
    type: str
    default: ""
  pynvml:
    description: Source of pynvml, compressed, set by the action plugin.
    type: str
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
- name: Install the gate
  become: true
  gpufleet.pytorch.gate:
    valid_for: 900
"""

RETURN = r"""
written:
  description: Paths that were written, or would be in check mode.
  type: list
  elements: str
  returned: always
installed:
  description: Whether the gate is there after the task.
  type: bool
  returned: always
systemd:
  description: Whether systemd runs this host, so that a timer can make the verdict.
  type: bool
  returned: always
findings:
  description: That the gate is there, or why it is not.
  type: list
  elements: dict
  returned: always
"""

import base64
import os
import zlib

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, now, stamp

# The gate is built of what this imports.
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import install, verdict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import main as gate
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import COLLECTION, StateError, directory_of


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path"},
            "valid_for": {"type": "int", "default": 900},
            "build": {"type": "str", "default": ""},
            "pynvml": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    params = module.params
    if not 1 <= params["valid_for"] <= verdict.LONGEST:
        module.fail_json(
            msg=f"a verdict that is good for {params['valid_for']} s is good for nothing, or too long; gate_interval is"
            f" a third of it, and 1 to {verdict.LONGEST // 3} s are needed. Nothing was done"
        )
    written = []
    done = Finding("gate-installed", "ok", found=install.LINK, policy="report")
    if os.geteuid() != 0:
        reason = "it is installed as root only; drift.yml looks through the module"
        done = Finding("gate-installed", "not_applicable", reason=reason, policy="report")
    else:
        try:
            directory = directory_of(params["directory"] or "", 0, os.environ)
            settings = {
                "collection": COLLECTION,
                "build": params["build"],
                "directory": directory,
                "valid_for": params["valid_for"],
            }
            pynvml = zlib.decompress(base64.b64decode(params["pynvml"])) if params["pynvml"] else b""
            written = install.install(gate.__name__, settings, pynvml, module.check_mode)
        except (install.NotInstalled, StateError) as error:
            module.fail_json(msg=str(error))
    module.exit_json(
        changed=bool(written),
        written=written,
        installed=os.access(install.FILE, os.X_OK),
        systemd=os.path.isdir("/run/systemd/system"),
        findings=[finding.to_dict() for finding in stamp([done], now())],
    )


if __name__ == "__main__":
    main()
