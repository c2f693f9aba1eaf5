# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real children that hang, crash, and will not die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import child

FREEZER = Path("/sys/fs/cgroup/freezer")


def items(count: int, trouble: t.Mapping[int, t.Callable[[], t.Any]]) -> child.Job:
    """A job of ``count`` items, some of which are in trouble."""

    def job(emit: child.Emit, skip: t.Set[int]) -> None:
        emit({"count": count})
        for index in range(count):
            if index not in skip:
                emit({"at": index})
                trouble.get(index, int)()
                emit({"gpu": index})

    return job


def hang() -> None:
    while True:
        time.sleep(3600)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def fault() -> None:
    raise ValueError("odd bytes")


def read(sent: child.Stream) -> t.List[int]:
    return [record["gpu"] for record in sent.records if "gpu" in record]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "run")


def test_all_is_well(folder: str) -> None:
    with child.Lock(folder) as lock:
        sent = child.stream(items(16, {}), lock)
    assert read(sent) == list(range(16)) and sent.hung == {}


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (hang, ("timeout", "no answer within 0.3 s")),
        (crash, ("error", "the probe ended by signal 11")),
        (fault, ("error", "ValueError: odd bytes")),
    ],
)
def test_the_others_are_read_past_a_gpu_in_trouble(
    folder: str, trouble: t.Callable[[], None], says: t.Tuple[str, str]
) -> None:
    started = time.monotonic()
    with child.Lock(folder) as lock:
        sent = child.stream(items(8, {3: trouble}), lock, item_limit=0.3)
    assert read(sent) == [0, 1, 2, 4, 5, 6, 7]
    assert sent.hung == {3: says}
    assert time.monotonic() - started < 2


def test_a_hang_before_the_first_gpu_ends_the_probe(folder: str) -> None:
    def job(emit: child.Emit, skip: t.Set[int]) -> None:
        hang()

    with child.Lock(folder) as lock:
        sent = child.stream(job, lock, item_limit=0.2)
    assert sent.records == [] and sent.hung == {None: ("timeout", "no answer within 0.2 s")}


def test_every_gpu_hangs_and_the_answer_comes_in_time(folder: str) -> None:
    started = time.monotonic()
    with child.Lock(folder) as lock:
        sent = child.stream(items(16, dict.fromkeys(range(16), hang)), lock, item_limit=0.2, total_limit=0.7)
    assert read(sent) == [] and set(sent.hung) < set(range(16))
    assert time.monotonic() - started < 2


def test_a_long_record_passes_the_pipe(folder: str) -> None:
    def job(emit: child.Emit, skip: t.Set[int]) -> None:
        emit({"text": "x" * 300000})

    with child.Lock(folder) as lock:
        assert len(child.stream(job, lock).records[0]["text"]) == 300000


def test_a_child_holds_nothing_of_its_parent(folder: str) -> None:
    """A child with the session's descriptors would keep an SSH connection open."""

    def job(emit: child.Emit, skip: t.Set[int]) -> None:
        emit({"open": [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _open(name)]})

    with child.Lock(folder) as lock:
        (record,) = child.stream(job, lock).records
    kinds = sorted("pipe" if name.startswith("pipe:") else name for name in record["open"])
    assert kinds == ["/dev/null"] * 3 + [os.path.join(folder, child.LOCK), "pipe"]


def _open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def test_a_second_probe_waits_for_the_first(folder: str) -> None:
    inside: t.List[str] = []

    def first() -> None:
        with child.Lock(folder):
            entered.set()
            leave.wait(5)
            inside.append("first")

    entered, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(5)
    leave.set()
    with child.Lock(folder):
        inside.append("second")
    thread.join()
    assert inside == ["first", "second"]


def test_output_of_a_command(folder: str) -> None:
    with child.Lock(folder) as lock:
        assert child.capture(["/bin/sh", "-c", "echo here; echo there >&2"], {}, lock, 5) == ("", b"here\nthere\n")
        problem, output = child.capture(["/bin/sh", "-c", "echo text; exit 9"], {}, lock, 5)
        assert (problem, output) == ("/bin/sh ended with exit status 9", b"text\n")
        problem, output = child.capture(["/bin/sh", "-c", "exec sleep 3600"], {}, lock, 0.2)
        assert (problem, output) == ("/bin/sh gave no answer within 0.2 s", None)
        problem, output = child.capture(["/nowhere/nvidia-smi"], {}, lock, 5)
        assert (problem, output) == ("/nowhere/nvidia-smi ended with exit status 1", b"")


PROBE = """
import sys, time
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import child
cgroup = sys.argv[2]
def job(emit, skip):
    emit({"count": 1})
    emit({"at": 0})
    with open(cgroup + "/cgroup.procs", "w") as file:
        file.write("0")  # this process
    with open(cgroup + "/freezer.state", "w") as file:
        file.write("FROZEN")  # and does not come back
started = time.monotonic()
try:
    with child.Lock(sys.argv[1], limit=1.0) as lock:
        sent = child.stream(job, lock, item_limit=0.5)
    print("hung", sent.hung)
except child.Stuck as error:
    print("stuck", error)
print("seconds", time.monotonic() - started)
"""


def test_ten_at_once_with_a_stuck_driver_leave_one_process_and_all_answer(folder: str) -> None:
    """A frozen process ignores SIGKILL, as one in uninterruptible sleep does."""
    cgroup = FREEZER / f"gpufleet-test-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"needs root and the cgroup v1 freezer: {error}")
    try:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        command = [sys.executable, "-c", PROBE, folder, str(cgroup)]
        probes = [
            subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path})
            for _probe in range(10)
        ]
        answers = [probe.communicate(timeout=30)[0].decode() for probe in probes]
        frozen = (cgroup / "cgroup.procs").read_text().split()
        assert len(frozen) == 1
        assert sum(f"process {frozen[0]} hangs in the driver and cannot be ended" in answer for answer in answers) == 1
        assert (
            sum(f"stuck a probe still waits for the driver (process {frozen[0]}" in answer for answer in answers) == 9
        )
        assert all(float(answer.split("seconds ")[1]) < 4 for answer in answers), answers
        # Once it is gone, so is the lock: nothing has to be cleaned up.
        (cgroup / "freezer.state").write_text("THAWED")
        with child.Lock(folder) as lock:
            assert read(child.stream(items(1, {}), lock)) == [0]
    finally:
        (cgroup / "freezer.state").write_text("THAWED")
        deadline = time.monotonic() + 5
        while (cgroup / "cgroup.procs").read_text().split() and time.monotonic() < deadline:
            time.sleep(0.01)
        cgroup.rmdir()
