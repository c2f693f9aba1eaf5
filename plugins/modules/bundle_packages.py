#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: bundle_packages
short_description: Gathers the packages of a plan with all that they need
version_added: "0.1.0"
description:
  - Downloads on this host, through its own sources and NVIDIA's repository where the plan takes packages from there,
    those of the planned driver and of the parts that are asked for, and all that they depend on, as a system needs them
    on which nothing is installed. The result is one archive for apt or dnf.
  - It works in a folder of its own, and changes neither packages nor sources nor trusted keys of the host.
  - What comes from NVIDIA's repository is held against the fingerprint of its key.
  - Where neither the plan nor O(parts) nor O(names) need packages, there is no archive.
options:
  plan:
    description: The plan of the host, as P(gpufleet.pytorch.compat#lookup) returns it.
    type: dict
    required: true
  names:
    description: More packages, by name or C(name=version), such as headers of kernels that other hosts run.
    type: list
    elements: str
    default: []
  parts:
    description: Which packages beside the driver's, as M(gpufleet.pytorch.planned_packages) installs them.
    type: list
    elements: dict
    default: []
    suboptions:
      part:
        description: Which part.
        type: str
        choices: [compiler, container_toolkit, cuda, cudnn, nccl]
        required: true
      names:
        description: Packages of V(compiler) instead of the usual ones.
        type: list
        elements: str
        default: []
      version:
        description: Version of the container toolkit. Not given, the newest.
        type: str
        default: ""
  directory:
    description: Folder on the host to work in, and to leave the archive in. It is made.
    type: path
    required: true
  timeout:
    description: Seconds for all downloads.
    type: int
    default: 3600
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
  - gpufleet.pytorch.repository
attributes:
  check_mode:
    support: full
    details: Does nothing.
  diff_mode:
    support: none
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Gather the packages of the driver
  gpufleet.pytorch.bundle_packages:
    plan: "{{ gpufleet_plan }}"
    directory: /var/tmp/gpufleet-bundle
  register: bundle_packed
"""

RETURN = r"""
archive:
  description: Path of the archive; empty where the plan needs no packages.
  type: str
  returned: success
name:
  description: How it is called in a bundle, with the system it is for and the digest of what it holds.
  type: str
  returned: success
  sample: debian-12-x86_64-0123456789abcdef.tar
packages:
  description: The files in it.
  type: list
  elements: str
  returned: success
"""

import os
import platform
import re
import shutil
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import (
    closure,
    dnf,
    driver,
    library,
    repository,
    system,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import Apt, PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.manager import Manager
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host as host_probe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

DEBIAN_ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
#: Bytes. No key is larger.
KEY_LIMIT = 1 << 20
PARTS = ["compiler", "container_toolkit", "cuda", "cudnn", "nccl"]


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
            "parts": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "part": {"type": "str", "choices": PARTS, "required": True},
                    "names": {"type": "list", "elements": "str", "default": []},
                    "version": {"type": "str", "default": ""},
                },
            },
            "repository": {
                "type": "dict",
                "default": {},
                "options": {
                    "url": {"type": "str"},
                    "key_url": {"type": "str", "no_log": False},
                    "fingerprint": {"type": "str"},
                },
            },
            "directory": {"type": "path", "required": True},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**_gather(module.params, module.check_mode))
    except (driver.Stop, PackageFailure, OSError) as error:
        module.fail_json(msg=str(error))


def _gather(given: t.Mapping[str, t.Any], check: bool) -> t.Dict[str, t.Any]:
    part = given["plan"].get("driver") or {}
    changes = str(part.get("action", "")) in driver.CHANGES
    if check or not (changes or given["parts"] or given["names"]):
        return {"changed": False, "archive": "", "name": "", "packages": []}
    runner = Runner()
    host = host_probe.probe(runner)
    scratch = os.path.join(given["directory"], "scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    manager = system.manager(runner, host["os"], (300, given["timeout"]), scratch, str(part.get("stream") or ""))
    asked = _of_driver(manager, given, part, host) if changes else []
    for item in given["parts"]:
        names, _held = library.wanted(item["part"], given["plan"], item["names"], item["version"], manager)
        place = None
        if item["part"] != library.COMPILER_PART:
            place = repository.of_plan(given["plan"].get("repository") or {}, given["repository"])
        asked += library.chosen(
            item["part"].replace("_", "-"), names, place, manager, Files(runner, remember=False), _fetch
        )
    if not asked:
        manager.update()
    asked += [manager.spec(name) for name in given["names"]]
    if isinstance(manager, Apt):
        paths = closure.download(manager, asked, given["directory"])
        text = closure.index(paths, lambda path: runner.run(["dpkg-deb", "--field", path], limit=60))
    else:
        paths, text = t.cast(dnf.Dnf, manager).download(asked), ""
    archive, digest = closure.pack(paths, given["directory"], text)
    # Whoever connects here may fetch it: there is nothing secret in it.
    os.chmod(given["directory"], 0o755)
    os.chmod(archive, 0o644)
    kind = f"{host['os']['id']}-{host['os']['version']}-{host['arch']}"
    names = [os.path.basename(path) for path in paths]
    return {"changed": True, "archive": archive, "name": f"{kind}-{digest}.tar", "packages": names}


def _of_driver(
    manager: Manager, given: t.Mapping[str, t.Any], part: t.Mapping[str, t.Any], host: t.Mapping[str, t.Any]
) -> t.List[str]:
    """What the change of the driver asks of the package manager, predicted as the module driver does it."""
    plan = given["plan"]
    match = re.search(r"^VERSION_CODENAME=\"?([\w-]+)", manager.runner.read("/etc/os-release") or "", re.MULTILINE)
    vendor = part.get("source") == "nvidia"
    task = driver.Task(
        plan=system.spoken(part, manager),
        fabric=system.spoken(plan.get("fabric_manager") or {}, manager),
        running=platform.uname().release,
        system=host["os"]["id"],
        codename=match[1] if match else "",
        arch=DEBIAN_ARCHES.get(host["arch"], host["arch"]),
        image=not os.path.isdir(f"/lib/modules/{platform.uname().release}"),
        repository=repository.of_plan(plan.get("repository") or {}, given["repository"]) if vendor else None,
    )
    asked = driver.Change(task, manager, list, _fetch).present().asked
    return [name for name in asked if not name.endswith("-")]


def _fetch(url: str) -> bytes:
    return t.cast(bytes, open_url(url, timeout=30).read(KEY_LIMIT))


if __name__ == "__main__":
    main()
