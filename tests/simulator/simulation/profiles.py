# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Named machines."""

from __future__ import annotations

from simulation.scenario import ScenarioError, Values


def names() -> list[str]:
    return []


def load(name: str) -> Values:
    raise ScenarioError(f"--profile {name}: there is none of this name; there are {', '.join(names())}")
