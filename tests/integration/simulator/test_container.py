# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulation for all that runs in a container: root and others, by SSH and with become, until it stops."""

from __future__ import annotations

import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, images

GPUSIM = [sys.executable, str(Path(__file__).resolve().parents[3] / "tests/simulator/gpusim")]
pytestmark = [pytest.mark.container, pytest.mark.needs("gcc")]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[str]:
    run = tmp_path_factory.mktemp("gpusim")
    try:
        yield boxes.start(run, "gpusim", "debian12")
    finally:
        boxes.remove(run)


def install(box: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GPUSIM, *options, "--container", box], env=images.podman_environment(), capture_output=True,
                          text=True, check=False)  # fmt: skip


def test_a_container_has_gpus_for_everybody_until_it_stops(box: str, tmp_path: Path) -> None:
    done = install(box, "--profile", "h100-sxm", "--set", "gpu.2.temperature.gpu_temp=95")
    assert (done.returncode, done.stderr) == (0, "")
    ssh = ["ssh", "-F", str(boxes.ssh_config(tmp_path / "ssh_config")), box]

    def ask(command: str) -> str:
        return subprocess.run([*ssh, command], capture_output=True, text=True, check=False).stdout

    assert ask("nvidia-smi --query-gpu=index,temperature.gpu --format=csv,noheader -i 2") == "2, 95\n"
    assert (
        ask("readlink -f /sys/bus/pci/devices/0000:1b:00.0").strip().endswith("0000:18:00.0/0000:19:01.0/0000:1b:00.0")
    )
    load = 'python3 -c "import ctypes; print(ctypes.CDLL(\\"libnvidia-ml.so.1\\").nvmlInit_v2())"'
    assert ask(f"{load}; useradd bob; sudo -u bob {load}; sudo -u bob test -w /dev/nvidia7; echo $?") == "0\n0\n0\n"
    assert ask("sudo -u bob nvidia-smi -pl 300 -i 0; nvidia-smi -pl 450 -i 0").count("Insufficient Permissions") == 1
    assert ask("nvidia-smi --query-gpu=power.limit --format=csv,noheader -i 0") == "450.00 W\n"
    assert ask("gpusim-set gpu.2=@lost; nvidia-smi -L >/dev/null; echo $?") == "15\n"
    assert ask("systemctl is-system-running") == "running\n"

    done = install(box, "--profile", "t4")
    assert (done.returncode, "change it with gpusim-set, or restart it first" in done.stderr) == (125, True)
    images.podman("restart", "--time", "1", box)
    assert install(box, "--profile", "t4").returncode == 0
    assert "GPU 0: Tesla T4" in images.podman("exec", box, "nvidia-smi", "-L").stdout


def test_a_container_that_is_not_there_is_named() -> None:
    done = install("gpufleet-no-such-box", "--profile", "t4")
    assert (done.returncode, done.stderr) == (
        2,
        "gpusim: --container gpufleet-no-such-box: no such container is running\n",
    )
