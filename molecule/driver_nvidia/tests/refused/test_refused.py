# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After seven wishes that cannot be: each was refused with its reason, and the driver is whole and where it was."""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import looks


@pytest.mark.parametrize(
    ("case", "check", "words"),
    [
        ("wrong-key", "driver-packages", ["EB693B3035CD5710E231E123A4B469963BF863CC", "Nothing was trusted"]),
        ("no-answer", "driver-packages", ["apt-get update", "127.0.0.1", "Connection refused"]),
        ("no-headers", "headers-unavailable", ["linux-headers-6.1.0-1-amd64", "nothing was changed"]),
        (
            "no-build",
            "dkms-not-built",
            ["nvidia.c:", "implicit declaration of function 'pci_resize_resource'", "590.48.01"],
        ),
        ("container", "driver-owned-elsewhere", ["this is a container (podman), whose host runs the kernel"]),
        (
            "no-version",
            "driver-not-available",
            ["nvidia-open-570 570.133.20-1", "needed: nvidia-open-575", "driver_policy"],
        ),
        (
            "two-owners",
            "driver-owned-elsewhere",
            ["libcuda1 570.133.20-1 owns", "/usr/lib/libcuda.so.1 is no package's"],
        ),
    ],
)
def test_each_was_refused_with_its_reason(host: t.Any, case: str, check: str, words: list[str]) -> None:
    result = json.loads(host.file(f"/root/{case}.json").content_string)
    assert result["failed"] is True and result["changed"] is False
    assert [(finding["check"], finding["state"]) for finding in result["findings"]] == [(check, "fail")]
    said = result["msg"].replace("\u2018", "'").replace("\u2019", "'")
    assert [word for word in words if word not in said] == []


def test_the_driver_is_where_it_was(host: t.Any) -> None:
    looks.assert_driver(host, "570.133.20", {"nvidia-open-570"})
    looks.assert_pinned(host, "570.133.20")
    assert host.check_output("dpkg --audit") == ""
    host.check_output("apt-get check")
