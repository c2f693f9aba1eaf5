# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public conflicts, one file a case in ``cases/``: what was asked, and the right answer.

``expect`` is a mapping of paths in the plan to what must be there (see ``matches``), and beside them: ``conflicts``,
rules that the answer names (alternatives between bars); ``remedies``, patterns of which each is in some remedy;
``not_in_remedies``, a pattern that is in none; ``text``, a pattern in the whole answer.
"""

from __future__ import annotations

import functools
import operator
import pathlib
import re

import pytest
import yaml

CASES = pathlib.Path(__file__).parent / "cases"
OF_A_CONFLICT = ("conflicts", "remedies", "not_in_remedies", "text")
AROUND = {
    "os_id": "ubuntu",
    "os_version": "24.04",
    "arch": "x86_64",
    "glibc": "2.39",
    "kernel": "6.8.0-90-generic",
    "virtualization": "none",
    "python": "3.12",
    "driver": "",
    "driver_owner": "nobody",
    "secure_boot": "disabled",
}


def questions():
    for path in sorted(CASES.glob("*.yml")):
        for number, question in enumerate(yaml.safe_load(path.read_text(encoding="utf-8"))["asks"]):
            yield pytest.param(question, id=f"{path.stem}-{number}")


def numbers(text):
    return [int(part) for part in re.findall(r"\d+", str(text))]


def matches(expected, found, plan):
    """Whether a cell is as expected: equal, or by one word: min, not, in, startswith and the like."""
    if not isinstance(expected, dict):
        return found == expected
    ((word, value),) = expected.items()
    return {
        "min": lambda: numbers(found) >= numbers(value),
        "not": lambda: found != value,
        "in": lambda: found in value,
        "startswith": lambda: str(found).startswith(value),
        "matches": lambda: re.search(value, str(found)) is not None,
        "contains": lambda: any(value in item for item in found),
        "without": lambda: not any(value in item for item in found),
        "empty": lambda: not found,
        "same_as": lambda: found == cell(plan, value),
    }[word]()


def cell(plan, path):
    return functools.reduce(operator.getitem, path.split("."), plan)


def faults(expect, plan):
    """What is wrong with an answer, as text."""
    if plan["status"] != expect.get("status", plan["status"]):
        return [f"{plan['status']}: {plan.get('conflicts') or plan['torch']}"]
    found = [
        f"{path} is {cell(plan, path)!r}, not {value!r}"
        for path, value in expect.items()
        if path not in OF_A_CONFLICT and not matches(value, cell(plan, path), plan)
    ]
    rules = {cause["rule"] for cause in plan.get("conflicts", [])}
    for wanted in expect.get("conflicts", []):
        if not rules & set(wanted.split("|")):
            found.append(f"no conflict {wanted}, but {sorted(rules)}")
    for pattern in expect.get("remedies", []):
        if not any(re.search(pattern, remedy) for remedy in plan["remedies"]):
            found.append(f"no remedy with {pattern!r} in {plan['remedies']}")
    if any(
        re.search(expect["not_in_remedies"], remedy)
        for remedy in plan.get("remedies", [])
        if "not_in_remedies" in expect
    ):
        found.append(f"a remedy with {expect['not_in_remedies']!r} in {plan['remedies']}")
    if "text" in expect and not re.search(expect["text"], str(plan)):
        found.append(f"nothing says {expect['text']}")
    return found


@pytest.mark.parametrize("question", list(questions()))
def test_case(ask, question):
    plan = ask(question["torch"], {**AROUND, **question["options"]})
    assert faults(question["expect"], plan) == [], question["says"]


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yml")), ids=lambda path: path.stem)
def test_every_case_names_its_source(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert content["source"]
    assert all(set(question) == {"says", "torch", "options", "expect"} for question in content["asks"])
