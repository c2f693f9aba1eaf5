# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After the first run: branch 570, its newest, from one entry that is signed by one key."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import looks


def test_the_driver(host: t.Any) -> None:
    looks.assert_driver(host, "570.133.20", {"nvidia-open-570"})
    looks.assert_pinned(host, "570.133.20")


def test_one_entry_and_the_other_put_aside(host: t.Any) -> None:
    names = host.check_output("ls /etc/apt/sources.list.d").split()
    assert names == ["cuda-x86_64.list.disabled", "gpufleet-debian12.sources"]
    source = host.file("/etc/apt/sources.list.d/gpufleet-debian12.sources").content_string
    assert "Signed-By: /etc/apt/keyrings/gpufleet-debian12.asc" in source
    assert host.file("/etc/apt/trusted.gpg.d/gpufleet-debian12.asc").exists is False


def test_libraries_for_compiling_are_the_plans_and_held(host: t.Any) -> None:
    found = looks.driver(host)
    assert found["cuda-toolkit-12-6"] == ("hi", "12.6.3-1")
    assert {
        name: found[name][0] for name in ("libcudnn9-cuda-12", "libcudnn9-dev-cuda-12", "libnccl2", "libnccl-dev")
    } == {"libcudnn9-cuda-12": "hi", "libcudnn9-dev-cuda-12": "hi", "libnccl2": "hi", "libnccl-dev": "hi"}
    # The repository has newer ones, which are not what the wheel was built with.
    assert not found["libcudnn9-cuda-12"][1].startswith("9.99")
    assert found["libcudnn9-cuda-12"][1] == found["libcudnn9-dev-cuda-12"][1]
    assert found["libnccl2"][1] == found["libnccl-dev"][1]
