# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict file of a playbook on the controller, ``reports/NAME/latest.json``."""

from __future__ import annotations

import json
import os
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import dumps
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic


def update(path: str, hosts: t.Mapping[str, t.Mapping[str, t.Any]], known: t.Collection[str]) -> dict[str, t.Any]:
    """Put the verdicts of ``hosts`` into the file at ``path`` and return its whole content.

    Other hosts that the inventory still knows (``known``) keep their verdict and their age; others go.
    A file that is not ours or damaged is replaced: it is a report, the truth is on the hosts.
    """
    merged = {name: verdict for name, verdict in read(path).items() if name in known}
    merged.update(hosts)
    content = {"ok": all(verdict["ok"] is True for verdict in merged.values()), "hosts": merged}
    write_atomic(path, dumps(content))
    return content


def read(path: str) -> dict[str, t.Any]:
    """The verdicts in the file at ``path`` by host; none where there is no such file or it is damaged."""
    try:
        with open(path, encoding="utf-8") as stream:
            hosts = json.load(stream)["hosts"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    if not isinstance(hosts, dict):
        return {}
    return {name: verdict for name, verdict in hosts.items() if isinstance(verdict, dict) and "ok" in verdict}


def report_path(directory: str, name: str) -> str:
    """The file of the playbook ``name`` under the reports folder ``directory``."""
    return os.path.join(os.path.abspath(directory), name, "latest.json")
