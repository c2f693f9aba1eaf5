#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: Observes the GPUs, the driver and the machine of a host
version_added: "0.1.0"
description:
  - Reads the PCI devices of every vendor from sysfs, who owns the NVIDIA driver, what NVML shows, what hides GPUs
    from this process, and the machine itself. It changes nothing and loads no kernel module.
  - The kernel log is read from where the last look ended. With O(judge), O(remember) and not in check mode, that place
    and what was seen are remembered in C(/run/gpufleet/kernel-log.json) (of a user other than root, in the user's
    runtime folder).
  - Every outside command and library call has a time limit. A part that cannot be read is unknown and says so under
    C(observed.errors); the module does not fail for it.
  - With the policy options it also decides whether the host is a CUDA host or may be a CPU host, and judges the number
    of its GPUs. A GPU host never becomes a CPU host.
options:
  accelerator:
    description:
      - V(cuda) means that a host without a visible NVIDIA GPU is not ready.
      - V(auto) allows the CPU build on a machine where nothing at all speaks for a GPU.
    type: str
    choices: [auto, cuda]
    default: cuda
  gpus_expected:
    description:
      - Number of GPUs that the host should have; V(0) states that it has none, and that this is meant.
      - When not given, O(baseline_gpus) and then O(expected_majority) say it.
    type: int
  expected_majority:
    description: Number of GPUs of most hosts of the group.
    type: int
  baseline_gpus:
    description: Number of GPUs with which the host was proved before. When not given, C(expected.json) says it.
    type: int
  directory:
    description: Folder of C(expected.json), where it is not the usual one (see M(gpufleet.pytorch.gpu_drift)).
    type: path
  python:
    description:
      - Interpreter of an environment to look at, or one that an environment will be made from. Its Python and its torch
        are told under C(observed.environment), without importing torch.
    type: str
  venv:
    description:
      - Folder of the environment that M(gpufleet.pytorch.torch_environment) makes, whose Python and torch are told
        under C(observed.venv). Empty for its usual place.
    type: path
    default: ""
  mode:
    description:
      - V(host) looks at a machine that runs.
      - V(image) looks at an image, a chroot or a build container. Its kernel is the one that it starts, and nothing is
        told of devices, loaded modules and Secure Boot, which are the build machine's. No GPU is judged.
    type: str
    choices: [host, image]
    default: host
  judge:
    description:
      - Also judges the health of each GPU and of its host. RV(findings) then hold memory errors, links, temperatures,
        power, clocks, the kernel log, settings and limits; C(docs/checks.md) lists the checks and what to do.
    type: bool
    default: false
  remember:
    description: With V(false) the next look reads the kernel log from where the last one ended, and nothing is written.
    type: bool
    default: true
  acknowledge_kernel_log:
    description:
      - What the kernel said until now is known and counts no more, as after a reset of the GPU that no line of the log
        tells. What comes later counts.
    type: bool
    default: false
  policy:
    description:
      - Which checks may keep the host from being ready, as check and V(block) or V(report), for example
        C(power-limit) and V(block). Not named here, a check has its own policy.
    type: dict
    default: {}
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
    details: It only looks; O(acknowledge_kernel_log) is foretold.
  diff_mode:
    support: none
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Observe the host
  gpufleet.pytorch.gpu_info:
    gpus_expected: 8
  register: gpu_info

- name: Judge the health of the GPUs, and take a power cap for a fault
  gpufleet.pytorch.gpu_info:
    judge: true
    policy:
      power-limit: block
  register: gpu_health
"""

RETURN = r"""
observed:
  description: The host as it is; C(docs/architecture.md) gives every field.
  type: dict
  returned: always
  contains:
    schema:
      description: Version of the form.
      type: int
      sample: 1
    observed_at:
      description: Time of the look, UTC.
      type: str
      sample: "2026-12-01T05:30:00Z"
    host:
      description: Operating system, kernel, Python, glibc, compiler of the kernel, virtualization, Secure Boot.
      type: dict
    pci:
      description: Display adapters, accelerators and NVSwitches of every vendor.
      type: list
      elements: dict
    driver:
      description: Who owns the driver with the evidence, versions of the module and of the libraries.
      type: dict
    nvml:
      description: Whether NVML answers, and why not.
      type: dict
    gpus:
      description: What NVML shows of each GPU.
      type: list
      elements: dict
    visibility:
      description: What hides GPUs from this process.
      type: dict
    environment:
      description: Python and torch of O(python), empty where that is not given.
      type: dict
    venv:
      description: The same of O(venv), with C(error) where there is none.
      type: dict
    kernel_log:
      description: What the kernel said since the driver was loaded, the GPU was reset or somebody acknowledged it.
      type: dict
    settings:
      description: How the kernel and the buses are set up for GPUs.
      type: dict
    limits:
      description: What limits programs, and variables that are set for everybody.
      type: dict
    shadows:
      description: Lines of files that put another copy of the wheel's libraries on a path of the loader.
      type: list
      elements: dict
    errors:
      description: Parts that could not be read, with the error.
      type: dict
accelerator:
  description: V(cuda), V(cpu), or V(refuse) where neither may be planned.
  type: str
  returned: always
findings:
  description: What follows for the presence of GPUs and their driver, and with O(judge) for their health.
  type: list
  elements: dict
  returned: always
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import accelerator, driver, registry
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import default_venv
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import image, whole
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.environment import environment
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import StateError, directory_of, read_expected

COUNTS = ("gpus_expected", "expected_majority", "baseline_gpus")


def main() -> None:
    """Observe, decide, answer."""
    module = AnsibleModule(
        argument_spec={
            "accelerator": {"type": "str", "choices": ["auto", "cuda"], "default": "cuda"},
            "directory": {"type": "path"},
            "python": {"type": "str"},
            "venv": {"type": "path", "default": ""},
            "mode": {"type": "str", "choices": ["host", "image"], "default": "host"},
            "judge": {"type": "bool", "default": False},
            "remember": {"type": "bool", "default": True},
            "acknowledge_kernel_log": {"type": "bool", "default": False},
            "policy": {"type": "dict", "default": {}},
            **{name: {"type": "int"} for name in COUNTS},
        },
        supports_check_mode=True,
    )
    negative = [f"{name} is {module.params[name]}" for name in COUNTS if (module.params[name] or 0) < 0]
    if negative:
        module.fail_json(msg=f"a number of GPUs is 0 or more: {', '.join(negative)}")
    wrong = [f"{check}: {value}" for check, value in module.params["policy"].items() if value not in _finding.POLICIES]
    if wrong:
        module.fail_json(msg=f"policy is {' or '.join(_finding.POLICIES)}, by check; found {', '.join(wrong)}")
    try:
        directory = directory_of(module.params["directory"] or "", os.geteuid(), os.environ)
    except StateError as error:
        module.fail_json(msg=str(error))
    runner = Runner()
    of_image = module.params["mode"] == "image"
    if of_image:
        observed = image.observe(runner)
    else:
        remember = module.params["judge"] and module.params["remember"] and not module.check_mode
        acknowledge = module.params["acknowledge_kernel_log"]
        observed = whole.observe(runner, remember=remember, acknowledge=acknowledge and not module.check_mode)
    observed["environment"] = environment(runner, module.params["python"]) if module.params["python"] else {}
    venv = module.params["venv"] or default_venv(os.geteuid(), os.environ)
    observed["venv"] = environment(runner, os.path.join(venv, "bin", "python"))
    counts = {name: module.params[name] for name in COUNTS}
    if counts["baseline_gpus"] is None:
        try:
            expected = read_expected(directory)
        except StateError as error:
            observed["errors"]["expected"] = str(error)
        else:
            counts["baseline_gpus"] = len(expected["baseline"].get("gpus", [])) if expected else None
    observed["baseline_gpus"] = counts["baseline_gpus"]
    policy = accelerator.Policy(accelerator=module.params["accelerator"], **counts)
    decision = accelerator.decide(observed, policy)
    if of_image:
        # Which GPUs it is for, the plan is told.
        decision = accelerator.Decision(accelerator.CUDA, ())
    health = registry.judge(observed) if module.params["judge"] and not of_image else []
    findings = _finding.stamp([*decision.findings, *driver.check(observed), *health], observed["observed_at"])
    findings = _finding.apply_policy(findings, module.params["policy"])
    module.exit_json(
        changed=module.params["acknowledge_kernel_log"] and bool(observed.get("kernel_log")),
        observed=_finding.sendable(observed),
        accelerator=decision.accelerator,
        findings=[finding.to_dict() for finding in findings],
    )


if __name__ == "__main__":
    main()
