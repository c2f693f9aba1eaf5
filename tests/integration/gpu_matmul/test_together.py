# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Four ranks under the real torchrun, and two of which one has a fault."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import collective, device, jobs, wire
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.supervise import (
    RANK_BOOT,
    Supervisor,
    Worker,
    sources,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.together import Result, judge_together

#: In the environment of what is started here: other tests start such ranks too.
MARK = f"test_together {os.getpid()}"
MINE = "os.environ.get('RANK') == '1'"
CRASH = f"""
def peers(group, job, wire):
    if {MINE}:
        os.kill(os.getpid(), 11)
    group.dist.barrier()
"""
HANG = f"""
def peers(group, job, wire):
    if {MINE}:
        time.sleep(1000)
    group.dist.barrier()
"""
WRONG_SUM = f"""
_init = Group.__init__
def _changed(self, *arguments):
    _init(self, *arguments)
    real = self.dist.all_reduce
    def all_reduce(tensor, **more):
        real(tensor, **more)
        if {MINE} and tensor.numel() > 256:
            tensor[77] += 1
    class Dist:
        def __getattr__(_self, name):
            return all_reduce if name == "all_reduce" else getattr(real_dist, name)
    real_dist, self.dist = self.dist, Dist()
Group.__init__ = _changed
"""
OTHER_GRADIENT = f"""
_same = Group.same_everywhere
def _changed(self, values):
    if {MINE}:
        values = [values[0] + 1e-7, *values[1:]]
    return _same(self, values)
Group.same_everywhere = _changed
"""


@pytest.fixture
def together(torch_python):
    """What the ranks do, with ``fault`` after the code of each."""

    def run(fault="", limit=60.0, ranks=2):
        source = list(sources([part.__name__ for part in (wire, device, collective)]))
        source[-1] = (source[-1][0], source[-1][1] + fault)
        job = {
            "ranks": ranks,
            "rank_code": RANK_BOOT,
            "rank": {"modules": source, "call": "main", **jobs.together("cpu", "quick", limit)},
        }
        env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "GPUFLEET_TEST": MARK}
        supervisor = Supervisor(torch_python, source, before=limit, after=limit)
        outcome = supervisor.run([Worker("together", job, call="launch", env=env)])[0]
        return {item.check: item for item in judge_together(Result("cpu", "CPU", outcome.ended, outcome.events))}

    return run


def left():
    """Processes of this file's that are still there, whoever is their parent by now."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"GPUFLEET_TEST={MARK}".encode() in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
    return found


def test_four_ranks_are_well_and_leave_nothing_behind(together):
    before = set(Path(tempfile.gettempdir()).glob("torchelastic*"))
    found = together(ranks=4)
    assert {item.state for item in found.values()} == {"ok"}
    assert set(found) == {
        "collective-run",
        "allreduce",
        "training-ddp-bfloat16",
        "training-ddp-float16",
        "training-fully-shard",
    }
    assert set(Path(tempfile.gettempdir()).glob("torchelastic*")) == before
    assert not left()


@pytest.mark.parametrize(
    "fault, limit, told",
    [
        pytest.param(CRASH, 60, {"collective-run": ("fail", "crash")}, id="crash"),
        # Of CPU processes: they may only be slow on a busy machine, which is never ok and no fault of a device.
        pytest.param(HANG, 10, {"collective-run": ("unknown", "hang")}, id="hang"),
        pytest.param(
            WRONG_SUM + OTHER_GRADIENT,
            60,
            {"allreduce": ("fail", "mismatch"), "training-ddp-bfloat16": ("fail", "training")},
            id="wrong",
        ),
    ],
)
def test_a_fault_of_one_rank_is_found(together, fault, limit, told):
    found = together(fault, limit)
    assert {check: (found[check].state, found[check].evidence["fault"]) for check in told} == told
    if fault == CRASH:
        assert found["collective-run"].found == "rank 1 was killed by signal 11"
    assert not left()
