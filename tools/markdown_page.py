# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A page of Markdown with tables and numbered sources."""

from __future__ import annotations

import typing as t

DEDUCED = "†"
Cells = t.Sequence[t.Any]


class Page:
    """A page of Markdown; sources are numbered as they come and listed at its end."""

    def __init__(self, title: str, as_of: str) -> None:
        self._lines = [
            "<!-- Made by tools/render_compatibility.py from plugins/plugin_utils/_compat/data: change those. -->",
            "",
            f"# {title}",
            "",
            f"As of {as_of}. {DEDUCED} marks what was deduced, not read; numbers in brackets name sources.",
            "",
        ]
        self._sources: dict[str, int] = {}

    def text(self, *lines: str) -> None:
        """A paragraph."""
        self._lines += [*lines, ""]

    def cite(self, source: str) -> str:
        """Number of a source."""
        return f"[{self._sources.setdefault(source, len(self._sources) + 1)}]"

    def table(self, head: Cells, rows: t.Iterable[Cells]) -> None:
        """A table; cells of None and "" are empty."""
        self._lines.append("| " + " | ".join(str(cell) for cell in head) + " |")
        self._lines.append("|" + " --- |" * len(head))
        for row in rows:
            cells = ("" if cell is None else str(cell).replace("|", "\\|") for cell in row)
            self._lines.append("| " + " | ".join(cells) + " |")
        self._lines.append("")

    def done(self) -> str:
        """The whole page."""
        sources = [f"{number}. {source}" for source, number in self._sources.items()]
        return "\n".join([*self._lines, "## Sources", "", *sources]) + "\n"
