# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the fleet's report: reads verdicts, folds them, prints and writes."""

from __future__ import annotations

import os
import time
import typing as t

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import dumps, now, verdict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import fleet, html, store, table

#: The playbooks whose reports hold verdicts of hosts.
JUDGING = ("site", "verify", "drift", "rollout")
Known = dict[str, "fleet.Host | str | None"]


class ActionModule(ActionBase):
    """Runs once for all hosts of the play; see the documentation of the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """The fleet's picture, and ``failed`` where a host is not ready."""
        super().run(tmp, task_vars)
        _result, options = self.validate_argument_spec(
            argument_spec={
                "inbox": {"type": "path", "default": ""},
                "max_age": {"type": "int", "default": 86400},
                "directory": {"type": "path", "default": "reports"},
            }
        )
        names = (task_vars or {})["ansible_play_hosts_all"]
        content = fold(_known(names, options["inbox"], options["directory"]), options["max_age"])
        hosts = content["hosts"]
        for text in table.render("report", hosts):
            Display().display(text)
        for item in content["fleet"]["findings"]:
            Display().display(f"  {table.line(item)}")
        paths = {"report": "", "page": ""} if self._play_context.check_mode else _write(options["directory"], content)
        for path in filter(None, paths.values()):
            Display().display(f"report: {path}")
        bad = sum(not item["ok"] for item in hosts.values())
        message = f"{bad} of {len(hosts)} hosts are not ready" if bad else "all hosts are ready"
        return {"changed": False, "failed": bool(bad), "msg": message, **paths}


def fold(known: Known, max_age: float) -> dict[str, t.Any]:
    """The report's JSON form of the newest verdicts."""
    findings = fleet.judge(known, time.time(), max_age)
    hosts = {}
    for name, items in findings.items():
        host = known[name]
        seen = {"judged_at": host.judged_at, "source": host.source} if isinstance(host, fleet.Host) else {}
        hosts[name] = {"judged_at": "", "source": "", **verdict(items), **seen}
    common = [item.to_dict() for item in fleet.in_common(findings)]
    return {"ok": all(item["ok"] for item in hosts.values()), "hosts": hosts, "fleet": {"findings": common}}


def _known(names: t.Sequence[str], inbox: str, directory: str) -> Known:
    """Of each host its newest verdict from the inbox and from the playbooks' reports."""
    known: Known = dict.fromkeys(names)
    for playbook in JUDGING:
        path = store.report_path(directory, playbook)
        for name, item in store.read(path).items():
            if name in known:
                try:
                    known[name] = fleet.newest(_readable(known[name]), fleet.host_of(item, os.path.relpath(path)))
                except ValueError as error:
                    known[name] = known[name] or str(error)
    if inbox:
        try:
            for name, host in fleet.read_inbox(inbox, names):
                # A damaged file may hide the news that the host is bad.
                known[name] = host if isinstance(host, str) else fleet.newest(_readable(known[name]), host)
        except OSError as error:
            raise AnsibleActionFail(
                f"the inbox cannot be read: {error}; report_inbox names a folder of HOST.json"
            ) from error
    return known


def _readable(host: fleet.Host | str | None) -> fleet.Host | None:
    return host if isinstance(host, fleet.Host) else None


def _write(directory: str, content: t.Mapping[str, t.Any]) -> dict[str, str]:
    path = store.report_path(directory, "report")
    page = os.path.join(os.path.dirname(path), "index.html")
    try:
        write_atomic(path, dumps(content))
        write_atomic(page, html.render(content, now()))
    except OSError as error:
        raise AnsibleActionFail(
            f"the report cannot be written to {path}: {error}; set report_directory to a writable folder"
        ) from error
    return {"report": os.path.relpath(path), "page": os.path.relpath(page)}
