# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of checks in gpufleet_policy."""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import registry
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._report import checks

NAMES = checks.known()


def test_every_check_is_known() -> None:
    assert {check.name for check in registry.CHECKS} <= NAMES
    assert {"gpu-count", "gpu-without-driver", "driver-owners", "run-finished", "xid", "persistence"} <= NAMES


def test_every_name_in_the_documentation_is_known() -> None:
    """The page of checks, and the policies that documents give as examples."""
    root = Path(__file__).resolve().parents[4]
    page = (root / "docs/checks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.MULTILINE)) <= NAMES


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ({}, []),
        ({"power-limit": "block", "xid-user": "report", "cudnn-packages": "report"}, []),
        ({"power-limt": "block"}, ["gpufleet_policy names power-limt, which is no check: did you mean power-limit?"]),
        ({"xid_user": "block"}, ["gpufleet_policy names xid_user, which is no check: did you mean xid-user?"]),
        (
            {"qqqqqqqq": "block"},
            ["gpufleet_policy names qqqqqqqq, which is no check: docs/checks.md and the reports have the names"],
        ),
        ({"power-limit": "blok"}, ["gpufleet_policy of power-limit is 'blok'; block or report is needed"]),
        ("power-limit", ["gpufleet_policy is 'power-limit'; a mapping of check to block or report is needed"]),
    ],
)
def test_problems(policy: t.Any, wanted: t.List[str]) -> None:
    assert checks.problems(policy, NAMES) == wanted
