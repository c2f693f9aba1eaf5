#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_limits
short_description: Sets power limit, persistence and clocks of all GPUs of a host
version_added: "0.1.0"
description:
  - Sets on every GPU of the host what is given here, through C(nvidia-smi), and a unit that does it again at boot. What
    is not given is left as it is. Where nothing is given, the unit goes and the GPUs keep what they have until the next
    boot.
  - A value that a GPU does not take is refused before anything is set.
options:
  power_limit:
    description: Watts for each GPU. 0 leaves the limit alone.
    type: float
    default: 0
  persistence:
    description: Whether the driver stays up without processes. Not given, it is left alone.
    type: bool
  clocks:
    description:
      - Lowest and highest clock of the multiprocessors in MHz, to which they are locked. Empty, they are left alone.
      - A driver does not tell what was locked. It is remembered until the next boot; what others lock is not seen.
    type: list
    elements: int
    default: []
  when_busy:
    description:
      - V(fail) changes nothing while a process holds a GPU or a job of Slurm runs here, and names them.
      - V(proceed) changes it under what runs.
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
- name: Cap the GPUs at what the rack gives
  gpufleet.pytorch.gpu_limits:
    power_limit: 600
    persistence: true
"""

RETURN = r"""
changes:
  description: What was, or would be, set.
  type: list
  elements: dict
  returned: success
  sample: [{setting: power limit, gpus: [GPU-5f2c], before: [700 W], after: 600 W}]
findings:
  description: Whether the GPUs have what was wanted.
  type: list
  elements: dict
  returned: success
"""

import json
import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import busy
from ansible_collections.gpufleet.pytorch.plugins.module_utils._power import limits
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import ask, child
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.observe import observe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic

#: Seconds for one setting on all GPUs. The driver wakes each of them.
SET_LIMIT = 60.0
LINK = "/etc/systemd/system/multi-user.target.wants/gpufleet-gpu-limits.service"


def main() -> None:
    """Look, refuse or set, look again."""
    module = AnsibleModule(
        argument_spec={
            "power_limit": {"type": "float", "default": 0},
            "persistence": {"type": "bool"},
            "clocks": {"type": "list", "elements": "int", "default": []},
            "when_busy": {"type": "str", "choices": ["fail", "proceed"], "default": "fail"},
        },
        supports_check_mode=True,
    )
    options = module.params
    clocks = options["clocks"]
    if options["power_limit"] < 0 or (clocks and (len(clocks) != 2 or not 0 < clocks[0] <= clocks[1])):
        module.fail_json(
            msg="power_limit is watts above 0, clocks are the lowest and the highest in MHz; nothing was set"
        )
    wish = limits.Wish(options["power_limit"], options["persistence"], tuple(clocks))
    runner = Runner()
    if not wish.any:
        changed = _unit(runner, None, module.check_mode)
        module.exit_json(changed=changed, changes=[], findings=[])
    if os.geteuid() != 0:
        module.fail_json(msg="limits of GPUs are set by root; use become. Nothing was set")
    program = next((path for path in ask.SMI if runner.which(path)), None)
    observed = observe(runner)
    if observed["nvml"]["state"] != "ok":
        module.fail_json(msg=f"the driver does not answer: {observed['nvml']['error']}; nothing was set")
    if program is None:
        module.fail_json(msg="nvidia-smi sets limits of GPUs, and is not on this host; nothing was set")
        return
    locked = limits.read_record(runner.read(limits.RECORD), str(observed["host"].get("boot_id") or ""))
    try:
        wanted = limits.changes(observed["gpus"], wish, locked)
    except limits.Refused as error:
        module.fail_json(msg=str(error))
    if wanted and options["when_busy"] == "fail":
        users = [*busy.users(), *busy.jobs(runner, observed["host"]["hostname"])]
        if users:
            names = ", ".join(str(user) for user in users[:8])
            module.fail_json(
                msg=f"GPUs are in use, and limits change under what runs: {names}. Drain the host, or set when_busy to"
                " proceed; nothing was set"
            )
    unit_changed = _unit(runner, limits.unit(program, wish), module.check_mode)
    told = [{"setting": one.setting, "gpus": one.uuids, "before": one.before, "after": one.after} for one in wanted]
    diff = {
        "before": "".join(f"{one.setting}: {', '.join(sorted(set(one.before)))}\n" for one in wanted),
        "after": "".join(f"{one.setting}: {one.after}\n" for one in wanted),
    }
    if not module.check_mode:
        for one in wanted:
            problem = _set(runner, program, one)
            if problem:
                module.fail_json(msg=f"{one.setting} could not be set: {problem}", changes=told)
            if one.setting == "clocks":
                locked.update({uuid: list(wish.clocks_mhz) for uuid in one.uuids})
                _remember(observed, locked)
        if wanted:
            observed = observe(runner)
    finding = _finding_of(observed, wish, wanted, locked, module.check_mode)
    found = _finding.stamp([finding], observed["observed_at"])
    module.exit_json(
        changed=bool(wanted) or unit_changed,
        changes=told,
        diff=diff,
        findings=[one.to_dict() for one in found],
    )


def _set(runner: Runner, program: str, change: limits.Change) -> str:
    """Set it on its GPUs; the words of nvidia-smi where it failed, "" where it did not."""
    try:
        with child.Lock(child.folder(runner)) as lock:
            env = {**runner.env, "LC_ALL": "C"}
            argv = [runner.path(program), *change.arguments()]
            problem, output = child.capture(argv, env, lock, SET_LIMIT)
    except child.Stuck as error:
        return str(error)
    if not problem:
        return ""
    said = (output or b"").decode("utf-8", "replace").strip().splitlines()
    return f"{problem}: {said[0]}" if said else problem


def _remember(observed: t.Mapping[str, t.Any], locked: t.Mapping[str, t.Any]) -> None:
    data = {"schema": 1, "boot_id": observed["host"].get("boot_id") or "", "clocks": dict(locked)}
    write_atomic(limits.RECORD, json.dumps(data, indent=2, sort_keys=True) + "\n")


def _unit(runner: Runner, text: t.Optional[str], check_mode: bool) -> bool:
    """Have the unit as it should be, None for not at all; whether it was not. It is read at boot, without a reload."""
    old = runner.read_bytes(limits.UNIT)
    if text is None:
        if old is None:
            return False
        if not check_mode:
            for path in (LINK, limits.UNIT):
                if os.path.lexists(path):
                    os.unlink(path)
        return True
    if not runner.exists("/run/systemd/system") or (old == text.encode() and os.path.lexists(LINK)):
        return False
    if not check_mode:
        write_atomic(limits.UNIT, text)
        if not os.path.lexists(LINK):
            os.makedirs(os.path.dirname(LINK), exist_ok=True)
            os.symlink(limits.UNIT, LINK)
    return True


def _finding_of(
    observed: t.Mapping[str, t.Any],
    wish: limits.Wish,
    wanted: t.Sequence[limits.Change],
    locked: t.Mapping[str, t.Any],
    check_mode: bool,
) -> Finding:
    """Whether all GPUs have it now, as they say themselves."""
    count = f"{len(observed['gpus'])} GPUs"
    if check_mode and wanted:
        found = f"{count}: {', '.join(f'{one.setting} would be {one.after}' for one in wanted)}"
        return Finding("gpu-limits", "unknown", found=found, policy="report", evidence={"check_mode": True})
    try:
        left = limits.changes(observed["gpus"], wish, locked)
    except limits.Refused as error:
        return Finding("gpu-limits", "unknown", found=str(error), expected="what was set", action="drain and inspect")
    if left:
        found = f"{count}: " + ", ".join(f"{one.setting} is {one.before[0]} on {len(one.uuids)}" for one in left)
        expected = ", ".join(f"{one.setting} {one.after}" for one in left)
        return Finding("gpu-limits", "fail", found=found, expected=expected, action="drain and inspect")
    return Finding("gpu-limits", "ok", found=f"{count} as wanted")


if __name__ == "__main__":
    main()
