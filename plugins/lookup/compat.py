# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup gpufleet.pytorch.compat: options in, plan or conflict out."""

from __future__ import annotations

DOCUMENTATION = r"""
name: compat
author: The gpufleet authors (@gpufleet)
version_added: "0.1.0"
short_description: Plans driver, CUDA, cuDNN, NCCL, fabric manager and the PyTorch wheel together
description:
  - Finds the one coherent set of kernel module, driver, CUDA, cuDNN, NCCL, fabric manager and build of PyTorch for the
    GPUs of a host, or says why there is none and what would work instead.
  - Every option that is not given is taken from the host. The variable C(gpufleet_observed) is read, which is
    RV(gpufleet.pytorch.gpu_info#module:observed), or else C(ansible_facts), which know no GPUs.
  - Wishes that are not given are taken from the variables C(driver_policy), C(driver_source), C(driver_kernel_module),
    C(driver_forward_compat) and C(cuda_version) of the host.
  - It decides from data that come with the collection, and reaches neither the host nor the network.
  - Of what the wishes allow, the best is what lets the installed driver stay, then what needs a supported long-lived
    branch of drivers, then the newest release, then its default build. For V(latest) and for a series such as V(2.8)
    the newest release comes first.
  - It never plans the build without CUDA unless O(accelerator=cpu).
options:
  _terms:
    description:
      - The release of PyTorch. A version such as V(2.8.0) or V(2.8.0+cu126), a series such as V(2.8) for its newest
        release, a specifier such as V(>=2.6,<2.9), or V(latest) for the newest that works on the host.
      - Quote it. Unquoted, YAML reads 2.10 as the number 2.1, which is refused.
    type: list
    elements: raw
    required: true
  accelerator:
    description:
      - With V(auto) and V(cuda) a CUDA build is planned, and a host without a known GPU is a conflict. V(cpu) plans the
        build without CUDA, and a host with a GPU is a conflict.
      - Whether a host may do without GPUs is not decided here.
    type: str
    choices: [auto, cuda, cpu]
    default: auto
  os_id:
    description: Operating system as C(ID) of os-release, such as V(ubuntu). It names the packages.
    type: str
  os_version:
    description: Version of the operating system as C(VERSION_ID) of os-release, such as V(24.04).
    type: raw
  arch:
    description: Machine architecture, V(x86_64) or V(aarch64).
    type: str
  glibc:
    description: Version of glibc. Not given, it follows from the operating system.
    type: raw
  kernel:
    description: Release of the kernel that the driver is for, running or next, whole as C(uname -r) prints it.
    type: str
  compiler:
    description: Compiler that built the kernel, such as V(gcc 12.2.0).
    type: str
  virtualization:
    description: What the host is a guest of, such as V(none), V(kvm), V(podman) or V(wsl).
    type: str
  python:
    description: Python that PyTorch is for, such as V(3.12), or V(3.13t) for a free-threaded one.
    type: raw
  gpus:
    description:
      - The GPUs of the host. Each is a product name as nvidia-smi prints it, a PCI id such as V(10de:2330), or a
        dictionary of C(name) and C(compute_capability).
      - A GPU that is not known is a conflict that names the nearest known ones. State its C(compute_capability) to plan
        for it all the same.
    type: raw
  hidden_by:
    description: What hides GPUs from the process that looked at the host. Where it is not empty, nothing is planned.
    type: str
  nvswitch:
    description: How many NVSwitches the host has, or V(auto) to infer them from the product name.
    type: raw
    default: auto
  driver:
    description:
      - Version of the installed driver, such as V(580.95.05) or V(580.95.05-open). Empty for none.
      - Of a branch alone, such as V(580), the first release is assumed, and no version is planned. Under WSL it is the
        number of the driver of Windows.
    type: raw
  driver_flavour:
    description: Flavour of the installed kernel module, V(open) or V(proprietary).
    type: str
  driver_owner:
    description:
      - Who owns the installed driver. It is replaced only where that is V(package), V(nobody) or not given.
      - Of a vGPU, of WSL, of a container and of a Jetson board it is never replaced.
    type: str
    choices:
      - nobody
      - package
      - runfile
      - dgx_os
      - bcm
      - gpu_operator
      - cloud_image
      - vgpu_guest
      - wsl
      - container_guest
      - image_os
      - multiple
      - unknown
  driver_policy:
    description:
      - V(auto) keeps the installed driver where it can stay, and upgrades it where it cannot. It never downgrades.
      - V(keep) plans for the installed driver only. V(external) does so too, for a driver of somebody else.
      - A branch such as V(580) asks for a driver of that branch, older or newer than the installed one.
    type: raw
    default: auto
  driver_source:
    description: Where a driver comes from. V(os) is the distribution's own archive, V(nvidia) NVIDIA's repository.
    type: str
    choices: [auto, os, nvidia]
    default: auto
  cuda:
    description: CUDA of the build, such as V(12.8) or V(cu128), or V(auto).
    type: raw
    default: auto
  kernel_module:
    description: Flavour of the kernel module. V(auto) takes the one that the GPUs need, the open one where both serve.
    type: str
    choices: [auto, open, proprietary]
    default: auto
  forward_compat:
    description: Whether cuda-compat may carry a newer CUDA over an older driver. Only data-centre GPUs support it.
    type: bool
    default: false
  secure_boot:
    description: Whether Secure Boot is on. Then a module that is built on the host is a conflict, a signed one is not.
    type: raw
  mok_enrolled:
    description: Whether a key that signs modules which are built on the host is enrolled for Secure Boot.
    type: bool
    default: false
  headers:
    description: Whether the headers of O(kernel) can be installed. V(missing) excludes every module that is built.
    type: str
    choices: [auto, available, missing]
    default: auto
  fabric_manager:
    description: Version of the installed fabric manager.
    type: raw
  plan_scope:
    description:
      - With V(host) the host is planned by itself. With V(group) the hosts that share jobs get one release, one build
        and one Python, and the plan of this host is returned.
      - For the others of the group, only what their own variables give is known. Options given here that are not
        wishes are for this host alone.
    type: str
    choices: [host, group]
    default: host
  plan_group:
    description:
      - Name of the group of hosts that share jobs. Not given, it is the variable C(plan_group) of each host, and hosts
        without one form one group.
    type: str
  target_hosts:
    description: The hosts that are planned together with O(plan_scope=group). Not given, all hosts of the play.
    type: list
    elements: str
  on_conflict:
    description: Whether a conflict is an error (V(fail)), or what is returned (V(report)).
    type: str
    choices: [fail, report]
    default: fail
seealso:
  - module: gpufleet.pytorch.gpu_info
notes:
  - Loading the data and one plan take less than 0.1 seconds; a thousand unlike hosts less than one second.
"""

EXAMPLES = r"""
# On the command line, without any host:
#   ansible localhost -m debug -a "msg={{ lookup('gpufleet.pytorch.compat', '2.8.0',
#     gpus=['NVIDIA H100 80GB HBM3'], driver='550.163.01') }}"

- name: Ask what a host with an observation should run
  ansible.builtin.set_fact:
    plan: "{{ lookup('gpufleet.pytorch.compat', 'latest') }}"

- name: Ask what would have to change
  ansible.builtin.debug:
    msg: "{{ answer.remedies }}"
  vars:
    answer: >-
      {{ lookup('gpufleet.pytorch.compat', '2.9.0', gpus=['Tesla V100-SXM2-32GB'], cuda='13.0', on_conflict='report') }}
"""

RETURN = r"""
_raw:
  description: One plan or conflict for each term, each a dictionary.
  type: list
  elements: dict
  contains:
    status:
      description: V(ok), or V(conflict). A conflict has C(conflicts), C(remedies) and C(warnings) only.
      type: str
    accelerator:
      description: V(cuda) or V(cpu). A plan for V(cpu) has no part but C(torch).
      type: str
    torch:
      description: >-
        C(version), C(variant), the C(requirement) and C(index_url) for pip, the matching C(torchvision), C(torchaudio)
        and C(triton), and C(python_packages), bounds on other packages.
      type: dict
    driver:
      description: >-
        C(branch), C(minimum) (the oldest that serves), C(version) (empty where only the branch is decided),
        C(kernel_module) (V(open), V(proprietary) or V(unknown); empty under WSL, where Windows has it), C(source),
        C(build) (V(dkms), V(prebuilt), or V(none) where it stays), C(signed), C(action) (V(keep), V(external),
        V(install), V(upgrade) or V(downgrade)), C(packages), and C(stream) and C(lock) for dnf.
      type: dict
    cuda:
      description:
        - C(runtime) in the wheel, C(toolkit) to compile with, its C(packages), C(forward_compat), and C(wheels) that
          bring the toolkit into an environment (none for CUDA 12, whose wheels have no nvcc).
      type: dict
    cudnn:
      description: C(version) that the wheel carries, and C(packages) of the same for those who compile.
      type: dict
    nccl:
      description: C(version) that the wheel carries, and C(packages) of the same for those who compile.
      type: dict
    fabric_manager:
      description: >-
        Whether it is C(required), on which C(basis) (V(observed), V(inferred), or V(unknown), then none is planned),
        the C(version), C(packages), and whether C(nvlsm) and C(imex) are needed, and the C(kernel_modules) to load for
        them.
      type: dict
    repository:
      description: C(name), C(url) and signing C(key) of NVIDIA's repository for the host; empty where there is none.
      type: dict
    reasons:
      description: Why each part was chosen and what the next best was, as C(rule), C(says) and C(source).
      type: list
      elements: dict
    conflicts:
      description: Why there is no plan, as C(rule), C(subject), C(found), C(needs) and C(source).
      type: list
      elements: dict
    remedies:
      description: What works instead, best first. Each was checked by planning again.
      type: list
      elements: str
    warnings:
      description: What a person should know, such as cells of the data that were deduced and not read.
      type: list
      elements: str
"""

import typing as t

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer, fleet, loader, observed
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat.request import (
    OPTIONS,
    BadOptions,
    Request,
    request,
)

#: Wishes for all hosts of a group; the other options are about one host.
_WISHES = ("accelerator", "python", "driver_policy", "driver_source", "cuda", "kernel_module", "forward_compat")
_OWN = ("plan_scope", "plan_group", "target_hosts", "on_conflict")


class LookupModule(LookupBase):
    """Translates options and errors."""

    def run(
        self, terms: list[t.Any], variables: t.Mapping[str, t.Any] | None = None, **kwargs: t.Any
    ) -> list[dict[str, t.Any]]:
        self.set_options(var_options=variables, direct={key: kwargs[key] for key in kwargs if key in _OWN})
        given = {key: value for key, value in kwargs.items() if key not in _OWN}
        return [self._answer(term, given, variables or {}) for term in terms or ["latest"]]

    def _answer(self, torch: t.Any, given: dict[str, t.Any], variables: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        name = str(variables.get("inventory_hostname", ""))
        if self.get_option("plan_scope") == "group" and name:
            found = self._group(torch, name, given, variables)
        else:
            found = answer.answer(torch, {**observed.options(variables), **given})
        if found["status"] == answer.CONFLICT and self.get_option("on_conflict") == "fail":
            raise AnsibleLookupError(answer.text(found, name))
        return found

    def _group(
        self, torch: t.Any, name: str, given: dict[str, t.Any], variables: t.Mapping[str, t.Any]
    ) -> dict[str, t.Any]:
        hostvars = variables.get("hostvars", {})
        group = self._group_of(variables)
        wishes = {key: value for key, value in given.items() if key in _WISHES or key not in OPTIONS}
        requests: dict[str, Request] = {}
        for other in self.get_option("target_hosts") or variables.get("ansible_play_hosts_all") or [name]:
            if other != name and (other not in hostvars or self._group_of(hostvars[other]) != group):
                continue
            options = {**observed.options(hostvars[other]), **wishes} if other != name else None
            try:
                requests[other] = request(
                    torch, options if options is not None else {**observed.options(variables), **given}
                )
            except BadOptions as bad:
                if other == name:
                    return answer.refusal(bad)
        return fleet.plan_group(requests, loader.load())[name]

    def _group_of(self, variables: t.Mapping[str, t.Any]) -> str:
        return str(self.get_option("plan_group") or variables.get("plan_group") or "")
