# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rule is, and what it finds: a Cause."""

from __future__ import annotations

import dataclasses
import typing as t

#: What a check yields for each violation: subject, found, needs.
Said = tuple[str, str, str]

MATRIX = "docs.nvidia.com CUDA toolkit, driver and architecture matrix"


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """One reason why something does not work: the subject, what was found, what is needed, and who says so."""

    rule: str
    subject: str
    found: str
    needs: str
    source: str

    def to_dict(self) -> dict[str, str]:
        """The form of the contract."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """``check`` yields (subject, found, needs) for each violation; ``says`` is the rule as a sentence."""

    id: str
    says: str
    source: str
    check: t.Callable[..., t.Iterator[Said]]

    def causes(self, *given: t.Any) -> list[Cause]:
        """What the rule finds wrong."""
        return [Cause(self.id, subject, found, needs, self.source) for subject, found, needs in self.check(*given)]
