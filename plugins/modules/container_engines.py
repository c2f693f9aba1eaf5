#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: container_engines
short_description: Gives Docker, containerd and podman the GPUs, and keeps them there over a daemon-reload
version_added: "0.1.0"
description:
  - Adds NVIDIA's runtime to the settings of Docker and containerd where it is not yet there, and leaves every other
    byte of them as it is. What containerd needs beside, C(nvidia-ctk) (1.18 or newer) writes into a file of its own.
  - Settings that are a link, that begin with a byte order mark, or that their engine would not read are named, and
    nothing is changed.
  - Docker is reloaded and containerd restarted, neither of which ends a container.
  - For podman there is one CDI description of the GPUs, of the loaded driver. That of NVIDIA's own service
    C(nvidia-cdi-refresh) is taken where the host has it.
  - Makes the links in C(/dev/char) without which C(systemctl daemon-reload) takes the GPUs out of running containers
    (C(Failed to initialize NVML, Unknown Error)), now and by a rule of udev at each load of the driver.
  - While a GPU is in use nothing is changed but the links, which do no harm.
options:
  engines:
    description: The engines to set up. None makes the links alone, as before packages are installed.
    type: list
    elements: str
    choices: [containerd, docker, podman]
    default: []
  when_busy:
    description: What to do where a process or a job uses a GPU.
    type: str
    choices: [fail, proceed]
    default: fail
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
- name: Give Docker and podman the GPUs
  gpufleet.pytorch.container_engines:
    engines: [docker, podman]
"""

RETURN = r"""
steps:
  description: What was done, or would be in check mode.
  type: list
  elements: str
  returned: success
  sample: [add the runtime nvidia to /etc/docker/daemon.json, systemctl reload docker]
findings:
  description: What was seen, as Findings.
  type: list
  elements: dict
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import containers as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import busy, containers
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner


def main() -> None:
    """Look, do what is left, look again."""
    module = AnsibleModule(
        argument_spec={
            "engines": {
                "type": "list",
                "elements": "str",
                "choices": ["containerd", "docker", "podman"],
                "default": [],
            },
            "when_busy": {"type": "str", "choices": ["fail", "proceed"], "default": "fail"},
        },
        supports_check_mode=True,
    )
    wanted, runner = module.params["engines"], Runner()
    facts = containers.look(runner)
    todo = []
    try:
        todo = containers.steps(facts, wanted)
        if todo and os.geteuid() != 0:
            raise ValueError(f"container engines are set up as root, and this is user {os.geteuid()}: set become")
        touching = [containers.said(step) for step in todo if step[0] not in ("link", "write")]
        users = [*busy.users(), *busy.jobs(runner, os.uname().nodename)] if touching else []
        if users and module.params["when_busy"] == "fail":
            names = ", ".join(str(user) for user in users[:5])
            raise ValueError(
                f"GPUs are in use by {names}, and this would be done: {'; '.join(touching)}. Drain the host, or set"
                " container_toolkit_when_busy to proceed"
            )
        if not module.check_mode:
            for step in todo:
                containers.do(runner, step)
            facts = containers.look(runner)
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    findings = [] if module.check_mode and todo else checks.judge(facts, wanted)
    module.exit_json(
        changed=bool(todo),
        steps=[containers.said(step) for step in todo],
        findings=[finding.to_dict() for finding in _finding.stamp(findings, _finding.now())],
        diff={"prepared": "".join(f"{containers.said(step)}\n" for step in todo)},
    )


if __name__ == "__main__":
    main()
