# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mirror that images are made from is the machine's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import images

DEB822 = """Types: deb
# http://commented.example/debian
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
"""


@pytest.mark.parametrize(
    ("files", "mirror"),
    [
        ({"sources.list.d/debian.sources": DEB822}, "http://mirror.example/debian"),
        (
            {"sources.list": "deb [signed-by=/k.gpg] https://m.example/a/debian/ bookworm main\n"},
            "https://m.example/a/debian/",
        ),
        ({"sources.list": "deb http://m.example/debian-security bookworm-security main\n"}, ""),
        ({"sources.list": "deb http://archive.example/ubuntu noble main\n"}, ""),
        ({"sources.list": "deb cdrom:[Debian]/ bookworm main\n# deb http://m.example/debian bookworm main\n"}, ""),
        ({}, ""),
    ],
)
def test_debian_mirror(files: dict[str, str], mirror: str, tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert images.debian_mirror(tmp_path) == mirror
