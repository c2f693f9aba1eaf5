# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of real source files, and the components that Debian's archive lacks in them."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import sources

DEBOOTSTRAP = "deb http://mirror.example.com/debian bookworm main\n"
CLOUD = """# See the sources.list(5) manual page.
Types: deb deb-src
URIs: mirror+file:///etc/apt/mirrors/debian.list http://mirror.example.invalid/debian/
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://security.example.invalid/debian-security
Suites: bookworm-security
Components: main contrib non-free non-free-firmware

Enabled: no
Types: deb
URIs: http://mirror.example.invalid/debian
Suites: bookworm-backports
Components: main
"""
THIRD = "deb [arch=amd64 signed-by=/etc/apt/keyrings/h.gpg] https://apt.example.invalid bookworm main # theirs\n"


def test_the_one_line_form() -> None:
    assert sources.parse_list(DEBOOTSTRAP) == [sources.Entry("http://mirror.example.com/debian", "bookworm", ("main",))]
    assert sources.parse_list("# deb http://a/debian bookworm main\ndeb-src http://a/debian bookworm main\n") == []
    assert sources.parse_list(THIRD) == [
        sources.Entry("https://apt.example.invalid", "bookworm", ("main",), "/etc/apt/keyrings/h.gpg")
    ]


def test_the_deb822_form() -> None:
    found = sources.parse_deb822(CLOUD)
    assert len(found) == 5
    assert found[2].uri == "http://mirror.example.invalid/debian/"
    assert found[2].signed_by == "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert {entry.suite for entry in found} == {"bookworm", "bookworm-updates", "bookworm-security"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (DEBOOTSTRAP, [("http://mirror.example.com/debian", "bookworm", "contrib non-free non-free-firmware")]),
        # A component that is there already is not named a second time, which apt would warn of at each run.
        (
            "deb http://m/debian bookworm main contrib\n",
            [("http://m/debian", "bookworm", "non-free non-free-firmware")],
        ),
        (
            "deb http://m/debian bookworm main\ndeb http://m/debian bookworm contrib non-free non-free-firmware\n",
            [],
        ),
        ("deb http://m/debian trixie main\n", []),
        (THIRD, []),
    ],
)
def test_missing_components(text: str, expected: list[tuple[str, str, str]]) -> None:
    lacking = sources.missing_components(sources.parse_list(text), "bookworm")
    assert [(entry.uri, entry.suite, " ".join(entry.components)) for entry in lacking] == expected


def test_what_is_written_reads_back() -> None:
    lacking = sources.missing_components(sources.parse_deb822(CLOUD), "bookworm")
    assert len(lacking) == 4
    text = sources.deb822(lacking, "Ours")
    assert text.startswith("# Ours\nTypes: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: bookworm\n")
    assert sources.parse_deb822(text) == lacking
