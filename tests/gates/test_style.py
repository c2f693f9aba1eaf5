# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Linters and types, as other people's tools see the clone."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("ansible-lint", "--profile", "production", "--offline"), id="ansible-lint"),
        pytest.param(("yamllint", "--strict", "."), id="yamllint"),
        pytest.param(("ruff", "check", "."), id="ruff-check"),
        pytest.param(("ruff", "format", "--check", "."), id="ruff-format"),
        pytest.param(("mypy", "--strict", "plugins", "requirements/fetch_pip.py"), id="mypy"),
    ],
)
def test_the_clone_passes(gate: t.Callable[..., t.Any], command: tuple[str, ...]) -> None:
    gate(*command)


def test_shell_scripts_pass_shellcheck(gate: t.Callable[..., t.Any], root: Path) -> None:
    gate("shellcheck", "run", ".ci/run", *sorted(root.glob("tools/*.sh")))
