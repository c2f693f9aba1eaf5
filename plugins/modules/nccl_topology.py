#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_topology
short_description: Gives NCCL the topology of a host where it cannot see it, and judges it
version_added: "0.1.0"
description:
  - Reads the PCI tree, NUMA nodes, RDMA adapters and NVLinks of the host, and returns them as NCCL's topology file.
  - In a virtual machine that hides its PCIe switches, writes the topology that its provider published, and names it in
    C(/etc/nccl.conf). Elsewhere NCCL sees better itself, and nothing is written.
  - Lines of the user's in C(/etc/nccl.conf) stay and go first; a C(NCCL_TOPO_FILE) of the user's is never overridden,
    wherever it stands, but it is checked.
  - NCCL reads the highest speed and width of a link. What is judged and returned in RV(topology) is what they run at
    now beside it.
options:
  shape:
    description:
      - V(auto) recognises a virtual machine whose topology file is published. V(none) writes none.
      - The name of a published one uses that, where every GPU is at its place in it. A path names a file on the host.
    type: str
    default: auto
  environment:
    description:
      - Variables for NCCL and PyTorch, beside those of a recognised machine. Those of NCCL go to C(/etc/nccl.conf),
        others to C(/etc/profile.d). An empty value leaves out one of the machine's.
    type: dict
    default: {}
  environment_files:
    description: Further files in which variables that PyTorch renamed are looked for, such as job scripts.
    type: list
    elements: path
    default: []
  environment_replace:
    description:
      - Renames them in all files in which they are found. Otherwise they are named, with file and line.
    type: bool
    default: false
  clear_acs:
    description:
      - Clears access control services of the bridges around GPUs, now and at each start before anybody begins work, so
        that GPUs and adapters below one switch talk to each other there. Not for a host of virtual machines.
      - When false, a unit of this module's that does so is removed; what is cleared stays so until the next start.
    type: bool
    default: false
  when_busy:
    description:
      - With V(defer), nothing is changed while a process holds a GPU or a job of Slurm runs on the host, and a finding
        says what waits. V(proceed) changes it all the same; running jobs keep what they read at their start.
    type: str
    choices: [defer, proceed]
    default: defer
  picture:
    description: Folder on the controller for a picture of the topology (SVG). Empty for none.
    type: path
    default: ""
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
- name: See to NCCL's topology
  gpufleet.pytorch.nccl_topology:
    picture: reports/topology
  register: topology

- name: Use the file that the provider's image brings
  gpufleet.pytorch.nccl_topology:
    shape: /opt/microsoft/ndv5-topo.xml
    environment:
      NCCL_SOCKET_IFNAME: eth0
"""

RETURN = r"""
shape:
  description: The published machine that this one is, empty for none.
  type: str
  returned: always
  sample: azure-nd-a100-v4
xml:
  description: NCCL's topology file of this host as it shows itself, or as its provider published it where that is used.
  type: str
  returned: always
topology:
  description:
    - Places and links of GPUs, RDMA adapters and bridges, and NVLinks by pair, as they are now. C(digest) is of what
      stays. C(docs/architecture.md) gives every field. Empty where the host has no NVIDIA GPU.
  type: dict
  returned: always
environment:
  description: The variables that are set.
  type: dict
  returned: always
files:
  description: The files that changed.
  type: list
  elements: str
  returned: always
picture:
  description: Path of the picture on the controller, empty for none.
  type: str
  returned: always
findings:
  description: What follows for NVLink, adapters, links, access control services, and the files of the environment.
  type: list
  elements: dict
  returned: always
"""

import importlib.util
import os
import sys
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import pci
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import acs, converge
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.decide import Wish

NOTHING: t.Mapping[str, t.Any] = {
    "shape": "",
    "xml": "",
    "topology": {},
    "environment": {},
    "files": [],
    "picture": "",
}


def main() -> None:
    """Look, decide, write, answer."""
    module = AnsibleModule(
        argument_spec={
            "shape": {"type": "str", "default": "auto"},
            "environment": {"type": "dict", "default": {}},
            "environment_files": {"type": "list", "elements": "path", "default": []},
            "environment_replace": {"type": "bool", "default": False},
            "clear_acs": {"type": "bool", "default": False},
            "when_busy": {"type": "str", "choices": ["defer", "proceed"], "default": "defer"},
            "picture": {"type": "path", "default": ""},
        },
        supports_check_mode=True,
    )
    given = module.params
    runner = Runner()
    if not any(device["role"] == "gpu" for device in pci.probe(runner)):
        reason = "no NVIDIA GPU on the PCI bus"
        nothing = _finding.Finding("topology-file", "not_applicable", reason=reason, policy="report")
        module.exit_json(changed=False, **NOTHING, findings=_dated([nothing]))
    wish = Wish(
        shape=given["shape"],
        environment=given["environment"],
        files=given["environment_files"],
        replace=given["environment_replace"],
        clear_acs=given["clear_acs"],
    )
    try:
        done = converge.converge(
            runner, wish, given["when_busy"] == "proceed", module.check_mode, sys.executable, _source()
        )
    except ValueError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(
            msg=f"{error.filename} cannot be written: {error.strerror}; make it writable, or set topology_shape: none"
            " and topology_environment: {} to leave it alone"
        )
    module.exit_json(
        changed=bool(done.changed),
        shape=done.shape,
        xml=_finding.sendable(done.xml),
        topology=_finding.sendable(done.topology),
        environment=_finding.sendable(done.environment),
        files=done.changed,
        picture="",
        findings=_dated(done.findings),
        diff=done.diff,
    )


def _source() -> str:
    """The text of the script that the boot unit runs, from the loader: also out of Ansible's zip."""
    spec = importlib.util.find_spec(acs.__name__)
    text = spec.loader.get_source(acs.__name__) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
    if text is None:
        raise OSError(0, "its loader gives no source", os.path.basename(acs.__file__ or "acs.py"))
    return t.cast(str, text)


def _dated(findings: t.Sequence[_finding.Finding]) -> t.List[t.Dict[str, t.Any]]:
    return [finding.to_dict() for finding in _finding.stamp(findings, _finding.now())]


if __name__ == "__main__":
    main()
