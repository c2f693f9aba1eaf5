# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulations for tests: with the machine around them through gpusim, or the library alone in a forked child."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import traceback
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SIMULATOR = ROOT / "tests/simulator"
SAMPLES = Path(os.environ.get("GPUFLEET_SAMPLES", ROOT.parent / "shared" / "samples")) / "nvidia-smi-xml"
sys.path.append(str(SIMULATOR))

from simulation import build, hardware, profiles, scenario  # noqa: E402


class Simulator:
    """What a test asks of the simulator. SOURCE is a profile or the file name of a capture."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made = 0

    def gpusim(
        self, source: str, *command: str, options: t.Sequence[str] = (), **more: t.Any
    ) -> subprocess.CompletedProcess[str]:
        """The command line, which is slow: a machine is laid out and a namespace made."""
        where = ["--capture", str(self.capture(source))] if source.endswith(".xml") else ["--profile", source]
        command = (sys.executable, str(SIMULATOR / "gpusim"), *where, *options, "--", *command)
        return subprocess.run(command, capture_output=True, text=True, check=False, **more)

    @staticmethod
    def capture(name: str) -> Path:
        if not (SAMPLES / name).exists():
            pytest.skip(f"{SAMPLES / name} is not there; name a folder of samples in GPUFLEET_SAMPLES")
        return SAMPLES / name

    def child(
        self,
        source: str,
        work: t.Callable[[Path], int | None],
        values: t.Sequence[str] = (),
        missing: t.Sequence[str] = (),
    ) -> tuple[int, str]:
        """Exit status and output of WORK in a child that has the simulated library; WORK gets the simulation's folder.

        The loader knows a library by its soname: what is loaded from the folder here is what pynvml finds.
        """
        made = scenario.from_capture(self.capture(source)) if source.endswith(".xml") else profiles.load(source)
        hardware.complete(made)
        for setting in values:
            scenario.assign(made, setting)
        self._made += 1
        folder = self._folder / str(self._made)
        build.make_library(made, folder, missing)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.dup2(write, 1)
                os.dup2(write, 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
                ctypes.CDLL(str(folder / "lib/libnvidia-ml.so.1"))
                status = work(folder) or 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        os.close(write)
        with os.fdopen(read) as output:
            said = output.read()
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said

    def python(self, source: str, code: str, *values: str, missing: t.Sequence[str] = ()) -> str:
        """What CODE prints. It has pynvml as `n`, its first handle as `h`, and `ask` for a call that may fail."""

        def work(folder: Path) -> None:
            names = {"set_value": lambda line: (folder / "lib/state").open("a").write(line)}
            exec(compile(PRELUDE + code, "test", "exec"), names)

        status, said = self.child(source, work, values, missing)
        assert status == 0, said
        return said.strip()

    def smi(self, source: str, *arguments: str, values: t.Sequence[str] = ()) -> tuple[int, str]:
        """Exit status and output of the simulated nvidia-smi."""

        def work(folder: Path) -> int:
            from smi.main import main

            return main(str(folder), list(arguments))

        return self.child(source, work, values)


PRELUDE = """
import ctypes, os, signal, time
import pynvml as n
def ask(call, *arguments):
    try:
        return call(*arguments)
    except (n.NVMLError, n.NVMLLibraryMismatchError) as error:
        return type(error).__name__.replace("NVMLError_", "")
n.nvmlInit()
h = ask(n.nvmlDeviceGetHandleByIndex, 0)
"""


@pytest.fixture(scope="session")
def simulator(tmp_path_factory: pytest.TempPathFactory) -> Simulator:
    return Simulator(tmp_path_factory.mktemp("simulations"))
