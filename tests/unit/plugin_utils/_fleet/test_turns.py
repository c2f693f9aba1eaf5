# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""So many at once and no more, also where one is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import turns

HOLD = """
import sys, time
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet import turns
with turns.turn(sys.argv[1], sys.argv[2], int(sys.argv[3]), lambda: print("waits", flush=True)):
    print("holds", flush=True)
    time.sleep(60)
"""


def holder(folder, group, at_once):
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), *sys.path]))
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), group, str(at_once)],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def test_a_place_is_free_when_its_holder_is_killed(tmp_path):
    first, second = (holder(tmp_path, "rack 1/a", 2) for _one in range(2))
    third = None
    try:
        assert first.stdout.readline() == second.stdout.readline() == "holds\n"
        third = holder(tmp_path, "rack 1/a", 2)
        assert third.stdout.readline() == "waits\n"
        with turns.turn(str(tmp_path), "rack 2", 2, lambda: pytest.fail("another group waits for nobody")):
            pass
        first.send_signal(signal.SIGKILL)
        assert third.stdout.readline() == "holds\n"
    finally:
        for process in filter(None, (first, second, third)):
            process.kill()
            process.wait()
            process.stdout.close()


def test_an_error_lets_the_place_go(tmp_path):
    begin = time.monotonic()
    for _turn in range(3):
        with pytest.raises(ZeroDivisionError), turns.turn(str(tmp_path), "", 1, lambda: pytest.fail("waits")):
            raise ZeroDivisionError
    assert time.monotonic() - begin < 5


def test_a_folder_of_somebody_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(turns.tempfile, "gettempdir", lambda: str(tmp_path))
    path = turns.folder()
    assert os.stat(path).st_mode & 0o777 == 0o700
    os.rmdir(path)
    os.symlink("/", path)
    with pytest.raises(PermissionError, match=r"not a folder of this user"):
        turns.folder()
