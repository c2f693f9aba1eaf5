#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: driver
short_description: Brings the planned NVIDIA driver onto a host, in that version, and holds it there
version_added: "0.1.0"
description:
  - Installs, changes or removes the packages of the driver as a plan says, builds and reads the kernel module for the
    kernels that the host starts, pins and holds every package of the driver's version, and keeps nouveau out.
  - Everything that can be judged before is judged before, and then nothing was changed. That is the owner of the
    driver, who computes on the GPUs, whether the sources have the version, the headers of the kernels, and which
    packages would go.
  - Where a module does not build, the packages are taken back, apt or dnf stays usable, and the task fails with the
    compiler's first error. It never starts the host again by itself.
  - A driver that packages of the distribution or of NVIDIA did not bring is not touched. Where the plan keeps the
    driver, only one that this module installed itself is held again; any other is only looked at.
  - Package runs ask nothing, wait for the lock of another run, repair a run that broke off, and end in bounded time.
options:
  plan:
    description: The plan of the host, as P(gpufleet.pytorch.compat#lookup) returns it.
    type: dict
    required: true
  state:
    description: V(present) follows the plan. V(absent) removes the driver that this module installed, and no other.
    type: str
    choices: [present, absent]
    default: present
  mode:
    description:
      - V(host) is for a machine that runs its own kernel.
      - V(image) is for an image build, a chroot or a container, where the running kernel is the build machine's. The
        module is built for the newest installed kernel and nothing is loaded.
    type: str
    choices: [host, image]
    default: host
  when_busy:
    description:
      - V(fail) changes nothing while a process holds a GPU or a job of Slurm runs here, and names them.
      - V(proceed) changes the files under what runs.
    type: str
    choices: [fail, proceed]
    default: fail
  mok_enroll:
    description:
      - Whether the key with which DKMS signs is asked to be enrolled, where Secure Boot is on and the firmware does not
        know it. The task then fails and says what to do at the console of the host, which nobody can do from afar.
    type: bool
    default: false
  mok_password:
    description: Password that the console asks for, once. It is given to C(mokutil) through its standard input.
    type: str
    default: ""
  lock_timeout:
    description: Seconds to wait for another run of the package manager.
    type: int
    default: 300
  timeout:
    description: Seconds for one run of the package manager, in which the module is built. It is stopped after that.
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
      - Whether a module will build cannot be predicted.
  diff_mode:
    support: full
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Bring the planned driver onto the host
  gpufleet.pytorch.driver:
    plan: "{{ gpufleet_plan }}"
  register: driver_result
"""

RETURN = r"""
version:
  description: Version of the driver whose packages are, or would be, on the host; empty where there is none.
  type: str
  returned: success
  sample: 535.261.03
packages:
  description: Every package of the driver's version, with its whole version.
  type: dict
  returned: success
reboot_required:
  description: Whether another module than the installed one is loaded, or none.
  type: bool
  returned: success
users:
  description: Whom a restart would end, processes on the GPUs, jobs of Slurm and sessions, where RV(reboot_required).
  type: list
  elements: str
  returned: success
findings:
  description: What was seen of packages and modules, as Findings.
  type: list
  elements: dict
  returned: always
"""

import os
import platform
import re
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import driver as driver_checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import packages as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import (
    busy,
    driver,
    record,
    repository,
    secureboot,
    system,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host as host_probe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import image as image_probe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import libraries, owner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import StateError

#: Bytes. No key is larger.
KEY_LIMIT = 1 << 20
#: The owners whose driver may change.
OURS = ("nobody", "package")
CONTAINERS = ("podman", "docker", "lxc", "systemd-nspawn", "kubernetes", "containerd", "oci")
DEBIAN_ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}


def main() -> None:
    """Judge, change, read, answer."""
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "mode": {"type": "str", "choices": ["host", "image"], "default": "host"},
            "when_busy": {"type": "str", "choices": ["fail", "proceed"], "default": "fail"},
            "repository": {
                "type": "dict",
                "default": {},
                "options": {
                    "url": {"type": "str"},
                    "key_url": {"type": "str", "no_log": False},
                    "fingerprint": {"type": "str"},
                },
            },
            "mok_enroll": {"type": "bool", "default": False},
            "mok_password": {"type": "str", "default": "", "no_log": True},
            "lock_timeout": {"type": "int", "default": 300},
            "timeout": {"type": "int", "default": 3600},
        },
        supports_check_mode=True,
    )
    try:
        with tempfile.TemporaryDirectory(dir=module.tmpdir) as folder:
            outcome, reboot = _converge(module, folder if module.check_mode else "")
    except driver.Stop as stop:
        module.fail_json(msg=str(stop), findings=_dated([stop.finding]))
    except (PackageFailure, StateError, OSError) as error:
        finding = checks.package_run(str(error))
        module.fail_json(msg=str(error), findings=_dated([finding]))
    module.exit_json(
        changed=outcome.changed,
        version=outcome.version,
        packages=outcome.packages,
        reboot_required=reboot,
        users=[str(user) for user in _ended()] if reboot else [],
        findings=_dated(outcome.findings),
        diff={"prepared": "".join(f"{line}\n" for line in outcome.change)},
    )


def _converge(module: AnsibleModule, scratch: str) -> t.Tuple[driver.Outcome, bool]:
    given = module.params
    runner = Runner()
    image = given["mode"] == "image"
    host = image_probe.describe(runner) if image else host_probe.probe(runner)
    seen = owner.probe(runner, host, image=image)
    part = given["plan"].get("driver") or {}
    action = "remove" if given["state"] == "absent" else str(part.get("action", ""))
    known = record.read(runner)
    changes = action in driver.CHANGES or (action == "remove" and known is not None)
    if action == "remove" and known is None and seen["owner"] != "nobody":
        # Nothing that somebody else installed goes; that it stays is said.
        return driver.Outcome(
            findings=[_finding.replace(checks.owner(seen["owners"], seen["owner"], action), state="warn")]
        ), False
    if not changes and (seen["owner"] != "package" or action != "keep"):
        return driver.Outcome(), False
    if changes:
        _may_touch(seen, host, action, image)
        two = driver_checks.two_drivers(seen)
        if two is not None and known is None:
            raise driver.Stop(two)
    if not changes and system.refusal(runner, host["os"]):
        return driver.Outcome(version=seen["version"] or seen["library_version"]), False
    limits = (given["lock_timeout"], given["timeout"])
    manager = system.manager(runner, host["os"], limits, scratch, str(part.get("stream") or ""))
    task = driver.Task(
        plan=system.spoken(part, manager),
        fabric=system.spoken(given["plan"].get("fabric_manager") or {}, manager),
        running=platform.uname().release,
        system=host["os"]["id"],
        codename=_codename(runner),
        arch=DEBIAN_ARCHES.get(host["arch"], host["arch"]),
        installed=seen["library_version"],
        image=image,
        proceed_when_busy=given["when_busy"] == "proceed",
        repository=_repository(given, part) if action in driver.CHANGES and not manager.bundle else None,
    )
    # Of an image only what runs in it counts: its processes beside those of the machine that builds it, and no jobs.
    users = busy.of_image if image else lambda: busy.users() + busy.jobs(runner, host["hostname"])
    change = driver.Change(task, manager, users, _fetch)
    if action == "remove" and known is not None:
        return change.absent(known), False
    outcome = change.present() if action in driver.CHANGES else _kept(change, seen, known)
    if image or scratch or not (action in driver.CHANGES or known):
        return outcome, False
    if host["secure_boot"] == "enabled" and change.by_dkms():
        unsigned = secureboot.ensure(runner, secureboot.Wish(given["mok_enroll"], given["mok_password"]))
        if unsigned is not None:
            raise driver.Stop(unsigned)
    reboot = _needs_reboot(runner, outcome)
    unbuilt = [finding for finding in outcome.findings if finding.check == "dkms-not-built"]
    if reboot and unbuilt:
        # The host would come back without its GPUs.
        raise driver.Stop(_finding.replace(unbuilt[0], state="fail"))
    return outcome, reboot


def _repository(given: t.Mapping[str, t.Any], part: t.Mapping[str, t.Any]) -> t.Optional[repository.Repository]:
    if part.get("source") != "nvidia":
        return None
    return repository.of_plan(given["plan"].get("repository") or {}, given["repository"])


def _may_touch(seen: t.Mapping[str, t.Any], host: t.Mapping[str, t.Any], action: str, image: bool) -> None:
    if seen["owner"] not in OURS:
        raise driver.Stop(checks.owner(seen["owners"], seen["owner"], action))
    if host["virtualization"] in CONTAINERS and not image:
        claim = {"evidence": f"this is a container ({host['virtualization']}), whose host runs the kernel"}
        raise driver.Stop(checks.owner([claim], "container_guest", action))
    if os.geteuid() != 0:
        raise PackageFailure(
            f"a change of the driver ({action}) needs root, and this is user {os.geteuid()}: set become"
        )


def _kept(change: driver.Change, seen: t.Mapping[str, t.Any], known: t.Optional[record.Record]) -> driver.Outcome:
    version = seen["version"] or seen["library_version"]
    outcome = change.kept(version, known if os.geteuid() == 0 else None)
    # The host works; it is the next start, or the next upgrade, that would take the driver away.
    outcome.findings = [
        _finding.replace(finding, state="warn") if finding.state == "fail" else finding for finding in outcome.findings
    ]
    return outcome


def _needs_reboot(runner: Runner, outcome: driver.Outcome) -> bool:
    loaded = libraries.loaded_module(runner)["version"]
    nouveau = runner.exists("/sys/module/nouveau")
    if not loaded and not nouveau:
        runner.run(["modprobe", "nvidia"], limit=60)
        loaded = libraries.loaded_module(runner)["version"]
    if loaded == outcome.version:
        return False
    outcome.findings.append(checks.reboot(loaded, outcome.version, nouveau))
    return True


def _ended() -> t.List[busy.User]:
    runner = Runner()
    hostname = host_probe.probe(runner)["hostname"]
    return busy.users() + busy.jobs(runner, hostname) + busy.sessions(runner)


def _codename(runner: Runner) -> str:
    match = re.search(r"^VERSION_CODENAME=\"?([\w-]+)", runner.read("/etc/os-release") or "", re.MULTILINE)
    return match[1] if match else ""


def _fetch(url: str) -> bytes:
    return t.cast(bytes, open_url(url, timeout=30).read(KEY_LIMIT))


def _dated(findings: t.Sequence[_finding.Finding]) -> t.List[t.Dict[str, t.Any]]:
    return [finding.to_dict() for finding in _finding.stamp(findings, _finding.now())]


if __name__ == "__main__":
    main()
