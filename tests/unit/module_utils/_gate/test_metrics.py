# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict as metrics, line by line; a real parser reads them in tests/integration/slurm."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import metrics

#: A line of the text format 0.0.4, a comment of it, or nothing.
LINE = re.compile(r'(# (HELP|TYPE) \w+ .+|\w+(\{\w+="([^"\\\n]|\\[\\"n])*"(,\w+="([^"\\\n]|\\[\\"n])*")*\})? -?\d+)$')


def finding(check, state, key="", policy="block", action="none"):
    return {"id": f"{check}/gpu/{key}", "check": check, "subject": {"kind": "gpu", "key": key}, "state": state,
            "policy": policy, "action": action}  # fmt: skip


def test_a_verdict():
    odd = finding("row-remap", "fail", 'a"b\\c\nd', action="replace")
    found = [
        odd,
        odd,
        {**odd, "state": "warn", "policy": "report"},
        finding("xid", "warn", "GPU-1", "report"),
        finding("ecc", "ok"),
        finding("mig", "ok"),
    ]
    made = {"state": "not_ready", "findings": found, "judged_at": "2026-12-01T11:00:00Z", "valid_for": 900}
    lines = metrics.text(made).splitlines()
    assert [line for line in lines if not LINE.match(line)] == []
    samples = [line for line in lines if not line.startswith("#") and not line.endswith(" 0")]
    assert samples == [
        'gpufleet_state{state="not_ready"} 1',
        'gpufleet_findings{state="fail",policy="block"} 2',
        'gpufleet_findings{state="warn",policy="report"} 2',
        'gpufleet_findings{state="ok",policy="block"} 2',
        'gpufleet_finding{check="row-remap",kind="gpu",key="a\\"b\\\\c\\nd",'
        'state="fail",policy="block",action="replace"} 1',
        'gpufleet_finding{check="row-remap",kind="gpu",key="a\\"b\\\\c\\nd",'
        'state="warn",policy="report",action="replace"} 1',
        'gpufleet_finding{check="xid",kind="gpu",key="GPU-1",state="warn",policy="report",action="none"} 1',
        "gpufleet_verdict_timestamp_seconds 1796122800",
        "gpufleet_verdict_valid_seconds 900",
    ]
    assert "gpufleet_ready 0" in lines
    assert len(set(lines)) == len(lines)


def test_what_is_not_known_has_no_time_and_is_not_ready():
    told = metrics.text({"state": "unknown", "findings": [finding("verdict-current", "unknown")]})
    assert 'gpufleet_state{state="unknown"} 1' in told and "gpufleet_ready 0" in told
    assert "timestamp" not in told


def test_a_host_that_is_ready():
    assert "gpufleet_ready 1\n" in metrics.text({"state": "ready", "findings": []})
