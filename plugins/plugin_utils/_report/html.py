# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet as one page for a browser: a file without scripts that loads nothing."""

from __future__ import annotations

import typing as t
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ansible_collections.gpufleet.pytorch.plugins.module_utils._words import plain
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import table

#: By weight, the order in which a person wants them.
ORDER = ("not_ready", "unknown", "ready")


def render(content: t.Mapping[str, t.Any], made_at: str) -> str:
    """The page of a report's JSON form (``hosts``, and ``fleet`` where there is one). Text of hosts is escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["plain"] = plain
    hosts = content["hosts"]
    rows = sorted(hosts.items(), key=lambda item: (ORDER.index(item[1]["state"]), item[0]))
    return environment.get_template("fleet.html.j2").render(
        made_at=made_at,
        counts={state: sum(verdict["state"] == state for verdict in hosts.values()) for state in ORDER},
        words=table.WORDS,
        total=len(hosts),
        fleet=content.get("fleet", {}).get("findings", []),
        rows=[(name, verdict, table.loudest(verdict)) for name, verdict in rows],
    )
