#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: torch_environment
short_description: Makes a Python environment that holds PyTorch as planned
version_added: "0.1.0"
description:
  - Installs the build of PyTorch that the plan names into a virtual environment, with every wheel checked by SHA-256.
  - Everything is resolved, downloaded, compared with the plan and measured against the free space before anything is
    made at the environment's path. An environment is believed only once its marker says that it is complete.
  - An installation that was interrupted is taken up again; files that were deleted or cut short are put back.
  - An environment that this module did not make is never changed.
  - Needs no pip on the host. Where there is none, the action plugin of the same name brings the controller's.
options:
  plan:
    description: The host's plan, as the lookup P(gpufleet.pytorch.compat#lookup) returns it.
    type: dict
    required: true
  venv:
    description:
      - Folder of the environment, an absolute path. It may not exist yet, be empty, or be one that this module made.
      - A link to such a folder is followed. A link to nothing is refused.
      - Empty for C(/opt/gpufleet/venv) as root, and C($XDG_DATA_HOME/gpufleet/venv) (C(~/.local/share)) otherwise.
    type: path
    default: ""
  python:
    description: Interpreter of an environment that the user has. It is looked at and compared with the plan, and
      nothing is installed.
    type: path
    default: ""
  base_python:
    description: Interpreter that the environment is made from, an absolute path or the name of a command such as
      C(python3.12). Empty for the one that runs this module.
    type: path
    default: ""
  packages:
    description:
      - Requirements to install beside torch. C(torchvision) and C(torchaudio) without a version mean the release that
        belongs to the planned torch.
    type: list
    elements: str
    default: []
  lock:
    description:
      - All packages, each as C(NAME==VERSION --hash=sha256:HASH), as RV(lock) returns them. Then exactly these are
        installed, and nothing is resolved.
    type: list
    elements: str
    default: []
  index_url:
    description: Address of the package index, instead of the plan's.
    type: str
    default: ""
  isolated:
    description:
      - Whether pip leaves the host's own settings (variables and configuration files) aside, and uses one index.
      - When V(false), those settings count and the plan's index comes beside them. What they bring still has to be the
        build that the plan names.
    type: bool
    default: true
  wheel_store:
    description:
      - Folder where finished wheels are kept, for the next try and for the next host that mounts the same folder.
        Wheels put there by hand are found too.
      - Empty for C(/var/cache/gpufleet/wheels) as root, and C($XDG_CACHE_HOME/gpufleet/wheels) (C(~/.cache)) otherwise.
    type: path
    default: ""
  bundle:
    description:
      - Folder on the controller that C(bundle.yml) made. The action plugin brings the wheels of O(lock) that are not in
        O(wheel_store) yet from it, and neither an index nor the host's own settings are asked.
    type: path
    default: ""
  brought:
    description: Whether the wheels of O(bundle) are in the store. The action plugin sets it.
    type: bool
    default: false
  when_busy:
    description: What to do where packages would be replaced that a process has in memory.
    type: str
    choices: [fail, proceed]
    default: fail
  pip_wheel:
    description: A wheel of pip on the host, for an interpreter without one. The action plugin sets it.
    type: path
    default: ""
  wait:
    description:
      - Seconds to wait for the work before returning how far it is, with RV(finished=false). The action plugin sets it
        and calls again. With V(0) the module returns when all is done.
    type: float
    default: 0
  job:
    description: Name of the work, the same for each call with O(wait). The action plugin sets it.
    type: str
    default: module
extends_documentation_fragment:
  - gpufleet.pytorch.attributes
attributes:
  check_mode:
    support: full
    details: Resolves what would be installed, which asks the index; makes no environment and downloads no wheel.
  diff_mode:
    support: full
author:
  - The gpufleet authors (@gpufleet)
"""

EXAMPLES = r"""
- name: Install PyTorch as planned
  gpufleet.pytorch.torch_environment:
    plan: "{{ gpufleet_plan }}"
    packages: [numpy, torchvision]

- name: Compare an environment of the user with the plan
  gpufleet.pytorch.torch_environment:
    plan: "{{ gpufleet_plan }}"
    python: /opt/conda/envs/train/bin/python
"""

RETURN = r"""
python:
  description: Interpreter of the environment.
  type: str
  returned: success
  sample: /opt/gpufleet/venv/bin/python
venv:
  description: Folder of the environment, a link to it followed; empty with O(python).
  type: str
  returned: success
packages:
  description: Version of each package that was resolved, by name.
  type: dict
  returned: success, without O(python)
  sample: {torch: 2.13.0+cpu, sympy: 1.14.0}
lock:
  description: The same with hashes, as O(lock) takes it.
  type: list
  elements: str
  returned: success, without O(python)
repaired:
  description: Files that were missing or of another size, by package.
  type: dict
  returned: success, without O(python)
findings:
  description: What was seen of the environment, as Findings.
  type: list
  elements: dict
  returned: success
finished:
  description: Whether the work is done.
  type: bool
  returned: with O(wait)
progress:
  description: How far the work is (C(stage), and C(done) of C(total) bytes).
  type: dict
  returned: when RV(finished=false)
wheels_needed:
  description: Lines of O(lock) whose wheels are not in O(wheel_store).
  type: list
  elements: str
  returned: with O(bundle), before O(brought)
store:
  description: Folder of the store.
  type: str
  returned: with RV(wheels_needed)
pip_needed:
  description: Version of the interpreter, where there is no pip for it on the host.
  type: str
  returned: when RV(finished=false)
"""

import hashlib
import os
import socket
import sys
import tempfile
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import findings, paths, pip, venv
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.converge import (
    Outcome,
    converge,
    current,
    predict,
    promised,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.effects import Effects, Say
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.interpreter import describe, find_pip
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.job import Job
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import (
    EnvironmentFailure,
    default_store,
    default_venv,
    wanted,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wheel import find_in_store
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.workshop import Task, Workshop
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.environment import environment
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner


class PipNeeded(Exception):
    """The interpreter of this version has no pip that we can use."""


NO_PIP = (
    "no pip of version 22.2 or newer for Python {python} is on this host; install it (Debian and Ubuntu:"
    " apt-get install python3-venv), or name another interpreter in pytorch_base_python"
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "plan": {"type": "dict", "required": True},
            "venv": {"type": "path", "default": ""},
            "python": {"type": "path", "default": ""},
            "base_python": {"type": "path", "default": ""},
            "packages": {"type": "list", "elements": "str", "default": []},
            "lock": {"type": "list", "elements": "str", "default": []},
            "index_url": {"type": "str", "default": ""},
            "isolated": {"type": "bool", "default": True},
            "wheel_store": {"type": "path", "default": ""},
            "bundle": {"type": "path", "default": ""},
            "brought": {"type": "bool", "default": False},
            "when_busy": {"type": "str", "choices": ["fail", "proceed"], "default": "fail"},
            "pip_wheel": {"type": "path", "default": ""},
            "wait": {"type": "float", "default": 0},
            "job": {"type": "str", "default": "module"},
        },
        supports_check_mode=True,
    )
    try:
        result = _run(module)
        for warning in result.pop("warnings", []):
            module.warn(warning)
        if result.pop("failed", False):
            raise EnvironmentFailure(result["msg"])
        module.exit_json(**result)
    except PipNeeded as error:
        if not module.params["wait"]:
            module.fail_json(msg=NO_PIP.format(python=error))
        module.exit_json(changed=False, finished=False, pip_needed=str(error))
    except EnvironmentFailure as error:
        module.fail_json(msg=str(error))


def _run(module: AnsibleModule) -> t.Dict[str, t.Any]:
    given = module.params
    for name in ("venv", "python", "base_python", "wheel_store"):
        paths.refuse("pytorch_" + name, given[name], command=name == "base_python")
    base_python = given["base_python"] or sys.executable
    want = wanted(given["plan"], packages=given["packages"], lock=given["lock"], base_python=base_python)
    if given["python"]:
        problem = paths.not_runnable(given["python"])
        told = {} if problem else environment(Runner(), given["python"])
        if not told.get("python_version"):
            raise EnvironmentFailure(
                f"pytorch_python needs the interpreter of an environment, found: {problem or told['error']}; correct"
                " it, or leave it empty to have an environment made"
            )
        finding = findings.as_planned(told, want)
        return {"changed": False, "python": given["python"], "venv": "", "findings": _dated(finding)}
    index_url = given["index_url"] or str((given["plan"].get("torch") or {}).get("index_url") or "")
    if pip.password_of(index_url):
        module.no_log_values.add(pip.password_of(index_url))
    named = os.path.abspath(given["venv"] or default_venv(os.geteuid(), os.environ))
    path = paths.place(named)
    store = os.path.abspath(given["wheel_store"] or default_store(os.geteuid(), os.environ))
    found = venv.look(path)
    if path != named and found.kind != "ours":
        module.warn(f"pytorch_venv {named} is a link: the environment is in {path}")
    venv.refuse_unless_ours(found, path)
    outcome = current(path, want, found)
    source = pip.Source(index_url, store, given["isolated"])
    if given["bundle"]:
        source = pip.Source("", store)
        if not want.lock:
            raise EnvironmentFailure(
                "gpufleet_bundle needs a lock of what to install: that of the bundle comes with the plan; here is none"
            )
        if outcome is None and module.check_mode:
            outcome = promised(want, found)
        if outcome is None and not given["brought"]:
            return _needed(store, want.lock)
    if module.check_mode:
        with tempfile.TemporaryDirectory(dir=module.tmpdir) as work:
            task = Task(path, want, source, work, given["when_busy"])
            return _told(task, outcome or predict(_workshop(task, given, Effects()), found), check=True)
    # A store may be shared by hosts, and the work on an environment is this host's.
    key = hashlib.sha256(f"{socket.gethostname()}:{path}".encode()).hexdigest()[:12]
    task = Task(
        path,
        want,
        source,
        os.path.join(store, ".work", key),
        given["when_busy"],
    )
    return _worked(task, given, found, outcome)


def _needed(store: str, lock: t.Sequence[str]) -> t.Dict[str, t.Any]:
    """Which wheels the store lacks; it is made, so that they can be brought."""
    try:
        os.makedirs(store, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailure(
            f"pytorch_wheel_store {store} cannot be made: {error.strerror}, as user {os.geteuid()}; choose a folder"
            " where this user may write, or become root"
        ) from None
    lacking = [item.line for item in pip.read_lock(lock) if not find_in_store(store, item.name, item.sha256)]
    return {"changed": False, "finished": False, "wheels_needed": lacking, "store": store}


def _worked(
    task: Task, given: t.Mapping[str, t.Any], found: venv.Found, outcome: t.Optional[Outcome]
) -> t.Dict[str, t.Any]:
    """Do the work, or join in where it is going on."""
    try:
        job = Job(task.work, given["job"])
    except OSError as error:
        if outcome is not None:
            return _told(task, outcome)
        raise EnvironmentFailure(
            f"pytorch_wheel_store {task.source.store} cannot be written: {error.strerror} ({error.filename}), as user"
            f" {os.geteuid()}; choose a folder where this user may write, or become root"
        ) from None
    result = job.take_result()
    if result is None and job.acquire():
        if job.died():
            job.clear()
            raise EnvironmentFailure(
                f"the work on this host ended in the middle of its step, as if it was killed; {task.venv} is not"
                " believed to be complete, and the next run goes on with it"
            )
        if outcome is not None:
            return _told(task, outcome)
        shop = _workshop(task, given, Effects())

        def work(progress: Say, watched: t.Callable[[], bool], lock: int) -> t.Dict[str, t.Any]:
            shop.effects = Effects(progress, watched, (lock,))
            try:
                return _told(task, converge(shop, found))
            except EnvironmentFailure as error:
                return {"failed": True, "msg": str(error)}

        if not given["wait"]:
            return job.run(work)
        job.start(work)
    elif result is None and not given["wait"]:
        raise EnvironmentFailure(
            f"process {job.progress().get('pid')} is at work on {task.venv}; run again when it has ended"
        )
    job.ask()
    result = result or job.wait(given["wait"])
    if result is not None:
        return {**{key: value for key, value in result.items() if key != "job"}, "finished": True}
    return {"changed": False, "finished": False, "progress": job.progress()}


def _workshop(task: Task, given: t.Mapping[str, t.Any], effects: Effects) -> Workshop:
    interpreter = describe(task.wanted.base_python, effects)
    pip_wheel = find_pip(interpreter, given["pip_wheel"], os.path.join(task.work, "pip"))
    if not pip_wheel:
        raise PipNeeded(".".join(map(str, interpreter.version)))
    return Workshop(task, interpreter, pip_wheel, effects)


def _told(task: Task, outcome: Outcome, check: bool = False) -> t.Dict[str, t.Any]:
    after = {item.name: item.version for item in outcome.packages}
    tell = findings.predicted if check and outcome.changed else findings.installed
    finding = tell(task.venv, task.wanted, outcome.packages, outcome.repaired)
    return {
        "changed": outcome.changed,
        "python": os.path.join(task.venv, "bin", "python"),
        "venv": task.venv,
        "packages": after,
        "lock": [item.line for item in outcome.packages],
        "repaired": dict(outcome.repaired),
        "findings": _dated(finding),
        "warnings": list(outcome.warnings),
        "diff": {
            "before_header": task.venv,
            "after_header": task.venv,
            "before": findings.listing(outcome.before),
            "after": findings.listing({**outcome.before, **after}),
        },
    }


def _dated(finding: _finding.Finding) -> t.List[t.Dict[str, t.Any]]:
    return [item.to_dict() for item in _finding.stamp([finding], _finding.now())]


if __name__ == "__main__":
    main()
