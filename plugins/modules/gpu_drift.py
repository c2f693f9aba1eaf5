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
  - With O(state=compared), looks at the host and compares it with C(expected.json). It changes nothing.
  - Root keeps the file in C(/etc/gpufleet). Another user keeps an own one in C($XDG_STATE_HOME/gpufleet),
    which root's runs ignore.
options:
  state:
    description: Whether to record or to compare.
    type: str
    choices: [recorded, compared]
    required: true
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
"""

RETURN = r"""
findings:
  description: What was found, a finding a difference.
  type: list
  elements: dict
  returned: always
path:
  description: Path of C(expected.json) on the host.
  type: str
  returned: always
"""

import os
import typing as t

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import drift
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import (
    READY,
    Finding,
    dumps,
    fold,
    from_dict,
    now,
    stamp,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.environment import environment
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.observe import observe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import (
    COLLECTION,
    EXPECTED,
    EXPECTED_SCHEMA,
    StateError,
    directory_of,
    read_expected,
    write_atomic,
)


def main() -> None:
    """Entry point."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["recorded", "compared"], "required": True},
            "directory": {"type": "path"},
            "python": {"type": "str"},
            "plan": {"type": "dict"},
            "policy": {"type": "dict", "default": {}},
            "proof": {"type": "dict"},
            "findings": {"type": "list", "elements": "dict"},
        },
        required_if=[("state", "recorded", ["python", "plan", "proof"])],
        supports_check_mode=True,
    )
    try:
        directory = directory_of(module.params["directory"] or "", os.geteuid(), os.environ)
    except StateError as error:
        module.fail_json(msg=str(error))
    path = os.path.join(directory, EXPECTED)
    problems: t.List[Finding] = []
    expected = None
    try:
        expected = read_expected(directory)
    except StateError as error:
        problems.append(drift.unreadable(str(error)))
    if module.params["state"] == "recorded":
        module.exit_json(**_record(module, path, expected))
    findings = problems or _compare(module.params["python"], expected)
    module.exit_json(changed=False, path=path, findings=_dated(findings))


def _dated(findings: t.Iterable[Finding]) -> t.List[t.Dict[str, t.Any]]:
    return [finding.to_dict() for finding in stamp(findings, now())]


def _compare(python: t.Optional[str], expected: t.Optional[t.Mapping[str, t.Any]]) -> t.List[Finding]:
    if expected is None:
        return [drift.NEVER_PROVED]
    then = expected["baseline"]
    runner = Runner()
    held = environment(runner, python or str(then.get("environment", {}).get("python")))
    today = drift.baseline(str(then.get("accelerator")), observe(runner), held, {})
    return drift.compare(expected, today, held)


def _record(module: AnsibleModule, path: str, expected: t.Optional[t.Mapping[str, t.Any]]) -> t.Dict[str, t.Any]:
    params = module.params
    state = fold([from_dict(item) for item in params["findings"] or []])
    if state != READY:
        refusal = Finding(
            "recorded", "not_applicable", reason=f"the findings say {state}: nothing is recorded", policy="report"
        )
        return {"changed": False, "path": path, "findings": _dated([refusal])}
    runner = Runner()
    held = environment(runner, params["python"])
    fresh = drift.baseline(str(params["plan"].get("accelerator")), observe(runner), held, params["proof"])
    content = {
        "schema": EXPECTED_SCHEMA,
        "collection": COLLECTION,
        "written_at": now(),
        "plan": params["plan"],
        "policy": params["policy"],
        "baseline": fresh,
    }
    unchanged = expected is not None and (
        drift.same_identity(expected["baseline"], fresh)
        and all(expected.get(key) == content[key] for key in ("plan", "policy", "collection"))
    )
    diff = {"before": dumps(expected or {}), "after": dumps(expected if unchanged else content)}
    if not unchanged and not module.check_mode:
        try:
            if expected is not None:
                write_atomic(path + ".previous", dumps(expected))
            write_atomic(path, dumps(content))
        except OSError as error:
            module.fail_json(
                msg=f"{path} cannot be written: {error}; free space there or set gate_directory", path=path
            )
    done = Finding("recorded", "ok", found=path, policy="report")
    return {"changed": not unchanged, "path": path, "findings": _dated([done]), "diff": diff}


if __name__ == "__main__":
    main()
