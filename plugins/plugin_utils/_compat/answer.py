# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options in, a plan or a conflict out: the contract of the lookup, and the conflict as text for a person."""

from __future__ import annotations

import functools
import typing as t

from . import loader, model
from .cause import Cause
from .host import host
from .plan import plan
from .remedies import remedies
from .request import BadOptions, Request, request
from .resolver import Outcome, resolve

Answer = dict[str, t.Any]

CONFLICT = "conflict"


def answer(torch: t.Any, options: t.Mapping[str, t.Any], data: model.Data | None = None) -> Answer:
    """The plan or the conflict for what was asked; options that cannot be used are a conflict as well."""
    try:
        asked = request(torch, options)
    except BadOptions as bad:
        return refusal(bad)
    return answer_request(asked, data or loader.load())


def answer_request(asked: Request, data: model.Data) -> Answer:
    """The plan or the conflict for a checked request."""
    outcome = _outcome(asked, data)
    return plan(outcome) if outcome.best else conflict(outcome)


@functools.lru_cache(maxsize=4096)
def _outcome(asked: Request, data: model.Data) -> Outcome:
    """Alike hosts are resolved once."""
    return resolve(host(asked, data))


def conflict(outcome: Outcome) -> Answer:
    """The causes of an outcome without a candidate, and what would work instead."""
    return of_causes(outcome.causes, [remedy.says for remedy in remedies(outcome)])


def of_causes(causes: t.Iterable[Cause], remedies_: t.Sequence[str] = (), warnings: t.Sequence[str] = ()) -> Answer:
    """A conflict of these causes."""
    return {
        "status": CONFLICT,
        "conflicts": [cause.to_dict() for cause in causes],
        "remedies": list(remedies_),
        "warnings": list(warnings),
    }


def refusal(bad: BadOptions) -> Answer:
    """The conflict for options that cannot be used."""
    return of_causes(Cause("bad-option", p.option, p.found, p.needs, "the lookup's options") for p in bad.problems)


def text(found: Answer, subject: str = "") -> str:
    """A conflict for a person: a line a cause with found and needed, then the numbered remedies."""
    lines = [f"No plan{f' for {subject}' if subject else ''}:"]
    for cause in found["conflicts"]:
        lines.append(f"  {cause['rule']}: {cause['subject']}: found {cause['found']}; needs {cause['needs']}")
    if found["remedies"]:
        lines.append("What works instead:")
        lines += [f"  {number}. {remedy}" for number, remedy in enumerate(found["remedies"], 1)]
    return "\n".join(lines)
