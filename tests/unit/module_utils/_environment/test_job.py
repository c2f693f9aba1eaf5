# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's own work outlives a call, has one worker, and ends where nobody asks for it."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment import effects, job, space
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.effects import Effects
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wanted import EnvironmentFailure


def _answer(_tell: t.Any, _asked: t.Any, _lock: int) -> t.Dict[str, t.Any]:
    return {"pid": os.getpid()}


def test_work_in_a_process_of_its_own(tmp_path: Path) -> None:
    one = job.Job(str(tmp_path), "one")
    assert one.acquire()
    one.start(_answer)
    result = one.wait(30)
    assert result is not None and result["pid"] != os.getpid()
    assert one.take_result() is None


def test_work_that_fails_says_why(tmp_path: Path) -> None:
    def broken(_tell: t.Any, _asked: t.Any, _lock: int) -> t.Dict[str, t.Any]:
        raise RuntimeError("gone wrong")

    one = job.Job(str(tmp_path), "one")
    assert one.acquire()
    one.start(broken)
    result = one.wait(30)
    assert result is not None and result["failed"] and "gone wrong" in result["msg"]


def test_one_worker_and_its_death(tmp_path: Path) -> None:
    read, write = os.pipe()

    def waits(tell: t.Any, _asked: t.Any, _lock: int) -> t.Dict[str, t.Any]:
        tell("waiting", 1, 2)
        os.read(read, 1)
        os._exit(9)

    one = job.Job(str(tmp_path), "one")
    assert one.acquire()
    one.start(waits)
    other = job.Job(str(tmp_path), "other")
    assert not other.acquire()
    assert other.wait(0.5) is None and not other.died()
    assert other.progress()["stage"] == "waiting"
    os.write(write, b"x")
    assert one.wait(30) is None
    assert one.acquire() and one.died()
    one.clear()
    assert not one.died()


def test_command_ends_where_nobody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "TICK", 0.01)
    monkeypatch.setattr(job, "ABANDONED_AFTER", 0.0)
    one = job.Job(str(tmp_path), "one")
    one.ask()
    with pytest.raises(EnvironmentFailure, match="nobody waits"):
        Effects(watched=one._asked).run(["sleep", "1000"], dict(os.environ))


def test_space_is_summed_by_file_system(tmp_path: Path) -> None:
    needs = [space.Need(str(tmp_path / "a" / "b"), 1, "one"), space.Need(str(tmp_path), 10**15, "other")]
    with pytest.raises(
        EnvironmentFailure, match=r"1000000001 MB needed \(1 MB for one in .*/a/b, 1000000000 MB for other"
    ):
        space.check(needs)
    space.check(needs[:1])
