# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""torch.compile in a worker, for real on the CPU: with a compiler, without one, and with a kernel that is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.judge import judge
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.supervise import Supervisor, Worker

ONLY = """
def only(torch, job, wire):
    compiled(Device(torch, "cpu"), wire)
def main(job):
    serve(only, job)
"""


def found(python, source, **env):
    (outcome,) = Supervisor(python, source, before=200).run([Worker("0", {}, env=env)])
    assert outcome.ended == "done", (outcome.events, outcome.stderr)
    device = Device("cpu", "0", "CPU", outcome.ended, outcome.events)
    return next(item for item in judge([device]) if item.check == "torch-compile")


@pytest.mark.needs("g++")
def test_a_kernel_is_made_and_right(torch_python, with_fault, tmp_path):
    # The linker's call that torch 2.13 makes breaks on a path with a space.
    (tmp_path / "venv").symlink_to(Path(torch_python).parents[1])
    (tmp_path / "tmp").mkdir()
    finding = found(str(tmp_path / "venv/bin/python"), with_fault(ONLY), TMPDIR=str(tmp_path / "tmp"))
    assert (finding.state, finding.policy) == ("ok", "block"), finding
    assert os.listdir(tmp_path / "tmp") == []


def test_without_a_compiler_it_does_not_apply(torch_python, with_fault):
    finding = found(torch_python, with_fault(ONLY), CXX="/no/such/compiler")
    assert finding.state == "not_applicable" and "/no/such/compiler" in finding.reason


def test_a_kernel_that_computes_wrong_is_found(torch_python, with_fault):

    source = list(
        with_fault(
            ONLY.replace("compiled(Device", "torch.compile = lambda work: lambda v: work(v) + 1; compiled(Device")
        )
    )
    finding = found(torch_python, source)
    assert (finding.state, finding.action) == ("fail", "drain and inspect"), finding
