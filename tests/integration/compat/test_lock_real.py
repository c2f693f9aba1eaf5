# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a real release for both machines, from the index of pip's configuration, without loading a wheel.

Skips where that index cannot be asked, and under a pip that would download gigabytes of wheels for it.
"""

from __future__ import annotations

import importlib.metadata
import sys

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import wheels
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat.lock import LockProblem

PIP = importlib.metadata.version("pip")


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_torch_2_15(arch):
    if int(PIP.split(".")[0]) < 25:
        pytest.skip(f"pip {PIP} of {sys.executable} downloads wheels to read them: needs 25 or newer")
    target = wheels.Target("3.12", arch, "2.39")
    try:
        wheels.resolve(target, ["filelock"])
    except LockProblem as problem:
        pytest.skip(f"no package index to lock from: {problem}")
    locked = dict(
        line.split(" ")[0].split("==") for line in wheels.resolve(target, ["torch==2.15.0", "torchvision==0.29.2"])
    )
    assert (locked["torch"], locked["torchvision"]) == ("2.15.0", "0.29.2")
    assert (locked["nvidia-cudnn-cu13"], locked["nvidia-nccl-cu13"]) == ("9.26.0.51", "2.30.7")
    assert locked["triton"].startswith("3.9.")
