# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the report: begins it, and ends a playbook with its verdict."""

from __future__ import annotations

import os
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, dumps, now, verdict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import deliver
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import (
    checks,
    collect,
    fleet,
    plan,
    store,
    table,
    variables,
)

Vars = t.Mapping[str, t.Any]


class ActionModule(ActionBase):
    """Runs once for all hosts of the play; see the documentation of the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """The verdict of every host of the play, and ``failed`` where one is not ready."""
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            argument_spec={
                "state": {"type": "str", "choices": ["checked", "begun", "judged", "planned"], "required": True},
                "name": {"type": "str", "required": True},
                "directory": {"type": "path", "default": "reports"},
                "inbox": {"type": "path", "default": ""},
            }
        )
        facts = task_vars or {}
        if options["state"] in ("checked", "begun"):
            _refuse_misspelt(facts)
            return self._begin(facts, options) if options["state"] == "begun" else {"changed": False}
        if options["state"] == "planned":
            return self._plan(facts)
        return self._judge(facts, options)

    def _begin(self, facts: Vars, options: Vars) -> dict[str, t.Any]:
        """Say in the file that hosts are being judged, so that no old ok outlives a kill."""
        if self._play_context.check_mode:
            return {"changed": False}
        unfinished = Finding(
            "run-finished",
            "unknown",
            found="the run has begun and not ended",
            expected="a finished run",
            observed_at=now(),
        )
        self._write(facts, options, {host: [unfinished] for host in facts["ansible_play_hosts_all"]}, {})
        return {"changed": False}

    def _plan(self, facts: Vars) -> dict[str, t.Any]:
        """Print the plan of every host; fails where one has none, or is not what was locked."""
        without = 0
        for host in facts["ansible_play_hosts_all"]:
            planned = _planned(facts, host)
            # The plan's own finding says what its lines say.
            found = [item.to_dict() for item in self._findings(facts, host) if item.check != "plan"]
            loud = [table.line(item) for item in found if item["state"] in ("fail", "unknown", "warn")]
            without += bool(planned.get("msg")) or (planned.get("plan") or {}).get("status") != "ok"
            first, *rest = plan.lines(planned.get("plan") or {}, planned.get("steps") or ())
            for text in [f"{host}: {first}", *rest, *(f"  {line}" for line in loud)]:
                Display().display(text)
        if facts.get("plan_lock") and not without:
            Display().display(f"lock: {facts['plan_lock']}")
        message = f"{without} hosts have no plan that can be used" if without else "planned"
        return {"changed": False, "failed": bool(without), "msg": message}

    def _judge(self, facts: Vars, options: Vars) -> dict[str, t.Any]:
        found = {host: self._findings(facts, host) for host in facts["ansible_play_hosts_all"]}
        identities = {host: known for host in found if (known := collect.identity(facts["hostvars"][host]))}
        for host, odd in fleet.odd_ones_out(identities):
            found[host] += collect.dated([odd], facts["hostvars"][host])
        verdicts = {host: verdict(items) for host, items in found.items()}
        predicted = self._play_context.check_mode
        path = None if predicted else self._write(facts, options, found, identities)
        for text in table.render(options["name"], verdicts):
            Display().display(text)
        if path:
            Display().display(f"report: {path}")
        # A prediction proves nothing, nor does an image: their unknown is what it should be, and no failure.
        unproved = [host for host, item in verdicts.items() if not item["ok"] and _foreseen(found[host], predicted)]
        bad = [host for host, item in verdicts.items() if not item["ok"] and host not in unproved]
        message = f"{len(bad)} of {len(verdicts)} hosts are not ready" if bad else "all hosts are ready"
        if unproved and not bad:
            message = (
                f"{len(unproved)} of {len(verdicts)} are not proved, as it must be without a proof; no other doubt"
            )
        errors = collect.run_errors(facts["hostvars"][host] for host in found)
        for text in errors:
            Display().display(f"error of the run: {text}")
        message = "; ".join([message, *errors])
        return {"changed": False, "failed": bool(bad or errors), "msg": message, "report": path or ""}

    def _findings(self, facts: Vars, host: str) -> list[Finding]:
        hostvars = facts["hostvars"][host]
        return collect.host_findings(
            hostvars,
            finished=host in facts["ansible_play_hosts"],
            failure=hostvars.get("report_failure") or {},
            planned=_planned(facts, host),
        )

    def _write(
        self, facts: Vars, options: Vars, found: t.Mapping[str, list[Finding]], identities: t.Mapping[str, Vars]
    ) -> str:
        path = store.report_path(options["directory"], options["name"])
        judged = {
            host: {**verdict(items), "judged_at": now(), "identity": identities.get(host, {})}
            for host, items in found.items()
        }
        try:
            store.update(path, judged, known=set(facts["groups"]["all"]) | set(judged))
        except OSError as error:
            raise AnsibleActionFail(
                f"the verdict cannot be written to {path}: {error}; set report_directory to a writable folder"
            ) from error
        if options["inbox"]:
            try:
                for host, item in judged.items():
                    deliver.deliver(dumps({**item, "host": host}), host, os.path.abspath(options["inbox"]))
            except (OSError, ValueError) as error:
                raise AnsibleActionFail(
                    f"the verdict cannot be put into report_inbox: {error}; it is in {path}"
                ) from error
        return os.path.relpath(path)


def _misspelt(facts: Vars, made: t.Collection[str]) -> set[str]:
    known = variables.public()
    return {
        f"{name} (host {host}): did you mean {meant}?"
        for host in facts["ansible_play_hosts_all"]
        for name, meant in variables.misspelt(facts["hostvars"][host], known, made).items()
    }


def _refuse_misspelt(facts: Vars) -> None:
    # What our own tasks have left is read from many files: only where something looks misspelt.
    wrong = _misspelt(facts, ()) and _misspelt(facts, variables.made())
    policies = {host: facts["hostvars"][host].get("gpufleet_policy") for host in facts["ansible_play_hosts_all"]}
    names = checks.known() if any(policies.values()) else frozenset()
    bad = sorted({text for policy in policies.values() if policy for text in checks.problems(policy, names)})
    if bad:
        raise AnsibleActionFail("; ".join([*bad, "nothing was done"]))
    if wrong:
        raise AnsibleActionFail(
            "variables that no role reads: " + "; ".join(sorted(wrong)) + " Rename or remove them; nothing was done."
        )


def _foreseen(found: t.Iterable[Finding], predicted: bool) -> bool:
    """Whether nothing is wrong, and all that is unknown is so because check mode, or an image, has no proof."""
    why = ("image", "check_mode") if predicted else ("image",)
    doubts = [item for item in found if item.policy == "block" and item.state in ("fail", "unknown")]
    return bool(doubts) and all(
        item.state == "unknown" and any(item.evidence.get(name) for name in why) for item in doubts
    )


def _planned(facts: Vars, host: str) -> Vars:
    """A host that was lost before has what the module plan returned of it from another."""
    return collect.planned_of(host, (facts["hostvars"][name] for name in (host, *facts["ansible_play_hosts"])))
