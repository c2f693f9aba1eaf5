# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation: every plugin renders, the collection's pages pass their linter, and the changelog its own."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"modules": "module", "lookup": "lookup", "filter": "filter"}


def plugins() -> list[tuple[str, str]]:
    """Type and full name of each plugin that documents itself."""
    return [
        (kind, f"gpufleet.pytorch.{path.stem}")
        for folder, kind in KINDS.items()
        for path in sorted((ROOT / "plugins" / folder).glob("[!_]*.py"))
    ]


@pytest.mark.parametrize(("kind", "name"), plugins())
def test_ansible_doc_renders(gate: t.Callable[..., t.Any], kind: str, name: str) -> None:
    page = json.loads(gate("ansible-doc", "--type", kind, "--json", name).stdout)[name]
    assert page["doc"]["short_description"] and page["doc"]["description"]
    assert page["examples"].strip()
    assert page["return"]
    text = gate("ansible-doc", "--type", kind, name).stdout
    assert name in text and list(page["return"])[-1] in text


def test_ansible_doc_renders_every_role(gate: t.Callable[..., t.Any]) -> None:
    roles = {f"gpufleet.pytorch.{path.name}" for path in (ROOT / "roles").iterdir() if (path / "tasks").is_dir()}
    pages = json.loads(gate("ansible-doc", "--type", "role", "--json", *sorted(roles)).stdout)
    assert set(pages) == roles
    for name, page in pages.items():
        for entry, spec in page["entry_points"].items():
            assert spec["short_description"] and spec["description"], f"{name}: {entry} does not say what it is for"


def test_antsibull_docs(gate: t.Callable[..., t.Any], copy: Path) -> None:
    gate(
        *("antsibull-docs", "lint-collection-docs", "--plugin-docs", "--validate-collection-refs", "self"),
        *("--skip-rstcheck", "--disallow-unknown-collection-refs", "."),
        cwd=copy,
    )


def test_antsibull_changelog(gate: t.Callable[..., t.Any]) -> None:
    gate("antsibull-changelog", "lint")


def test_the_action_group_has_every_module() -> None:
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    modules = sorted(path.stem for path in (ROOT / "plugins" / "modules").glob("[!_]*.py"))
    assert runtime["action_groups"]["all"] == modules
