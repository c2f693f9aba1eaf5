# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Finding as a line for a person, the same on the host and on the controller.

What a Finding says can be anybody's text: of a log, of a file, of a device. A terminal does what it is told.
"""

from __future__ import annotations

import typing as t

#: Characters of a line.
LONGEST = 500


def line(finding: t.Mapping[str, t.Any]) -> str:
    """State, check, subject, found and expected, and what to do. ``finding``: in its JSON form."""
    subject = finding["subject"]
    where = f" {subject['kind']} {subject['key']}" if subject.get("key") else ""
    text = f"{finding['state']} {finding['check']}{where}: {finding['found']}"
    if finding.get("expected"):
        text += f" (expected {finding['expected']})"
    if finding.get("action", "none") != "none":
        text += f" -> {finding['action']}"
    if finding.get("policy") == "report":
        text += " [report only]"
    return plain(text)


def plain(text: str, longest: int = LONGEST) -> str:
    """One line of characters that can be printed, and no longer than that; the JSON has the whole."""
    text = " ".join(text.split())
    text = text if len(text) <= longest else text[: longest - 3] + "..."
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def count(number: int, noun: str) -> str:
    """``1 host``, ``2 hosts``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
