# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many starts do the work once, a child that hangs holds nobody longer than its time, and is remembered."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import signal
import sys
import time

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import look, once, verdict

FINE = [Finding("drift", "ok", found="as proved")]


def judged(seconds, log):
    def work():
        with open(log, "a") as stream:
            stream.write("x")
        time.sleep(seconds)
        return look.judged(FINE, verdict.now(), 900)

    return work


def start(folder, seconds, limit, answers):
    answers.put(once.answer(folder, "look", judged(seconds, os.path.join(folder, "log")), limit))


def test_twenty_starts_at_once_do_it_once_and_all_have_the_answer(tmp_path):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    starts = [context.Process(target=start, args=(str(tmp_path), 1.0, 20.0, answers)) for _number in range(20)]
    for one in starts:
        one.start()
    found = [answers.get(timeout=30) for _one in starts]
    for one in starts:
        one.join()
    assert {item["state"] for item in found} == {"ready"}
    assert (tmp_path / "log").read_text() == "x"
    written = verdict.read(str(tmp_path / "verdict.json"), verdict.now(), os.geteuid())
    assert written["ok"] is True and written["boot_id"] == verdict.now().boot_id


def test_a_second_start_after_the_first_looks_again(tmp_path):
    for _turn in range(2):
        once.answer(str(tmp_path), "look", judged(0, str(tmp_path / "log")), 5.0)
    assert (tmp_path / "log").read_text() == "xx"


def test_work_that_hangs_is_ended_in_time_and_unknown(tmp_path):
    began = time.monotonic()
    found = once.answer(str(tmp_path), "look", judged(60, str(tmp_path / "log")), 1.0)
    assert time.monotonic() - began < 4
    assert found["state"] == "unknown"
    assert "no answer within" in found["findings"][0]["found"]
    assert verdict.read(str(tmp_path / "verdict.json"), verdict.now(), os.geteuid())["state"] == "unknown"


@pytest.mark.parametrize(("work", "says"), [("raises", "ValueError: broken"), ("dies", "ended by signal 9")])
def test_work_that_breaks_is_unknown(tmp_path, work, says):
    def broken():
        if work == "raises":
            raise ValueError("broken")
        os.kill(os.getpid(), signal.SIGKILL)

    found = once.answer(str(tmp_path), "look", broken, 5.0)
    assert found["state"] == "unknown"
    assert says in found["findings"][0]["found"]


def test_one_that_hangs_for_ever_is_remembered_and_waited_for_by_nobody(tmp_path):
    """As a child in the kernel does, whatever it is sent, the holder keeps the lock past its time."""
    lock = os.open(str(tmp_path / "look.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    at = verdict.now()
    note = {"pid": 4711, "since": "2026-12-01T00:00:00Z", "until": at.uptime - 10, "boot_id": at.boot_id}
    os.pwrite(lock, json.dumps(note).encode(), 0)
    began = time.monotonic()
    found = once.answer(str(tmp_path), "look", judged(0, str(tmp_path / "log")), 20.0)
    assert time.monotonic() - began < 1
    assert found["state"] == "unknown"
    assert "process 4711" in found["findings"][0]["found"]
    assert not (tmp_path / "log").exists(), "no second one is made"
    os.close(lock)
    assert once.answer(str(tmp_path), "look", judged(0, str(tmp_path / "log")), 5.0)["state"] == "ready"


def test_one_that_is_stopped_takes_its_work_along(tmp_path):
    context = multiprocessing.get_context("fork")

    def stoppable():
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(2))
        once.answer(str(tmp_path), "look", judged(30, str(tmp_path / "log")), 40.0)

    one = context.Process(target=stoppable)
    one.start()
    deadline = time.monotonic() + 10
    while not (tmp_path / "log").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    one.terminate()
    one.join(5)
    assert one.exitcode == 2
    assert once.answer(str(tmp_path), "look", judged(0, str(tmp_path / "log")), 3.0)["state"] == "ready"
