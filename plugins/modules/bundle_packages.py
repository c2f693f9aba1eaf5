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
  - Downloads on this host, through its own sources, the packages of the planned driver and all that they depend on, as
    a system needs them on which nothing is installed. The result is one archive, which is a repository of apt.
  - It works in a folder of its own, and changes neither packages nor sources of the host.
  - It gathers where the plan installs the distribution's driver through apt. Where a plan needs no packages, there
    is no archive.
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
  description: How it is called in a bundle, with the system it is for and the digest of its index.
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
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import closure, driver, system
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host as host_probe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

DEBIAN_ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "names": {"type": "list", "elements": "str", "default": []},
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
    nothing = {"changed": False, "archive": "", "name": "", "packages": []}
    if check or not (changes or given["names"]):
        return nothing
    runner = Runner()
    host = host_probe.probe(runner)
    if not runner.exists(system.APT):
        raise PackageFailure(f"packages are gathered through apt only, and {host['os']['name']} has none: use a mirror")
    if changes and part.get("source") != "os":
        raise PackageFailure(
            "packages of NVIDIA's repository are not gathered: mirror it and set nvidia_repository_url, or plan the"
            " distribution's driver with driver_source: os"
        )
    scratch = os.path.join(given["directory"], "apt")
    os.makedirs(scratch, exist_ok=True)
    apt = closure.Recording(runner, 300, given["timeout"], scratch)
    apt.prepare_scratch()
    if changes:
        _choose(apt, given["plan"], part, host)
    else:
        apt.update()
    paths = closure.download(apt, [*apt.asked, *given["names"]], given["directory"])
    text = closure.index(paths, lambda path: runner.run(["dpkg-deb", "--field", path], limit=60))
    archive, digest = closure.pack(paths, text, given["directory"])
    kind = f"{host['os']['id']}-{host['os']['version']}-{host['arch']}"
    names = [os.path.basename(path) for path in paths]
    return {"changed": True, "archive": archive, "name": f"{kind}-{digest}.tar", "packages": names}


def _choose(
    apt: closure.Recording, plan: t.Mapping[str, t.Any], part: t.Mapping[str, t.Any], host: t.Mapping[str, t.Any]
) -> None:
    """Have the change of the driver predicted, as the module driver does it, to know what it asks of apt."""
    match = re.search(r"^VERSION_CODENAME=\"?([\w-]+)", apt.runner.read("/etc/os-release") or "", re.MULTILINE)
    task = driver.Task(
        plan=part,
        fabric=plan.get("fabric_manager") or {},
        running=platform.uname().release,
        system=host["os"]["id"],
        codename=match[1] if match else "",
        arch=DEBIAN_ARCHES.get(host["arch"], host["arch"]),
        image=not os.path.isdir(f"/lib/modules/{platform.uname().release}"),
    )
    driver.Change(task, apt, list, _no_key).present()


def _no_key(url: str) -> bytes:
    raise OSError(f"{url}: no key is needed for the distribution's own packages")


if __name__ == "__main__":
    main()
