# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After the wish for branch 570 again, and after somebody loosened what holds it."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import looks


def test_the_driver(host: t.Any) -> None:
    looks.assert_driver(host, "570.133.20", {"nvidia-open-570"})
    looks.assert_pinned(host, "570.133.20")
    assert "blacklist nouveau" in host.check_output("modprobe --showconfig").splitlines()
