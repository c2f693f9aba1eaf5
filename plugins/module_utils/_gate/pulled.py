# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the last ansible-pull of this host ended well: a fleet whose pulls fail unseen is one that nobody changes."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding


def findings(result: str, valid_for: int) -> t.Dict[str, t.Any]:
    """What goes into findings.d (outside.py). ``result``: systemd's $SERVICE_RESULT, ``success`` where it ended with 0.

    It is only reported: the host is judged by what is found on it. A playbook that ends with "not ready" fails too.
    """
    if result == "success":
        found = Finding("pull", "ok", found="the last ansible-pull ended with success", policy="report")
    else:
        found = Finding(
            "pull", "warn", found=f"the last ansible-pull ended with {result}", policy="report",
            expected="success; journalctl -u gpufleet-pull has its words", action="fix configuration",
        )  # fmt: skip
    at = _finding.now()
    return {
        "schema": 1,
        "findings": [one.to_dict() for one in _finding.stamp([found], at)],
        "judged_at": at,
        "valid_for": valid_for,
    }
