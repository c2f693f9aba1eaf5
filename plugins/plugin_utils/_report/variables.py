# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Misspelt variables of ours: a wish that nobody reads must not be lost without a word."""

from __future__ import annotations

import difflib
import typing as t
from pathlib import Path

import yaml

ROLES = Path(__file__).resolve().parents[3] / "roles"

#: Two names this alike are one name misspelt; the first word decides whether a name means to be ours.
CUTOFF = 0.85
PREFIX_CUTOFF = 0.8


def misspelt(names: t.Mapping[str, t.Any], known: t.Collection[str], made: t.Collection[str] = ()) -> dict[str, str]:
    """The names that look like a misspelt variable of ours, each with the name meant.

    ``names``: a host's variables. ``made``: what our roles themselves leave behind, which an earlier playbook of the
    same run has left: results, which are mappings, and no user's wish has such a form.
    """
    prefixes = sorted({name.split("_", 1)[0] for name in known})
    result = {}
    for name in names:
        if name in known or name.startswith(("_", "ansible_")):
            continue
        if name in made and isinstance(names[name], t.Mapping):
            continue
        if not difflib.get_close_matches(name.split("_", 1)[0], prefixes, n=1, cutoff=PREFIX_CUTOFF):
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=CUTOFF)
        if close:
            result[name] = close[0]
    return result


def public() -> set[str]:
    """The names of every role's options, from their argument specifications."""
    names: set[str] = set()
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        for spec in (yaml.safe_load(path.read_text()) or {}).get("argument_specs", {}).values():
            names |= set(spec.get("options") or {})
    return names


def options(role: str) -> dict[str, t.Any]:
    """The options of a role's own tasks, as its argument specification has them."""
    path = ROLES / role / "meta" / "argument_specs.yml"
    return t.cast("dict[str, t.Any]", yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"])


def made() -> set[str]:
    """The names of what the tasks of our roles and playbooks register or set."""
    names: set[str] = set()
    for folder, pattern in ((ROLES, "*/tasks/*.yml"), (ROLES.parent / "playbooks", "**/*.yml")):
        for path in sorted(folder.glob(pattern)):
            names |= _made_by(yaml.safe_load(path.read_text()))
    return names


def _made_by(tasks: t.Any) -> set[str]:
    if isinstance(tasks, list):
        return {name for task in tasks for name in _made_by(task)}
    if not isinstance(tasks, dict):
        return set()
    names = {str(tasks["register"])} if "register" in tasks else set()
    names |= set(tasks.get("ansible.builtin.set_fact") or {})
    return names.union(*(_made_by(part) for part in tasks.values()))
