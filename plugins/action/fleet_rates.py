# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the proof: compares the rates of all hosts, and with what a healthy fleet reached."""

from __future__ import annotations

import json
import os
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import READY, Finding, dumps, fold, from_dict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import rates


class ActionModule(ActionBase):
    """Runs once for all hosts of the play; see the documentation of the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """The findings of every host whose devices can be compared, by name."""
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            argument_spec={"baseline": {"type": "path", "default": ""}, "learn": {"type": "bool", "default": False}}
        )
        facts = task_vars or {}
        results = {}
        for name in facts["ansible_play_hosts"]:
            result = facts["hostvars"][name].get("verify_result")
            if isinstance(result, t.Mapping) and result.get("proof"):
                results[name] = result
        devices = [item for name, result in results.items() for item in rates.devices_of(name, result["proof"])]
        found = rates.among_hosts(devices)
        outcome: dict[str, t.Any] = {"changed": False}
        path = os.path.abspath(options["baseline"]) if options["baseline"] else ""
        if options["learn"] and not path:
            raise AnsibleActionFail("verify_baseline_learn needs verify_baseline, the file to write")
        try:
            if options["learn"]:
                sick = {host for host, result in results.items() if _sick(result["findings"], found.get(host, []))}
                outcome = self._learn(path, [device for device in devices if device.host not in sick])
            elif path:
                for host, items in rates.against_baseline(devices, _read(path)).items():
                    found.setdefault(host, []).extend(items)
        except (ValueError, OSError) as error:
            raise AnsibleActionFail(f"verify_baseline {path}: {error}") from error
        hosts = {name: {"findings": [item.to_dict() for item in found.get(name, [])]} for name in results}
        return {**outcome, "hosts": hosts}

    def _learn(self, path: str, devices: list[rates.Device]) -> dict[str, t.Any]:
        """Write the baseline; what was there is kept beside it as ``.previous``."""
        before = ""
        if os.path.exists(path):
            _read(path)  # whatever else lies there belongs to somebody
            with open(path, encoding="utf-8") as stream:
                before = stream.read()
        after = dumps(rates.learn(devices))
        if not self._play_context.check_mode and before != after:
            if before:
                write_atomic(path + ".previous", before)
            write_atomic(path, after)
        return {"changed": before != after, "diff": {"before": before, "after": after, "before_header": path}}


def _sick(own: t.Iterable[t.Mapping[str, t.Any]], beside: t.Iterable[Finding]) -> bool:
    """Whether a host's rates are no example: it is not ready, or something of it was slow."""
    found = [*(from_dict(item) for item in own), *beside]
    return fold(found) != READY or any(item.evidence.get("fault") == "slow" for item in found)


def _read(path: str) -> t.Mapping[str, t.Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
    except FileNotFoundError:
        raise ValueError("there is no such file; set verify_baseline_learn to write one from a healthy fleet") from None
    if not isinstance(content, dict) or "models" not in content:
        raise ValueError("it is no baseline of rates; it was left as it is")
    return content
