# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The owner's mark on a real disk, and commands that outlived a run, which are real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._rollout import claim

SINCE = "2026-12-01T00:00:00Z"


def test_the_owner_takes_a_host_again_and_gives_it_back(tmp_path):
    folder = str(tmp_path / "state")
    assert claim.claim(folder, "me", SINCE) is True
    assert claim.claim(folder, "me", "later") is False
    assert claim.read(folder) == {"schema": 1, "owner": "me", "since": SINCE}
    assert os.stat(os.path.join(folder, claim.NAME)).st_mode & 0o777 == 0o644
    assert claim.release(folder, "me") is True
    assert claim.release(folder, "me") is False
    assert os.listdir(folder) == []


def test_another_owner_is_refused_and_takes_nothing_away(tmp_path):
    claim.claim(str(tmp_path), "me", SINCE)
    for attempt in (lambda: claim.claim(str(tmp_path), "you", SINCE), lambda: claim.release(str(tmp_path), "you")):
        with pytest.raises(claim.Claimed, match="of me"):
            attempt()
    assert claim.read(str(tmp_path))["owner"] == "me"


def test_check_mode_makes_no_mark(tmp_path):
    assert claim.claim(str(tmp_path), "me", SINCE, check_mode=True) is True
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"schema": 2, "owner": "me"})])
def test_a_mark_that_cannot_be_read_is_somebodys(tmp_path, text):
    path = tmp_path / claim.NAME
    path.write_text(text)
    with pytest.raises(claim.Claimed, match="remove it if none is"):
        claim.claim(str(tmp_path), "me", SINCE)
    assert path.read_text() == text


def test_of_two_that_come_at_once_one_gets_the_host(tmp_path):
    code = (
        "import sys; from ansible_collections.gpufleet.pytorch.plugins.module_utils._rollout import claim\n"
        f"try: print(claim.claim({str(tmp_path)!r}, sys.argv[1], ''))\nexcept claim.Claimed: print('refused')"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    processes = [
        subprocess.Popen([sys.executable, "-c", code, str(number)], stdout=subprocess.PIPE, env=env)
        for number in range(6)
    ]
    answers = sorted(process.communicate()[0].decode().strip() for process in processes)
    assert answers == ["True"] + ["refused"] * 5


@pytest.mark.parametrize(
    ("mark", "seen"), [("old/n1", True), ("now/n1", False), ("old/n2", False), (None, False), ("odd", False)]
)
def test_what_outlived_an_earlier_run(mark, seen):
    env = {**os.environ, **({claim.VARIABLE: mark} if mark else {})}
    # A shell and its child, as a command of a module has.
    process = subprocess.Popen(
        ["/bin/sh", "-c", "echo; sleep 60 & wait"], env=env, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        process.stdout.readline()
        found = claim.outlived("now", "n1")
        assert (process.pid in [pid for pid, _command in found]) is seen
        if seen:
            assert len(found) >= 1 and "sleep 60" in " ".join(command for _pid, command in found)
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()
