# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for the gate: this machine in a namespace, so that /etc, /run and /usr/local are the host's alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers.images import cache_dir
from ansible_collections.gpufleet.pytorch.tests.integration.gpu_matmul.conftest import (  # pylint: disable=unused-import
    torch_python,  # noqa: F401
)

ROOT = Path(__file__).resolve().parents[3]
GPUSIM = ROOT / "tests" / "simulator" / "gpusim"
#: Private copies on top of what the machine has.
MOUNTS = """
set -e
mount -t tmpfs tmpfs /run
for place in etc usr/local; do
    mkdir -p "/run/layers/$place/upper" "/run/layers/$place/work"
    options=lowerdir=/$place,upperdir=/run/layers/$place/upper,workdir=/run/layers/$place/work
    mount -t overlay overlay -o "$options" "/$place"
done
rm -rf /etc/gpufleet /usr/local/lib/gpufleet /usr/local/bin/gpufleet-gate
exec "$@"
"""
HOLD = 'echo $$ >"$1.new" && mv "$1.new" "$1" && exec sleep 3600'


class Host:
    """Runs commands in the namespace that a process holds open."""

    def __init__(self, folder: Path, *wrapper: str) -> None:
        pid = folder / "pid"
        self.folder = folder
        self._holder = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", MOUNTS, "sh", *wrapper, "sh", "-c", HOLD, "sh", str(pid)],
            stdin=subprocess.DEVNULL,
        )
        end = time.monotonic() + 60
        while not pid.exists():
            assert self._holder.poll() is None and time.monotonic() < end, "the namespace did not come up"
            time.sleep(0.05)
        self._pid = int(pid.read_text())
        # Another namespace begins at its root.
        into = ["sh", "-c", 'cd "$0" && exec "$@"', str(folder)]
        self._enter = ["nsenter", "-t", str(self._pid), "-m", *into]

    def argv(self, *command: str) -> list[str]:
        """The command line that runs COMMAND in the host."""
        return [*self._enter, *command]

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(*command),
            cwd=self.folder,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def ok(self, *command: str) -> str:
        """What a command prints that must succeed."""
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def gate(self, *options: str) -> tuple[int, dict[str, t.Any]]:
        """Exit status of gpufleet-gate and its verdict, ``found`` in it by check and state."""
        done = self.run("/usr/local/bin/gpufleet-gate", "--json", *options)
        assert done.stdout, done.stderr
        verdict = json.loads(done.stdout)
        verdict["found"] = {(item["check"], item["state"]): item for item in verdict["findings"]}
        return done.returncode, verdict

    def play(self, playbook: str, *options: str, **variables: t.Any) -> tuple[int, str, dict[str, t.Any]]:
        """Exit status and output of a playbook on the host, and the host's verdict in its report."""
        done = self.run(
            *("ansible-playbook", str(ROOT / f"{playbook}.yml"), "-i", str(ROOT / "inventories/local"), *options),
            *("-e", json.dumps(variables)),
            ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"),
            ANSIBLE_NOCOLOR="1",
        )
        report = self.folder / "reports" / playbook / "latest.json"
        verdict = json.loads(report.read_text())["hosts"]["localhost"] if report.exists() else {}
        return done.returncode, done.stdout + done.stderr, verdict

    def provision(self, python: Path, accelerator: str) -> None:
        """Install the gate, and record the host with the environment of ``python``."""
        script = Path(__file__).with_name("provision.py")
        self.ok(sys.executable, str(script), str(ROOT), str(python), accelerator)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # a terminal's interrupt ends it too
            os.kill(self._pid, signal.SIGKILL)
        self._holder.wait(30)


@pytest.fixture(scope="module")
def venv(torch_python: str) -> t.Iterator[Path]:  # noqa: F811
    """An environment that a test may take files from: hard links to the cached one, so only whole files."""
    with tempfile.TemporaryDirectory(dir=cache_dir()) as folder:
        copy = Path(folder) / "venv"
        subprocess.run(["cp", "-al", str(Path(torch_python).parents[1]), str(copy)], check=True)
        yield copy


@pytest.fixture(scope="module")
def host(venv: Path, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Host]:
    """This machine with the gate and a record of it. The whole way there is what the scenario default goes."""
    made = Host(tmp_path_factory.mktemp("host"))
    try:
        made.provision(venv / "bin/python", "cpu")
        yield made
    finally:
        made.end()


@pytest.fixture(scope="module")
def gpu_host(venv: Path, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Host]:
    """A simulated host of eight H100s, likewise. It computes nothing."""
    made = Host(tmp_path_factory.mktemp("gpus"), sys.executable, str(GPUSIM), "--profile", "h100-sxm", "--")
    try:
        made.provision(venv / "bin/python", "cuda")
        yield made
    finally:
        made.end()
