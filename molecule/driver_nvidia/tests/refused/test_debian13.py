# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A key that signs itself with SHA-1: Debian 13 refuses it, the role says so in its words, and nothing of it stays."""

from __future__ import annotations

import json
import typing as t

RELEASE = "13"


def test_the_key_is_refused_and_nothing_stays(host: t.Any) -> None:
    result = json.loads(host.file("/root/sha1-key.json").content_string)
    assert result["failed"] is True
    assert [finding["check"] for finding in result["findings"]] == ["driver-packages"]
    assert "SHA1 is not considered secure since 2026-02-01" in result["msg"]
    assert host.check_output("ls /etc/apt/sources.list.d /etc/apt/preferences.d /etc/apt/keyrings").split() == [
        "/etc/apt/keyrings:",
        "/etc/apt/preferences.d:",
        "/etc/apt/sources.list.d:",
        "cuda-x86_64.list",
    ]
