# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patterns that are compiled at their first use: a healthy host has no line that most of them are for."""

from __future__ import annotations

import re
import typing as t


class _Lazy:
    def __init__(self, pattern: str, flags: int) -> None:
        self._of = pattern, flags

    def __getattr__(self, name: str) -> t.Any:
        """Asked once for each method: what it is then is found before this."""
        method = getattr(re.compile(*self._of), name)
        setattr(self, name, method)
        return method


def lazy(pattern: str, flags: int = 0) -> t.Pattern[str]:
    """As re.compile; an error in the pattern shows when it is used."""
    return t.cast("t.Pattern[str]", _Lazy(pattern, flags))
