# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which lines a person sees of long work: enough to know that bytes move, few enough for a fleet's log."""

from __future__ import annotations

import typing as t

#: A line for each part of the bytes, and for each so many looks in which nothing else was to be said.
PARTS = 10
QUIET_LOOKS = 12
#: Bytes that are a part where nobody knows how many there will be.
UNKNOWN_PART = 100e6


class Lines:
    """Turns how far the work of one host is, looked at now and then, into lines."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.stage = ""
        self.part = -1
        self.looks = 0

    def next(self, progress: t.Mapping[str, t.Any]) -> list[str]:
        """The lines for a look: none where little has changed since the last line."""
        stage = str(progress.get("stage") or "")
        done, total = float(progress.get("done") or 0), float(progress.get("total") or 0)
        if not stage:
            return []
        part = int(done * PARTS / total) if total else int(done / UNKNOWN_PART)
        self.looks += 1
        if stage == self.stage and part <= self.part and self.looks < QUIET_LOOKS:
            return []
        self.stage, self.part, self.looks = stage, part, 0
        amount = ""
        if done or total:
            amount = f", {done / 1e6:.0f} " + (f"of {total / 1e6:.0f} MB" if total else "MB so far")
        return [f"  {self.host}: {stage}{amount}"]
