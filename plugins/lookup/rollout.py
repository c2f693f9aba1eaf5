# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup gpufleet.pytorch.rollout: the hosts and batch sizes of a play, from the journal of the rollout."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rollout
author: The gpufleet authors (@gpufleet)
version_added: "0.1.0"
short_description: Gives the plays of a rollout their hosts and batch sizes
description:
  - For C(playbooks/rollout.yml), which needs hosts and batches that are known only when a play begins.
  - It reads the journal in the folder C(rollout) of C(report_directory).
options:
  _terms:
    description:
      - V(lock) keeps other rollouts of the same reports folder away until this Ansible ends, and returns V(all).
      - V(hosts) returns the hosts that are still to be changed, in their order.
      - V(sizes) returns the sizes of their batches.
    type: list
    elements: str
    choices: [lock, hosts, sizes]
    required: true
"""

EXAMPLES = r"""
- name: Change hosts batch by batch
  hosts: "{{ query('gpufleet.pytorch.rollout', 'hosts') }}"
  serial: "{{ query('gpufleet.pytorch.rollout', 'sizes') }}"
"""

RETURN = r"""
_raw:
  description: Names of hosts, or sizes.
  type: list
  elements: raw
"""

import atexit
import typing as t

from ansible import context
from ansible.errors import AnsibleLookupError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.lookup import LookupBase
from ansible.utils.display import Display

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import rollout, rollout_report
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet.rollout_journal import Journal, JournalError

#: A pattern of no host, since an empty list is refused.
NOBODY = ["all:!all"]
#: Options of the command line with which a playbook is read and nothing is run.
READ_ONLY = ("syntax", "listhosts", "listtasks", "listtags")


class LookupModule(LookupBase):
    """Translates options and errors."""

    def run(self, terms: list[str], variables: t.Mapping[str, t.Any] | None = None, **kwargs: t.Any) -> list[t.Any]:
        (term,) = terms
        arguments = context.CLIARGS
        reading = any(arguments.get(name) for name in READ_ONLY)
        predicting = arguments.get("check") or boolean(_variable(variables or {}, "rollout_dry_run", False))
        if reading or (predicting and term != "lock"):
            return [1] if term == "sizes" else ["all"] if term == "lock" else NOBODY
        journal = Journal(str(_variable(variables or {}, "report_directory", "reports")))
        try:
            if term == "lock":
                if not predicting:
                    journal.hold(Display().display)
                    atexit.register(_last_words, journal)
                return ["all"]
            planned = journal.read()["run"]
        except (JournalError, OSError) as error:
            raise AnsibleLookupError(str(error)) from error
        if term == "hosts":
            return list(planned.get("hosts") or NOBODY)
        return list(planned.get("sizes") or [1])


def _variable(variables: t.Mapping[str, t.Any], name: str, default: t.Any) -> t.Any:
    """A variable of the site. Where a play begins there is no host yet, so any host of the inventory is asked."""
    if name in variables:
        return variables[name]
    for host in variables.get("groups", {}).get("all", []):
        return variables["hostvars"][host].get(name, default)
    return default


def _last_words(journal: Journal) -> None:
    """Say who is where, where Ansible ended before the last play: it does so when a whole batch is lost."""
    try:
        content = journal.read()
    except (JournalError, OSError):
        return
    if content["run"] and not content["run"].get("ended"):
        records: rollout.Records = content["hosts"]
        for name, record in records.items():
            if record["state"] != rollout.WAITING:
                Display().display(f"rollout: {name}: {rollout_report.says(record)}")
