# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of checks in ``gpufleet_policy``: one that no check has would change nothing, without a word."""

from __future__ import annotations

import difflib
import fnmatch
import re
import typing as t
from pathlib import Path

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import POLICIES

#: How alike a name must be to one of a check to be it, misspelt.
CUTOFF = 0.7

#: A check names itself in the code: where it is declared or found, and as a word with a dash. That is more than all
#: checks have, so that no name of a check is refused.
_NAMES = re.compile(r'(?:check|Finding)\(\s*"([a-z][a-z0-9]*)"|"([a-z][a-z0-9]*(?:-[a-z0-9]+)+)"')
#: A name with a part that is put in: ``{part}-packages``.
_MADE = re.compile(r'(?:check|Finding)\(\s*f"([a-z0-9{}_-]+)"')


def known() -> frozenset[str]:
    """Every name that a check of this collection may have; ``*`` stands for a part that is put in."""
    plugins = Path(__file__).resolve().parents[2]
    found: set[str] = set()
    for folder in ("module_utils", "plugin_utils", "action"):
        for path in sorted((plugins / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            found.update(first or second for first, second in _NAMES.findall(text))
            found.update(re.sub(r"\{\w+\}", "*", made) for made in _MADE.findall(text))
    return frozenset(found)


def problems(policy: t.Any, names: t.Collection[str]) -> list[str]:
    """What is wrong with a ``gpufleet_policy``, each with what was meant where that can be told."""
    if not isinstance(policy, t.Mapping):
        return [f"gpufleet_policy is {policy!r}; a mapping of check to {' or '.join(POLICIES)} is needed"]
    found = []
    for name, value in policy.items():
        if not any(fnmatch.fnmatchcase(str(name), one) for one in names):
            close = difflib.get_close_matches(str(name), names, n=1, cutoff=CUTOFF)
            meant = f"did you mean {close[0]}?" if close else "docs/checks.md and the reports have the names"
            found.append(f"gpufleet_policy names {name}, which is no check: {meant}")
        if value not in POLICIES:
            found.append(f"gpufleet_policy of {name} is {value!r}; {' or '.join(POLICIES)} is needed")
    return found
