# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of a rollout: schedule, journal and verdict. It touches no host."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import typing as t
import uuid

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import READY, fold, now, verdict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._words import LONGEST
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import rollout, rollout_report
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet.rollout_journal import (
    NAME,
    Content,
    Journal,
    JournalError,
)
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import collect, store, table, variables

Vars = t.Mapping[str, t.Any]
#: One value for all hosts: a rollout has one schedule.
SHARED = ("rollout_batches", "rollout_max_failures", "rollout_max_out", "rollout_reset", "rollout_dry_run")
#: Seconds of a host, and how few they may be.
LEAST = {"rollout_drain_timeout": 0, "rollout_drain_interval": 1, "rollout_lock_timeout": 0}
#: Variables that say how a rollout goes, or where it reports, and not what becomes of a host.
NO_WISH = ("rollout_", "report_")


class ActionModule(ActionBase):
    """See the documentation of the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Do what ``state`` says, and write the verdict."""
        super().run(tmp, task_vars)
        _result, given = self.validate_argument_spec(
            argument_spec={
                "state": {
                    "type": "str",
                    "choices": ["begun", "batch", "step", "proved", "failed", "restore", "held", "done", "ended"],
                    "required": True,
                },
                "directory": {"type": "path", "default": "reports"},
                "batches": {"type": "list", "elements": "raw"},
                "max_failures": {"type": "int", "default": 0},
                "max_out": {"type": "raw", "default": 0},
                "dry_run": {"type": "bool", "default": False},
                "reset": {"type": "bool", "default": False},
                "forget": {"type": "list", "elements": "str", "default": []},
                "step": {"type": "str", "default": ""},
                "note": {"type": "str", "default": ""},
                "left": {"type": "str", "default": ""},
                "tasks": {"type": "str", "default": ""},
                "proved_plan": {"type": "dict", "default": {}},
            }
        )
        facts = task_vars or {}
        journal = Journal(given["directory"])
        try:
            return {"changed": False, **getattr(self, f"_{given['state']}")(facts, given, journal)}
        except (JournalError, ValueError) as error:
            raise AnsibleActionFail(str(error)) from error
        except OSError as error:
            raise AnsibleActionFail(
                f"the rollout's journal cannot be written to {journal.folder}: {error}; free space there or set"
                " report_directory. No host is drained without its mark"
            ) from error

    def _begun(self, facts: Vars, given: Vars, journal: Journal) -> dict[str, t.Any]:
        names = list(facts["ansible_play_hosts_all"])
        _refuse_differences(facts, names)
        _refuse_nonsense(facts, names)
        limits = rollout.settings(given["batches"] or [], given["max_failures"], given["max_out"])
        blocked = _blocked(facts, names)
        wishes = {name: _wish(facts["hostvars"][name]) for name in names}
        dry = given["dry_run"] or self._play_context.check_mode
        tasks = os.path.abspath(given["tasks"]) if given["tasks"] else ""
        if tasks and not os.path.isfile(tasks):
            raise AnsibleActionFail(f"rollout_tasks is {given['tasks']!r}: there is no file {tasks}. Nothing was done")
        with journal.changed() if not dry else _read_only(journal) as content:
            if content["finished_at"]:
                content.update(id=uuid.uuid4().hex[:12], finished_at=None, hosts={})
            known = set(facts["groups"]["all"])
            gone = rollout.gone(content["hosts"], known, given["forget"])
            if gone:
                told = "; ".join(f"{name} ({rollout_report.says(content['hosts'][name])})" for name in gone)
                raise AnsibleActionFail(
                    f"{journal.path} knows hosts that are out of service and not in this inventory: {told}. Start with"
                    " the inventory that has them, or resume or retire them and name them in rollout_forget. Nothing"
                    " was done"
                )
            old = {name: record for name, record in content["hosts"].items() if name in known}
            content["hosts"] = rollout.merge(old, wishes, blocked, reset=given["reset"])
            planned = rollout.schedule(content["hosts"], names, blocked, limits)
            run = {
                "id": uuid.uuid4().hex[:12],
                "begun_at": now(),
                "max_failures": limits.max_failures,
                "hosts": planned.hosts,
                "sizes": planned.sizes,
            }
            content["run"] = run
        for text in rollout_report.lines(planned, content["hosts"]):
            Display().display(text)
        if not dry:
            self._write(facts, given, content)
        owner = f"{socket.gethostname()}:{journal.folder}"
        return {"run": run["id"], "owner": owner, "rollout": content["id"], "dry_run": dry, "tasks": tasks}

    def _batch(self, facts: Vars, given: Vars, journal: Journal) -> dict[str, t.Any]:
        """May this batch begin? Those that Ansible dropped from earlier ones have failed."""
        batch = list(facts["ansible_play_batch"])
        with journal.changed() as content:
            planned = content["run"]["hosts"]
            if set(facts["ansible_play_hosts_all"]) != set(planned):
                raise AnsibleActionFail(
                    f"Ansible takes {', '.join(sorted(facts['ansible_play_hosts_all']))} for the hosts of this rollout,"
                    f" which are {', '.join(sorted(planned))}: does one have the name of a group, or of a pattern? No"
                    " host of this batch was touched"
                )
            for name in rollout.lost(content["hosts"], batch, content["run"]["hosts"]):
                note = "it did not answer any more, or the run lost it"
                content["hosts"][name].update(state=rollout.FAILED, note=note, at=now())
            reason = rollout.stop(content["hosts"], batch, content["run"]["max_failures"])
            content["run"]["stopped"] = reason
        self._write(facts, given, content)
        if reason:
            Display().display(f"rollout: {reason}")
        return {"stop": bool(reason), "msg": reason}

    def _step(self, facts: Vars, given: Vars, journal: Journal) -> dict[str, t.Any]:
        """The mark before what it says is done."""
        fields = {"state": rollout.CHANGING, "step": given["step"], "note": given["note"], "findings": []}
        self._mark(facts, given, journal, **fields)
        return {}

    def _proved(self, facts: Vars, given: Vars, journal: Journal) -> dict[str, t.Any]:
        """Fails unless what all roles found makes the host ready."""
        found = _findings(facts)
        loud = [item.to_dict() for item in found if item.state in rollout_report.LOUD]
        self._mark(facts, given, journal, findings=loud)
        if fold(found) == READY:
            return {}
        blocking = [table.line(item) for item in loud if item["policy"] == "block" and item["state"] != "warn"]
        return {"failed": True, "msg": "the proof failed: " + ("; ".join(blocking) or "nothing was proved")}

    def _failed(self, facts: Vars, given: Vars, journal: Journal) -> dict[str, t.Any]:
        failure = facts.get("report_failure") or {}
        said = " ".join(f"{failure.get('task')}: {failure.get('msg')}".split())
        # What comes behind it, such as the end of a rollback, must not be cut off.
        note = given["note"] or said[: LONGEST // 2]
        record = self._mark(facts, given, journal, state=rollout.FAILED, note=note)
        said = rollout_report.says(record)
        Display().display(f"rollout: {facts['inventory_hostname']} {said}")
        return {"msg": said, "note": note}

    def _restore(self, facts: Vars, given: Vars, journal: Journal) -> dict[str, t.Any]:
        """The plan to go back to, empty where none was proved."""
        return {"plan": rollout.restored(given["proved_plan"], facts.get("driver_result") or {})}

    def _held(self, facts: Vars, given: Vars, journal: Journal) -> dict[str, t.Any]:
        self._mark(facts, given, journal, state=rollout.HELD, step="", note=given["note"])
        return {}

    def _done(self, facts: Vars, given: Vars, journal: Journal) -> dict[str, t.Any]:
        note = f"not resumed, it was drained by somebody else: {given['left']}" if given["left"] else ""
        self._mark(facts, given, journal, state=rollout.DONE, step="", note=note)
        return {}

    def _ended(self, facts: Vars, given: Vars, journal: Journal) -> dict[str, t.Any]:
        """Who is where; fails where a host is not done."""
        with journal.changed() as content:
            content["run"]["ended"] = True
            records: rollout.Records = content["hosts"]
            for name in rollout.lost(records, (), content["run"]["hosts"]):
                note = "it did not answer any more, or the run lost it"
                content["hosts"][name].update(state=rollout.FAILED, note=note, at=now())
            left = [name for name, record in records.items() if record["state"] != rollout.DONE]
            if not left:
                content["finished_at"] = now()
        path = self._write(facts, given, content)
        for text in table.render(NAME, {name: verdict(rollout_report.findings(r)) for name, r in records.items()}):
            Display().display(text)
        Display().display(f"report: {path}")
        stopped = content["run"].get("stopped")
        message = f"{len(left)} of {len(records)} hosts are not done" + (f": {stopped}" if stopped else "")
        return {"failed": bool(left), "msg": message if left else "all hosts are done"}

    def _mark(self, facts: Vars, given: Vars, journal: Journal, **fields: t.Any) -> rollout.Record:
        with journal.changed() as content:
            record: rollout.Record = content["hosts"].setdefault(facts["inventory_hostname"], {})
            record.update(fields, at=now())
        self._write(facts, given, content)
        return record

    def _write(self, facts: Vars, given: Vars, content: Content) -> str:
        path = store.report_path(given["directory"], NAME)
        judged = {
            name: {**verdict(rollout_report.findings(record)), "judged_at": record.get("at", now())}
            for name, record in content["hosts"].items()
        }
        store.update(path, judged, known=set(facts["groups"]["all"]) | set(judged))
        return os.path.relpath(path)


class _read_only:
    """A journal's content that is not written back."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> Content:
        return self._journal.read()

    def __exit__(self, *_error: object) -> None:
        return None


def _findings(facts: Vars) -> list[t.Any]:
    name = facts["inventory_hostname"]
    planned = collect.planned_of(name, [facts])
    return collect.host_findings(facts, finished=True, failure={}, planned=planned)


def _blocked(facts: Vars, names: t.Iterable[str]) -> dict[str, str]:
    """The hosts that cannot be changed now: nobody answers there, or they have no plan."""
    found = {}
    for name in names:
        variables = facts["hostvars"][name]
        seen: Vars = next((variables[key] for key in ("plan_observed", "rollout_answer") if key in variables), {})
        failure = variables.get("report_failure")
        if seen.get("unreachable"):
            found[name] = f"it does not answer: {seen.get('msg', '')}"
        elif failure:
            found[name] = f"{failure.get('task')}: {failure.get('msg')}"
        elif name not in facts["ansible_play_hosts"]:
            found[name] = "the run lost it before its batch"
    return {name: " ".join(note.split())[:LONGEST] for name, note in found.items()}


def _refuse_differences(facts: Vars, names: t.Iterable[str]) -> None:
    for variable in SHARED:
        values = {json.dumps(facts["hostvars"][name].get(variable), sort_keys=True, default=str) for name in names}
        if len(values) > 1:
            raise AnsibleActionFail(
                f"{variable} differs between hosts ({', '.join(sorted(values))}); a rollout has one schedule, so set it"
                " once, for all or with --extra-vars"
            )


def _refuse_nonsense(facts: Vars, names: t.Iterable[str]) -> None:
    """A wrong variable is found before a host is drained, of whichever host it is."""
    options = variables.options("rollout")
    validator = ArgumentSpecValidator(options)
    for name in names:
        hostvars = facts["hostvars"][name]
        checked = validator.validate({option: hostvars[option] for option in options if option in hostvars})
        told = checked.validated_parameters
        wrong = [str(message) for message in checked.error_messages]
        wrong += [
            f"{option} is {told[option]}; {least} or more is needed"
            for option, least in LEAST.items()
            if not wrong and told[option] < least
        ]
        if wrong:
            raise AnsibleActionFail(f"host {name}: {'; '.join(wrong)}. Nothing was done")


def _wish(hostvars: Vars) -> str:
    """A digest of what the user asks of a host: a host that was done under another wish is not done."""
    wish = {}
    for name in sorted(variables.public()):
        if not name.startswith(NO_WISH) or name in ("rollout_tasks", "rollout_prove"):
            try:
                if name in hostvars:
                    wish[name] = hostvars[name]
            except Exception as error:
                wish[name] = str(error)
    return hashlib.sha256(json.dumps(wish, sort_keys=True, default=str).encode()).hexdigest()[:16]
