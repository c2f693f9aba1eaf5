# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong in a rollout, injected for real into hosts that are cheap to change; each with its end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.integration.rollout.fleet import Fleet


def test_a_canary_that_fails_its_proof_and_nothing_else_is_touched(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 3, rollout_batches=[1, 2], rollout_max_failures=2)
    fleet.fault("n1", "wrong")
    done = fleet.roll()
    assert done.code != 0, done.output
    assert fleet.states() == {"n1": "failed", "n2": "waiting", "n3": "waiting"}, done.output
    assert fleet.verdict() == {"n1": "not_ready", "n2": "unknown", "n3": "unknown"}
    assert (fleet.changes("n2"), fleet.changes("n3")) == (0, 0)
    assert fleet.marked() == {"n1"}, "the failed host stays this rollout's"
    assert "no host was proved with this change yet" in done.output
    assert "Prove the host" in fleet.journal()["n1"]["note"]


def test_the_limit_of_failures_and_a_second_start(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 5, rollout_batches=[1], rollout_max_failures=1, rollout_max_out=2)
    fleet.fault("n3", "wrong")
    fleet.fault("n4", "breaks")
    done = fleet.roll()
    assert done.code != 0, done.output
    expected = {"n1": "done", "n2": "done", "n3": "failed", "n4": "failed", "n5": "waiting"}
    assert fleet.states() == expected, done.output
    assert fleet.changes("n5") == 0
    assert "2 hosts failed and 1 may (n3, n4): no further host is touched" in done.output

    dry = fleet.roll(rollout_dry_run=True)
    assert dry.code == 0 and "batch 1 (again): 2 hosts: n3, n4" in dry.output, dry.output
    assert fleet.states() == expected and fleet.changes("n3") == 1

    for name in ("n3", "n4"):
        fleet.fault(name, "")
    fleet.all_done(fleet.roll())
    assert [fleet.changes(name) for name in fleet.names] == [1, 1, 2, 2, 1]


def test_two_rollouts_at_once(tmp_path: Path) -> None:
    """The second is refused by the lock of the folder; one from another folder by the owner's mark on the host."""
    fleet = Fleet(tmp_path, 2, rollout_batches=[1])
    hold = tmp_path / "n1" / "hold"
    hold.touch()
    first = fleet.start()
    until(lambda: fleet.changes("n1") > 0)
    second = fleet.roll()
    assert second.code != 0 and "another rollout runs on this controller" in second.output, second.output
    other = fleet.roll("--limit", "n1", report_directory=str(tmp_path / "elsewhere"))
    assert other.code != 0 and "the rollout of " in other.output, other.output
    assert fleet.changes("n1") == 1
    hold.unlink()
    fleet.all_done(fleet.end(first))
    (held,) = json.loads((tmp_path / "elsewhere/rollout/journal.json").read_text())["hosts"].values()
    assert held["state"] == "held" and str(tmp_path / "reports/rollout") in held["note"]


@pytest.fixture
def small(tmp_path: Path) -> t.Iterator[Path]:
    """A disk of 256 kB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


FILL = "dd if=/dev/zero of={}/filler bs=4k || true"


@pytest.mark.container  # which may mount
def test_no_space_for_the_journal(tmp_path: Path, small: Path) -> None:
    """A host is not drained without its mark, so nothing more is touched; with space again it goes on."""
    fleet = Fleet(tmp_path, 3, rollout_batches=[1], report_directory=str(small), rollout_max_failures=1)
    (small / "rollout").mkdir()
    (tmp_path / "reports").symlink_to(small)
    change = tmp_path / "change.yml"
    whole = change.read_text()
    change.write_text(f"{whole}- name: Fill\n  ansible.builtin.shell: '{FILL.format(small)}'\n")
    done = fleet.roll()
    assert done.code != 0 and "the rollout's journal cannot be written" in done.output, done.output
    assert fleet.states() == {"n1": "changing", "n2": "waiting", "n3": "waiting"}, done.output
    assert fleet.changes("n2") == 0 and "ready" not in fleet.verdict().values()
    assert "n1: is out: changing" in done.output, "also without the last play it says who is where"
    change.write_text(whole)
    (small / "filler").unlink()
    fleet.all_done(fleet.roll())


@pytest.mark.container
def test_no_space_for_the_record(tmp_path: Path, small: Path) -> None:
    fleet = Fleet(tmp_path, 2, rollout_batches=[1])
    fleet.hosts["n1"]["gate_directory"] = str(small)
    ok = {"check": "matmul", "state": "ok", "subject": {"kind": "host"}}
    record = {
        "state": "recorded",
        "directory": "{{ gate_directory }}",
        "python": sys.executable,
        "plan": {"status": "ok", "accelerator": "cpu"},
        "proof": {"devices": []},
        "findings": [ok],
    }
    change = tmp_path / "change.yml"
    whole = change.read_text() + "- " + json.dumps({"name": "Record", "gpufleet.pytorch.gpu_drift": record})
    change.write_text(f"- name: Fill\n  ansible.builtin.shell: '{FILL.format(small)}'\n" + whole.removeprefix("---\n"))
    done = fleet.roll()
    assert done.code != 0, done.output
    assert fleet.states() == {"n1": "failed", "n2": "waiting"}, done.output
    assert "No space left on device" in fleet.journal()["n1"]["note"]
    assert not (small / "expected.json").exists(), "no half record"
    change.write_text(whole)
    (small / "filler").unlink()
    done = fleet.roll()
    assert done.code == 0 and set(fleet.states().values()) == {"done"}, done.output
    assert (small / "expected.json").exists()


#: A Slurm of one node in files: while its job runs, a person takes the node over.
SCONTROL = """#!/bin/sh
cd {}
all="$*"
case "$all" in
    *update*) echo "$all" >>asked
              echo " State=IDLE+DRAIN Reason=${{all##*reason=}} [root@2026-12-01T11:18:46]" >node ;;
    *) echo "NodeName=n1$(cat node)" ;;
esac
"""
SQUEUE = """#!/bin/sh
cd {}
[ -e asked2 ] || echo "7 EX\\\\ann lee RUNNING"
[ ! -e asked1 ] || {{ touch asked2; echo " State=IDLE+DRAIN Reason=gpufleet: mine [bob@2026-12-01T11:20:46]" >node; }}
touch asked1
"""
PYTHON = """#!/bin/sh
exec unshare -m sh -c 'mount --bind {0}/bin /usr/local/sbin && exec {1} "$@"' sh "$@"
"""


@pytest.mark.container  # which may mount
def test_a_person_takes_a_node_over_while_its_jobs_end(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1, rollout_drain="slurm", rollout_drain_interval=1, rollout_slurm_controller="ctl")
    (tmp_path / "bin").mkdir()
    python = tmp_path / "python"
    # Commands are sought where a system has them: on the host ctl that is this folder.
    for path, text in ((tmp_path / "bin/scontrol", SCONTROL), (tmp_path / "bin/squeue", SQUEUE), (python, PYTHON)):
        path.write_text(text.format(tmp_path, sys.executable))
        path.chmod(0o755)
    (tmp_path / "node").write_text(" State=IDLE\n")
    fleet.hosts["ctl"] = {"ansible_python_interpreter": str(python)}
    done = fleet.roll("--limit", "n1")
    assert fleet.states() == {"n1": "held"} and done.code != 0, done.output
    # Its jobs may run on, and whoever took it over has it as it was.
    assert fleet.journal()["n1"]["note"] == "drained by somebody else: gpufleet: mine (bob)", done.output
    assert (fleet.changes("n1"), fleet.marked()) == (0, set())
    assert len((tmp_path / "asked").read_text().splitlines()) == 1, "its drain is not touched"


def test_what_a_start_refuses_and_what_it_leaves_alone(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 2, rollout_batches=[1])
    fleet.hosts["gone"] = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    for variables, words in [
        ({"rollout_batchs": [1]}, "did you mean rollout_batches"),
        ({"rollout_max_out": 1, "rollout_max_failures": 1}, "no room to change another"),
        ({"rollout_tasks": "missing.yml"}, "there is no file"),
        ({"rollout_drain_interval": 0}, "rollout_drain_interval is 0; 1 or more is needed"),
    ]:
        done = fleet.roll("--limit", "n1", **variables)
        assert done.code != 0 and words in " ".join(done.output.split()), done.output
    assert fleet.journal() == {} and fleet.changes("n1") == 0

    done = fleet.roll()
    assert done.code != 0, done.output
    assert fleet.states() == {"n1": "done", "n2": "done", "gone": "held"}, done.output
    assert fleet.verdict() == {"n1": "ready", "n2": "ready", "gone": "unknown"}
    assert "it does not answer" in fleet.journal()["gone"]["note"]
    # Another wish makes done hosts wait again; the same does not.
    fleet.hosts.pop("gone")
    path = tmp_path / "reports" / "rollout" / "journal.json"
    whole = path.read_text()
    content = json.loads(whole)
    content["hosts"]["old"] = {"state": "failed", "step": "proving"}
    path.write_text(json.dumps(content))
    lost = " ".join(fleet.roll(rollout_dry_run=True).output.split())
    assert "in this inventory: old (failed at proving, is out)" in lost, "a host that is out is not forgotten"
    assert "0 of 2 hosts to change, 2 done" in fleet.roll(rollout_dry_run=True, rollout_forget=["old"]).output
    path.write_text(whole)
    assert "2 of 2 hosts to change, 0 done" in fleet.roll(rollout_dry_run=True, pytorch_packages=["numpy", "x"]).output


def until(condition: t.Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not so in time"
        time.sleep(0.1)
