# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real device nodes, and a real device cgroup that hides some of them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

DEVICES = Path("/sys/fs/cgroup/devices")
#: The major number of NVIDIA's nodes.
MAJOR = 195

LOOK = """
import json, os, sys
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import runner, visibility
if len(sys.argv) > 2:
    with open(sys.argv[2] + "/cgroup.procs", "w") as file:
        file.write("0")
json.dump(visibility.probe(runner.Runner(sys.argv[1], {}), {"virtualization": "none"}, []), sys.stdout)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder whose /dev has the nodes of two GPUs."""
    (tmp_path / "dev").mkdir()
    for name, minor in (("nvidia0", 0), ("nvidia1", 1), ("nvidiactl", 255)):
        try:
            os.mknod(tmp_path / "dev" / name, 0o666 | stat.S_IFCHR, os.makedev(MAJOR, minor))
        except PermissionError as error:
            pytest.skip(f"device nodes need root: {error}")
        (tmp_path / "dev" / name).chmod(0o666)
    return tmp_path


@pytest.fixture
def cgroup() -> t.Iterator[Path]:
    """A device cgroup that hides the second GPU."""
    folder = DEVICES / f"gpufleet-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"needs the device controller of cgroup v1: {error}")
    try:
        (folder / "devices.deny").write_text(f"c {MAJOR}:1 rwm")
        yield folder
    finally:
        folder.rmdir()


def look(*arguments: str) -> t.Dict[str, t.Any]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-c", LOOK, *arguments]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONPATH": path})
    return t.cast("t.Dict[str, t.Any]", json.loads(done.stdout))


def test_nodes_that_may_be_opened(root: Path) -> None:
    try:
        os.close(os.open(root / "dev/nvidia0", os.O_RDONLY))
    except PermissionError:
        pytest.skip("the cgroup of this container hides NVIDIA's nodes, and the probe would rightly say so")
    except OSError:  # no driver behind it, which is another answer than no permission
        pass
    assert look(str(root)) == {"hidden_by": [], "device_nodes": ["nvidia0", "nvidia1", "nvidiactl"], "denied": []}


def test_a_node_that_the_cgroup_hides_is_found_without_opening_it(root: Path, cgroup: Path) -> None:
    seen = look(str(root), str(cgroup))
    assert seen["denied"] == ["nvidia1"]
    assert seen["hidden_by"] == [{"how": "cgroup", "found": "/dev/nvidia1"}]
