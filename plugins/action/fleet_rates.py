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

Vars = t.Mapping[str, t.Any]


class ActionModule(ActionBase):
    """Runs once for all hosts of the play; see the documentation of the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """The findings of every host whose devices can be compared, by name."""
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            argument_spec={
                "state": {"type": "str", "choices": ["checked", "compared"], "default": "compared"},
                "baseline": {"type": "path", "default": ""},
                "learn": {"type": "bool", "default": False},
            }
        )
        facts = task_vars or {}
        path = os.path.abspath(options["baseline"]) if options["baseline"] else ""
        if options["learn"] and not path:
            raise AnsibleActionFail(
                "verify_baseline_learn needs verify_baseline, the file to write; nothing was proved"
            )
        if options["state"] == "checked":
            try:
                _check(path, options["learn"], facts)
            except (ValueError, OSError) as error:
                raise AnsibleActionFail(f"verify_baseline {path}: {error}; nothing was proved") from error
            return {"changed": False}
        return self._compare(path, options["learn"], facts)

    def _compare(self, path: str, learn: bool, facts: Vars) -> dict[str, t.Any]:
        results, devices, found = {}, [], {}
        for name in facts["ansible_play_hosts"]:
            result = facts["hostvars"][name].get("verify_result")
            if isinstance(result, t.Mapping) and result.get("proof"):
                results[name] = result
                measured, found[name] = rates.devices_of(name, result["proof"])
                devices += measured
        for name, items in rates.among_hosts(devices).items():
            found[name] = found[name] + items
        outcome: dict[str, t.Any] = {"changed": False}
        if learn:
            sick = {name for name, result in results.items() if _sick(result["findings"], found[name])}
            try:
                outcome = self._learn(path, [device for device in devices if device.host not in sick])
            except (ValueError, OSError) as error:
                # What cannot be learnt is no fault of a host: the verdict says it once, for the run.
                outcome["run_error"] = f"verify_baseline {path}: {error}"
        elif path:
            beside = _against(devices, path, results)
            found = {name: items + beside.get(name, []) for name, items in found.items()}
        hosts = {name: {"findings": [item.to_dict() for item in items]} for name, items in found.items()}
        return {**outcome, "hosts": hosts}

    def _learn(self, path: str, devices: list[rates.Device]) -> dict[str, t.Any]:
        """Write the baseline; what was there is kept beside it as ``.previous``."""
        if self._play_context.check_mode:
            return {"changed": True, "msg": f"{path} would be written from what a proof measures"}
        before = ""
        if os.path.exists(path):
            _read(path)  # whatever else lies there belongs to somebody
            with open(path, encoding="utf-8") as stream:
                before = stream.read()
        after = dumps(rates.learn(devices))
        if before != after:
            if before:
                write_atomic(path + ".previous", before)
            write_atomic(path, after)
        return {"changed": before != after, "diff": {"before": before, "after": after, "before_header": path}}


def _check(path: str, learn: bool, facts: Vars) -> None:
    """Raise ValueError or OSError where a proof of these hosts could not be compared, or learnt from, in the end."""
    if path and (not learn or os.path.exists(path)):
        _read(path)
    if not learn:
        return
    if facts.get("report_name") == "rollout":
        raise ValueError(
            "verify_baseline_learn is for verify.yml or site.yml: a rollout proves its hosts batch by batch"
        )
    folder = os.path.dirname(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"the folder {folder} is not there or cannot be written, in which the file is to be")
    hosts = [facts["hostvars"][name] for name in facts["ansible_play_hosts"]]
    planned = [host for host in hosts if "gpufleet_plan" in host and "gpufleet_observed" in host]
    counts = rates.foreseen((host["gpufleet_plan"], host["gpufleet_observed"]) for host in planned)
    if planned and counts is not None:
        rates.refuse_too_few(counts)


def _against(devices: list[rates.Device], path: str, hosts: t.Iterable[str]) -> dict[str, list[Finding]]:
    """The Findings against the baseline; that it could not be had any more leaves every host unknown."""
    try:
        return rates.against_baseline(devices, _read(path))
    except (ValueError, OSError) as error:
        lost = Finding(
            rates.BASELINE_CHECK,
            "unknown",
            found=f"verify_baseline {path}: {error}",
            expected="the file that was there when the run began",
            action="fix configuration",
        )
        return {host: [lost] for host in hosts}


def _sick(own: t.Iterable[t.Mapping[str, t.Any]], beside: t.Iterable[Finding]) -> bool:
    """Whether a host's rates are no example: it is not ready, or something of it was slow."""
    found = [*(from_dict(item) for item in own), *beside]
    return fold(found) != READY or any(item.evidence.get("fault") == "slow" for item in found)


def _read(path: str) -> t.Any:
    """A baseline of our form. Raises ValueError, with what to do, where there is none."""
    try:
        with open(path, encoding="utf-8") as stream:
            content = json.load(stream)
        rates.models_of(content)
        return content
    except FileNotFoundError:
        raise ValueError(
            "there is no such file; verify_baseline_learn writes one from at least"
            f" {rates.FEWEST_DEVICES} healthy devices of a model"
        ) from None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        text = str(error).removeprefix(f"{rates.NO_BASELINE}: ")
        raise ValueError(f"{rates.NO_BASELINE}: {text}; mend it, or remove it and learn it anew") from None
