# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal on a real disk: damaged, from a newer version, written by many at once; its lock between processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet.rollout_journal import Journal, JournalError

WHOLE = {"schema": 1, "id": "a", "finished_at": None, "run": {}, "hosts": {"n1": {"state": "failed"}}}
RUN = {"id": "b", "hosts": ["n1"], "sizes": [1], "max_failures": 0}


def test_a_new_journal_and_its_return(tmp_path):
    journal = Journal(str(tmp_path))
    with journal.changed() as content:
        content["hosts"]["n1"] = {"state": "changing"}
    assert Journal(str(tmp_path)).read() == content
    assert content["id"] and content["finished_at"] is None


def test_an_error_in_the_block_writes_nothing(tmp_path):
    journal = Journal(str(tmp_path))
    with pytest.raises(RuntimeError), journal.changed() as content:
        content["hosts"]["n1"] = {"state": "changing"}
        raise RuntimeError
    assert not os.path.exists(journal.path)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(WHOLE)[:40],
        "",
        "[]",
        json.dumps({**WHOLE, "schema": 2}),
        json.dumps({**WHOLE, "hosts": {"n1": {"state": "lost"}}}),
        json.dumps({**WHOLE, "hosts": {"n1": {}}}),
        json.dumps({**WHOLE, "id": ""}),
        json.dumps({**WHOLE, "id": 7}),
        json.dumps({**WHOLE, "finished_at": True}),
        json.dumps({**WHOLE, "hosts": ["n1"]}),
        json.dumps({**WHOLE, "hosts": {"n1": {"state": "failed", "note": 7}}}),
        json.dumps({**WHOLE, "hosts": {"n1": {"state": "failed", "findings": [{"state": "fail"}]}}}),
        json.dumps({**WHOLE, "run": None}),
        json.dumps({**WHOLE, "run": []}),
        json.dumps({**WHOLE, "run": {**RUN, "hosts": ["n2"]}}),
        json.dumps({**WHOLE, "run": {**RUN, "hosts": "n1"}}),
        json.dumps({**WHOLE, "run": {**RUN, "sizes": [0, 1]}}),
        json.dumps({**WHOLE, "run": {**RUN, "sizes": [2]}}),
        json.dumps({**WHOLE, "run": {**RUN, "max_failures": None}}),
        json.dumps({key: value for key, value in WHOLE.items() if key != "finished_at"}),
        "[" * 100_000,
    ],
)
def test_a_journal_that_cannot_be_used_is_never_taken_for_none(tmp_path, text):
    journal = Journal(str(tmp_path))
    os.makedirs(journal.folder)
    with open(journal.path, "w") as stream:
        stream.write(text)
    with pytest.raises(JournalError, match=journal.path), journal.changed():
        pass
    with open(journal.path) as stream:
        assert stream.read() == text


def _mark(directory, name):
    for _time in range(20):
        with Journal(directory).changed() as content:
            record = content["hosts"].setdefault(name, {"state": "changing", "marks": 0})
            record["marks"] += 1


def test_workers_that_write_at_once_lose_nothing(tmp_path):
    workers = [multiprocessing.Process(target=_mark, args=(str(tmp_path), f"n{number}")) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {name: record["marks"] for name, record in Journal(str(tmp_path)).read()["hosts"].items()} == {
        f"n{number}": 20 for number in range(6)
    }


def _hold(directory, ready, orphan_seconds):
    Journal(directory).hold(print)
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(orphan_seconds,))
    worker.start()
    ready.set()
    time.sleep(60)


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of tmp_path, with a worker that outlives it for some seconds."""
    started = []

    def start(orphan_seconds):
        ready = multiprocessing.Event()
        process = multiprocessing.get_context("fork").Process(target=_hold, args=(str(tmp_path), ready, orphan_seconds))
        process.start()
        started.append(process)
        assert ready.wait(20)
        return process

    yield start
    for process in started:
        if process.is_alive():
            process.kill()
        process.join()


def test_a_second_rollout_is_refused_at_once(tmp_path, holder):
    process = holder(1)
    before = time.monotonic()
    with pytest.raises(JournalError, match=f"another rollout runs on this controller .process {process.pid}"):
        Journal(str(tmp_path)).hold(print)
    assert time.monotonic() - before < 1


def test_workers_that_outlive_a_kill_are_waited_for(tmp_path, holder):
    process = holder(3)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    said = []
    with pytest.raises(JournalError, match="was killed, and its workers still run"):
        Journal(str(tmp_path)).hold(said.append, limit=0.5)
    assert said == ["waiting for the workers of a rollout that was killed"]
    Journal(str(tmp_path)).hold(said.append, limit=20)
    Journal(str(tmp_path)).hold(said.append)  # again in the same process
