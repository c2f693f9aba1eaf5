# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._environment.progress import Lines


def look(stage: str, done: float = 0, total: float = 0) -> dict[str, object]:
    return {"stage": stage, "done": done, "total": total}


def test_bytes_move_in_few_lines() -> None:
    lines = Lines("n1")
    looks = [look("downloading torch 2.13.0+cpu", done, 200e6) for done in range(0, int(200e6), int(1e6))]
    said = [line for one in looks for line in lines.next(one)]
    assert said[0] == "  n1: downloading torch 2.13.0+cpu, 0 of 200 MB"
    assert said[1].endswith("20 of 200 MB") or "MB" in said[1]
    assert 10 <= len(said) <= 30


def test_each_stage_and_silence() -> None:
    lines = Lines("n1")
    assert lines.next({}) == []
    assert lines.next(look("resolving torch")) == ["  n1: resolving torch"]
    assert lines.next(look("resolving torch")) == []
    assert lines.next(look("resolving torch", 120e6)) == ["  n1: resolving torch, 120 MB so far"]
    assert lines.next(look("installing torch")) == ["  n1: installing torch"]
    assert sum(len(lines.next(look("installing torch"))) for _look in range(24)) == 2
