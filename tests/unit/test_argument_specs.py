# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's documentation and its behaviour say the same: defaults by value, and a page for a person."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.parent for path in (ROOT / "roles").glob("*/tasks"))


def load(path: Path) -> t.Any:
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None


def disagreements(specs: dict[str, t.Any], defaults: dict[str, t.Any]) -> list[str]:
    """How a role's entry points and its defaults/main.yml differ; every entry point takes the same defaults."""
    found = []
    documented: dict[str, t.Any] = {}
    for entry, spec in specs.items():
        for name, option in (spec.get("options") or {}).items():
            documented[name] = option
            if option.get("required") and name in defaults:
                found.append(f"{entry}: {name} is required and has a default")
            elif "default" in option and name not in defaults:
                found.append(f"{entry}: {name} has a documented default and none in defaults/main.yml")
            elif name in defaults and ("default" not in option or not same(option["default"], defaults[name])):
                found.append(f"{entry}: {name} is {option.get('default')!r} here and {defaults[name]!r} in defaults")
    return found + [f"{name} is not documented" for name in defaults if name not in documented]


def same(left: t.Any, right: t.Any) -> bool:
    """Equal in value and type: true is not 1, and "1" is not 1."""
    return repr(left) == repr(right)


@pytest.mark.parametrize(
    ("option", "default", "expected"),
    [
        ({"default": "a"}, "a", 0),
        ({"default": "a"}, "b", 1),
        ({"default": True}, 1, 1),
        ({"default": "1"}, 1, 1),
        ({"default": {"a": [1]}}, {"a": [1]}, 0),
        ({}, "a", 1),
        ({"required": True}, "a", 1),
    ],
)
def test_the_comparison_itself(option: dict[str, t.Any], default: t.Any, expected: int) -> None:
    assert len(disagreements({"main": {"options": {"x": option}}}, {"x": default})) == expected


def test_the_comparison_sees_what_is_on_one_side_only() -> None:
    assert disagreements({"main": {"options": {}}}, {"x": 1}) == ["x is not documented"]
    assert len(disagreements({"main": {"options": {"x": {"default": 1}}}}, {})) == 1


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_documents_its_defaults(role: Path) -> None:
    specs = load(role / "meta" / "argument_specs.yml")
    assert specs, "needs meta/argument_specs.yml"
    assert "main" in specs["argument_specs"]
    assert disagreements(specs["argument_specs"], load(role / "defaults" / "main.yml") or {}) == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_documented_entry_point_exists(role: Path) -> None:
    specs = load(role / "meta" / "argument_specs.yml")["argument_specs"]
    assert [name for name in specs if not (role / "tasks" / f"{name}.yml").is_file()] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_a_role_has_a_page_and_metadata(role: Path) -> None:
    assert (role / "README.md").read_text(encoding="utf-8").startswith("# ")
    assert load(role / "meta" / "main.yml")["galaxy_info"]["license"] == "GPL-3.0-or-later"
