# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ACS of the bridges around GPUs, in configuration space as it lies in sysfs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import acs
from ansible_collections.gpufleet.pytorch.tests.unit.module_utils._topology.conftest import Host, config


def test_the_register_is_found_behind_another_capability() -> None:
    assert acs.control(config(0x1D)) == (0x156, 0x1D)


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"\0" * 4096, b"\xff" * 4096, config(1)[:0x152]])
def test_no_register(data: bytes) -> None:
    assert acs.control(data) is None


def test_a_list_that_runs_in_a_circle_ends() -> None:
    space = bytearray(4096)
    space[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert acs.control(bytes(space)) is None


def test_only_the_bridges_around_gpus_are_cleared(host: Host) -> None:
    host.hgx()
    host.bridge("0000:c0:01.0", acs=0x1F)
    host.device("0000:c0:01.0/0000:c1:00.0", "010802", "144d:a80a")
    devices = host.machine.runner().path(acs.DEVICES)
    ports = ["0000:19:00.0", "0000:19:01.0", "0000:99:00.0", "0000:99:01.0"]
    assert acs.read(devices) == dict.fromkeys(ports, 0x1D)
    # Alone, as the boot unit runs it.
    command = [sys.executable, "-I", os.path.abspath(acs.__file__), devices]
    done = subprocess.run(command, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert acs.read(devices) == dict.fromkeys(ports, 0)
    with open(f"{devices}/0000:c0:01.0/config", "rb") as file:
        assert acs.control(file.read()) == (0x156, 0x1F)


def test_what_a_plain_user_reads_is_unknown_and_not_clear(host: Host) -> None:
    host.hgx()
    devices = host.machine.runner().path(acs.DEVICES)
    with open(f"{devices}/0000:19:00.0/config", "wb") as file:
        file.write(config(0x1D)[:64])
    assert acs.read(devices)["0000:19:00.0"] is None
    assert acs.clear(devices) == []
