# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of a simulation: compiled library, scenario, commands, and the kernel's files.

FOLDER/lib/libnvidia-ml.so.1 -> libnvidia-ml.so.580.105.08     with scenario, state, calls beside it
FOLDER/bin/nvidia-smi, gpusim-set
FOLDER/sys, FOLDER/proc, FOLDER/dev                            see host.py
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

from simulation import host, pci
from simulation.scenario import ScenarioError, Values, first_step, text_of

HERE = Path(__file__).resolve().parent.parent
#: The commands are source here and become programs in the folder that is made.
SHEBANG = "#!/usr/bin/env python3\n"
FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
#: The driver branch that brought a function; older ones lack it. Source: the first nvml.h that has it in the history of
#: NVIDIA/go-nvml (CUDA 11.6 came with driver 510, 11.7 with 515, 12.0 with 525, 12.2 with 535, 12.3 with 545, 12.4 with
#: 550, 12.8 with 570, 13.0 with 580), and NVML's change log for 590.
SINCE = {
    "nvmlDeviceGetMemoryInfo_v2": 510,
    "nvmlDeviceGetComputeRunningProcesses_v3": 510,
    "nvmlDeviceGetGraphicsRunningProcesses_v3": 510,
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": 510,
    "nvmlDeviceGetGspFirmwareVersion": 515,
    "nvmlDeviceGetGspFirmwareMode": 515,
    "nvmlDeviceGetGpuFabricInfo": 525,
    "nvmlDeviceGetModuleId": 535,
    "nvmlDeviceGetCurrentClocksEventReasons": 535,
    "nvmlDeviceGetSupportedClocksEventReasons": 535,
    "nvmlDeviceSetPowerManagementLimit_v2": 535,
    "nvmlDeviceGetC2cModeInfoV": 545,
    "nvmlDeviceGetPciInfoExt": 550,
    "nvmlDeviceGetNumaNodeId": 550,
    "nvmlDeviceGetGpuFabricInfoV": 550,
    "nvmlDeviceGetSramEccErrorStatus": 550,
    "nvmlDeviceGetMarginTemperature": 570,
    "nvmlDeviceGetTemperatureV": 570,
    "nvmlDeviceGetPlatformInfo": 570,
    "nvmlDeviceGetAddressingMode": 580,
    "nvmlDeviceGetPdi": 580,
    "nvmlDeviceGetRepairStatus": 580,
    "nvmlDeviceGetUnrepairableMemoryFlag_v1": 590,
}


def find_header() -> Path:
    """The folder of NVIDIA's nvml.h, from the PyPI package nvidia-nvml-dev or from CUDA."""
    folders = [Path(os.environ["NVML_INCLUDE"])] if "NVML_INCLUDE" in os.environ else []
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec else ():
        folders += sorted(Path(place).glob("*/include"))
    folders += [Path("/usr/local/cuda/include"), Path("/usr/include")]
    for folder in folders:
        if (folder / "nvml.h").is_file():
            return folder
    raise ScenarioError(
        "nvml.h is not found; install it into this Python: "
        f"{sys.executable} -m pip install nvidia-nvml-dev (or name its folder in NVML_INCLUDE)"
    )


def library() -> Path:
    """The compiled library, made once for each state of its sources."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise ScenarioError("a C compiler is needed: apt install gcc libc6-dev")
    header = find_header()
    sources = sorted((HERE / "src").glob("*.c"))
    state = hashlib.sha256()
    for path in (*sources, HERE / "src/gpusim.h", header / "nvml.h"):
        state.update(path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpusim"
    built = cache / f"libnvidia-ml-{state.hexdigest()[:16]}.so"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = built.with_suffix(f".{os.getpid()}")
        _compile([compiler, *FLAGS, "-Wl,-soname,libnvidia-ml.so.1", f"-I{header}", "-o", str(unfinished),
                  *map(str, sources)])  # fmt: skip
        unfinished.rename(built)
    return built


def _compile(command: t.Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ScenarioError(f"{command[0]} failed:\n{done.stderr}")


def without(data: bytes, symbols: t.Iterable[str]) -> bytes:
    """A library that lacks symbols: their names change in the table of strings, so the loader finds none."""
    for symbol in symbols:
        name = b"\0" + symbol.encode() + b"\0"
        if name not in data:
            raise ScenarioError(f"--without {symbol}: the simulated library has no such function")
        data = data.replace(name, b"\0x" + symbol.encode()[1:] + b"\0")
    return data


def make_library(values: Values, folder: Path, missing: t.Sequence[str] = ()) -> None:
    """Writes the part of a simulation that NVML needs: FOLDER/lib."""
    version = first_step(values["sim/library_version"])
    branch = re.match(r"\d+", version)
    old = [name for name, since in SINCE.items() if branch and int(branch.group()) < since]
    compiled = library().read_bytes()
    lib = folder / "lib"
    lib.mkdir(parents=True)
    target = lib / f"libnvidia-ml.so.{version}"
    target.write_bytes(without(compiled, {*old, *missing}))
    target.chmod(0o755)
    pci.link(lib / "libnvidia-ml.so.1", target.name)
    (lib / "scenario").write_text(text_of(values.items()))
    for name in ("state", "calls"):
        (lib / name).touch()
    os.truncate(lib / "calls", 4 * 65536)


def make(
    values: Values,
    folder: Path,
    *,
    at: Path | None = None,
    missing: t.Sequence[str] = (),
    kernel_log: str | None = None,
) -> None:
    """Writes the folder of a simulation; AT is where it will be used, where that is another place."""
    make_library(values, folder, missing)
    if any("@stuck" in value for value in values.values()):
        (folder / "lib/stuck").mkdir()
    shutil.copytree(HERE / "smi", folder / "smi", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "bin").mkdir()
    for name in ("nvidia-smi", "gpusim-set", "gpusim-stuck", "dmesg", "journalctl"):
        text = (HERE / "bin" / name.replace("journalctl", "dmesg")).read_text()
        (folder / "bin" / name).write_text(SHEBANG + text.replace('FOLDER = ""', f'FOLDER = "{at or folder}"'))
        (folder / "bin" / name).chmod(0o755)
    host.write(values, folder, kernel_log)


def cache_libraries(folder: Path) -> None:
    """An ld.so.cache in which our library comes first."""
    ldconfig = next((path for path in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if Path(path).exists()), None)
    if ldconfig is None:
        raise ScenarioError("there is no ldconfig: this system's loader cannot be told of the library")
    conf = folder / "ld.so.conf"
    conf.write_text(f"{folder}/lib\ninclude /etc/ld.so.conf\n")
    done = subprocess.run([ldconfig, "-X", "-C", str(folder / "ld.so.cache"), "-f", str(conf)], capture_output=True,
                          text=True, check=False)  # fmt: skip
    if done.returncode != 0:
        raise ScenarioError(f"ldconfig failed: {done.stderr.strip()}")
