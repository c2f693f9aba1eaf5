#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: planned_packages
short_description: Installs what the plan names beside the driver, for those who compile or run containers
version_added: "0.1.0"
description:
  - The wheel of PyTorch brings its own CUDA, cuDNN and NCCL and needs none of these. They are for those who compile
    against them, in the version that the wheel was built with, and held there.
  - They come from NVIDIA's repository, whose key is trusted for it alone and compared with its fingerprint.
  - Nothing is put on the loader's path, and no environment variable is set.
  - Package runs ask nothing, wait for the lock of another run, repair a run that broke off, and end in bounded time.
options:
  plan:
    description: The plan of the host, as P(gpufleet.pytorch.compat#lookup) returns it.
    type: dict
    required: true
  part:
    description:
      - Which part of the plan, or V(compiler) for what torch.compile and extensions call, of the distribution's own
        compiler and Python, which it goes on upgrading, or V(container_toolkit), which a plan names no version of. A
        container toolkit that is there is left as it is where no O(version) is given.
    type: str
    choices: [compiler, container_toolkit, cuda, cudnn, nccl]
    required: true
  names:
    description: Packages of V(compiler) instead of the usual ones, such as V(python3.12-dev) for another Python.
    type: list
    elements: str
    default: []
  version:
    description: Version of the container toolkit, such as V(1.19.0). Not given, the newest.
    type: str
    default: ""
  lock_timeout:
    description: Seconds to wait for another run of the package manager.
    type: int
    default: 300
  timeout:
    description: Seconds for one run of the package manager. It is stopped after that.
    type: int
    default: 3600
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
  - gpufleet.pytorch.repository
attributes:
  check_mode:
    support: full
    details:
      - The prediction is that of apt or dnf, made from a copy of its settings with lists of its own in a temporary
        folder.
  diff_mode:
    support: full
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Install the NCCL that the plan names
  gpufleet.pytorch.planned_packages:
    plan: "{{ gpufleet_plan }}"
    part: nccl
"""

RETURN = r"""
packages:
  description: The packages with their versions.
  type: dict
  returned: success
  sample: {libnccl2: 2.26.2-1+cuda12.8}
findings:
  description: What was seen, as Findings.
  type: list
  elements: dict
  returned: always
"""

import os
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import packages as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import library, repository, system
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.driver import Outcome, Stop
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host as host_probe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Bytes. No key is larger.
KEY_LIMIT = 1 << 20


def main() -> None:
    """Judge, change, answer."""
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "part": {
                "type": "str",
                "choices": ["compiler", "container_toolkit", "cuda", "cudnn", "nccl"],
                "required": True,
            },
            "names": {"type": "list", "elements": "str", "default": []},
            "version": {"type": "str", "default": ""},
            "repository": {
                "type": "dict",
                "default": {},
                "options": {
                    "url": {"type": "str"},
                    "key_url": {"type": "str", "no_log": False},
                    "fingerprint": {"type": "str"},
                },
            },
            "lock_timeout": {"type": "int", "default": 300},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    try:
        with tempfile.TemporaryDirectory(dir=module.tmpdir) as folder:
            outcome = _converge(module.params, folder if module.check_mode else "")
    except Stop as stop:
        module.fail_json(msg=str(stop), findings=_dated([stop.finding]))
    except (PackageFailure, OSError) as error:
        module.fail_json(msg=str(error), findings=_dated([checks.package_run(str(error))]))
    module.exit_json(
        changed=outcome.changed,
        packages=outcome.packages,
        findings=_dated(outcome.findings),
        diff={"prepared": "".join(f"{line}\n" for line in outcome.change)},
    )


def _converge(given: t.Mapping[str, t.Any], scratch: str) -> Outcome:
    part = given["part"]
    if os.geteuid() != 0:
        raise PackageFailure(f"packages of {part} need root, and this is user {os.geteuid()}: set become")
    runner = Runner()
    limits = (given["lock_timeout"], given["timeout"])
    manager = system.manager(runner, host_probe.probe(runner)["os"], limits, scratch)
    names, held = library.wanted(part, given["plan"], given["names"], given["version"], manager)
    place = None
    beside = part == library.COMPILER_PART or manager.bundle
    if not beside and library.missing(names, manager.installed(), held):
        place = repository.of_plan(given["plan"].get("repository") or {}, given["repository"])
    return library.present(part.replace("_", "-"), names, place, manager, _fetch, held)


def _fetch(url: str) -> bytes:
    return t.cast(bytes, open_url(url, timeout=30).read(KEY_LIMIT))


def _dated(findings: t.Sequence[_finding.Finding]) -> t.List[t.Dict[str, t.Any]]:
    return [finding.to_dict() for finding in _finding.stamp(findings, _finding.now())]


if __name__ == "__main__":
    main()
