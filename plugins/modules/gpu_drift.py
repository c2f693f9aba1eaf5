#!/usr/bin/python
# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_drift
short_description: Records what was proved of a host, and compares the host with it
version_added: "0.1.0"
description:
  - With O(state=recorded), writes C(expected.json) after a proof, with the host's plan, policy and baseline.
  - With O(state=compared), looks at the host and compares it with C(expected.json). It changes nothing. Where
    C(gpufleet-gate) of the same code is installed, the host's gate looks, which judges the health of its GPUs too.
  - With O(state=accepted), takes the differences named by O(accept) into C(expected.json), then compares.
  - With O(state=acknowledged), lets the findings named by O(acknowledge) not hold the host back until a day, in
    C(acknowledged.json). They are still reported, and only as long as they say the same.
  - Root keeps the files in C(/etc/gpufleet), and believes only what root alone can change. Another user keeps own ones
    in C($XDG_STATE_HOME/gpufleet), which root's runs ignore.
options:
  state:
    description: What to do. With O(state=compared), O(accept) and O(acknowledge) are done on the way.
    type: str
    choices: [recorded, compared, accepted, acknowledged]
    required: true
  accept:
    description: Ids of differences that somebody reviewed, as C(drift-vbios/gpu/GPU-...).
    type: list
    elements: str
    default: []
  acknowledge:
    description: Ids of findings that somebody answers for.
    type: list
    elements: str
    default: []
  by:
    description: Who accepts or acknowledges.
    type: str
    default: ""
  reason:
    description: Why.
    type: str
    default: ""
  until:
    description: The last day of an acknowledgement, as V(2026-12-31), or its end, as V(2026-12-31T12:00:00Z).
    type: str
    default: ""
  within:
    description:
      - Seconds. Where the host's gate looked so recently, said ready, and the records are the same, that is the answer.
    type: int
    default: 0
  directory:
    description: Folder of C(expected.json), for hosts without a disk. Not given, it is chosen by user as said above.
    type: path
  python:
    description:
      - Interpreter of the environment that was proved. Needed by O(state=recorded).
      - With O(state=compared), that of the record is taken where none is given.
    type: str
  plan:
    description: The plan that the lookup P(gpufleet.pytorch.compat#lookup) returned. Needed by O(state=recorded).
    type: dict
  policy:
    description: What the user allows and expects, kept beside the plan.
    type: dict
    default: {}
  proof:
    description: What M(gpufleet.pytorch.gpu_matmul) returned as C(proof). Needed by O(state=recorded).
    type: dict
  findings:
    description:
      - The findings of the host. Nothing is recorded unless they make it ready.
      - Not given, those that the roles of this collection registered on it in this play.
      - With O(state=acknowledged), those of the look in which O(acknowledge) was found.
    type: list
    elements: dict
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
- name: Record what was proved
  gpufleet.pytorch.gpu_drift:
    state: recorded
    python: /opt/gpufleet/venv/bin/python
    plan: "{{ gpufleet_plan }}"
    proof: "{{ verify_result.proof }}"

- name: Compare the host with what was proved
  gpufleet.pytorch.gpu_drift:
    state: compared

- name: Take a reviewed VBIOS into the record
  gpufleet.pytorch.gpu_drift:
    state: accepted
    accept: [drift-vbios/gpu/GPU-6d1f2c7e-0000-0000-0000-000000000000]
    by: Jo
    reason: updated by the vendor on all hosts
"""

RETURN = r"""
findings:
  description: What was found, a finding a difference.
  type: list
  elements: dict
  returned: always
identity:
  description: What the host is, by name, C(driver) or C(kernel), in which hosts of one kind should be alike.
  type: dict
  returned: O(state=compared) and O(state=recorded), of a host that was proved
path:
  description: Path of the file on the host, C(expected.json) or C(acknowledged.json).
  type: str
  returned: always
through:
  description: Who looked, V(gate) or V(module).
  type: str
  returned: always
"""

import os
import time
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import accept, drift, identity
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import (
    READY,
    Finding,
    dumps,
    fold,
    from_dict,
    now,
    stamp,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import acknowledge, record
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.compared import observe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.environment import environment
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import (
    EXPECTED,
    StateError,
    directory_of,
    forget_failed,
    read_expected,
    write_atomic,
    write_expected,
)

Result = t.Dict[str, t.Any]
Expected = t.Optional[t.Dict[str, t.Any]]


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {
                "type": "str",
                "choices": ["recorded", "compared", "accepted", "acknowledged"],
                "required": True,
            },
            "directory": {"type": "path"},
            "python": {"type": "str"},
            "plan": {"type": "dict"},
            "policy": {"type": "dict", "default": {}},
            "proof": {"type": "dict"},
            "findings": {"type": "list", "elements": "dict"},
            "accept": {"type": "list", "elements": "str", "default": []},
            "acknowledge": {"type": "list", "elements": "str", "default": []},
            "by": {"type": "str", "default": ""},
            "reason": {"type": "str", "default": ""},
            "until": {"type": "str", "default": ""},
            "within": {"type": "int", "default": 0},
        },
        required_if=[("state", "recorded", ["python", "plan", "proof"]), ("state", "acknowledged", ["findings"])],
        supports_check_mode=True,
    )
    act = {"recorded": _record, "compared": _compare, "accepted": _accept, "acknowledged": _acknowledge}
    try:
        directory = directory_of(module.params["directory"] or "", os.geteuid(), os.environ)
        result = act[module.params["state"]](module, directory)
    except (StateError, accept.NotAccepted) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(
            msg=f"{error.filename or directory} cannot be written: {error.strerror or error}; what was recorded before"
            " stays. Free space there or set gate_directory"
        )
    result["findings"] = [finding.to_dict() for finding in stamp(result["findings"], now())]
    module.exit_json(**{"changed": False, "path": os.path.join(directory, EXPECTED), **result})


def _expected(directory: str) -> t.Tuple[Expected, t.List[Finding]]:
    try:
        return read_expected(directory), []
    except StateError as error:
        return None, [drift.unreadable(str(error))]


def _compare(module: AnsibleModule, directory: str) -> Result:
    expected, problems = _expected(directory)
    if problems or expected is None:
        return {"findings": problems or [drift.NEVER_PROVED]}
    runner = Runner()
    held = environment(runner, module.params["python"] or str(expected["baseline"]["environment"].get("python")))
    observed = observe(runner)
    found = [*record.compared(expected, observed, held), *record.failed(directory)]
    try:
        found = acknowledge.apply(stamp(found, now()), acknowledge.read(directory), time.time())
    except StateError as error:
        found.append(acknowledge.unreadable(str(error)))
    return {"findings": found, "identity": identity.of(observed, held)}


def _accept(module: AnsibleModule, directory: str) -> Result:
    params = module.params
    expected = read_expected(directory)
    if expected is None:
        raise accept.NotAccepted(f"there is no {directory}/{EXPECTED} to accept a change into; run site.yml first")
    runner = Runner()
    held = environment(runner, str(expected["baseline"]["environment"].get("python")))
    today = record.today(expected, observe(runner), held)
    content = accept.accept(expected, today, held, params["accept"], params["by"], params["reason"], now())
    changed = content.get("accepted") != expected.get("accepted")
    if changed and not module.check_mode:
        write_expected(directory, content)
    diff = {"before": dumps(expected), "after": dumps(content)}
    found = drift.compare(content if changed else expected, today, held)
    return {"changed": changed, "diff": diff, "findings": found}


def _acknowledge(module: AnsibleModule, directory: str) -> Result:
    params = module.params
    findings = [from_dict(item) for item in params["findings"]]
    before, after = acknowledge.add(
        directory, findings, params["acknowledge"], params["by"], params["until"], params["reason"], time.time()
    )
    changed = before != after
    path = os.path.join(directory, acknowledge.FILE)
    if changed and not module.check_mode:
        write_atomic(path, dumps(after))
    rest = [finding for finding in findings if finding.check != acknowledge.COUNT]
    found = acknowledge.apply(rest, after["acknowledged"], time.time())
    return {
        "changed": changed,
        "path": path,
        "diff": {"before": dumps(before), "after": dumps(after)},
        "findings": found,
    }


def _record(module: AnsibleModule, directory: str) -> Result:
    params = module.params
    state = fold([from_dict(item) for item in params["findings"] or []])
    if state != READY:
        reason = f"the findings say {state}: nothing is recorded"
        return {"findings": [Finding("recorded", "not_applicable", reason=reason, policy="report")]}
    expected, _problems = _expected(directory)
    runner = Runner()
    held = environment(runner, params["python"])
    observed = observe(runner)
    content = record.content(expected, params["plan"], params["policy"], observed, held, params["proof"])
    if not module.check_mode:
        if content is not None:
            write_expected(directory, content)
        forget_failed(directory)
    return {
        "changed": content is not None,
        "diff": {"before": dumps(expected or {}), "after": dumps(content or expected or {})},
        "findings": [Finding("recorded", "ok", found=os.path.join(directory, EXPECTED), policy="report")],
        "identity": identity.of(observed, held),
    }


if __name__ == "__main__":
    main()
