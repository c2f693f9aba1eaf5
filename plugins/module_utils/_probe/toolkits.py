# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA toolkits of a host and of an environment, side by side, and whether one of them compiles a kernel."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: What NVIDIA's packages and installers call "the" toolkit: update-alternatives or the last installer has it.
LINK = "/usr/local/cuda"
#: Where a distribution's own package puts nvcc.
OF_SYSTEM = "/usr"
#: In site-packages: wheels of CUDA 13 and later. Those of CUDA 12 (nvidia-cuda-nvcc-cu12) hold ptxas and no nvcc.
OF_WHEELS = re.compile(r"^cu\d+$")
#: Seconds. A kernel compiles in two on a slow machine.
COMPILE_LIMIT = 120.0

#: A template, a kernel and its launch: device code, host code and the headers of both.
KERNEL = """#include <cuda_runtime.h>
template <typename T> __global__ void add(T factor, const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += factor * x[i];
}
void launch(float factor, const float *x, float *y, int n) { add<float><<<(n + 255) / 256, 256>>>(factor, x, y, n); }
"""

_RELEASE = re.compile(r"release (\d+\.\d+), V([\d.]+)")
Facts = t.Dict[str, t.Any]


def toolkits(runner: Runner, prefix: str) -> t.List[Facts]:
    """Each toolkit once: ``{path, version, build, packaged}``; ``version`` as ``13.0``, "" where its nvcc does not run.

    ``prefix``: folder of an environment, "" for none. ``packaged``: ``wheels``, ``host``.
    """
    places = [f"/usr/local/{name}" for name in runner.listdir("/usr/local") if name.startswith("cuda-")]
    found, seen = [], set()
    for packaged, place in [
        *(("host", place) for place in [*places, LINK, OF_SYSTEM]),
        *(("wheels", place) for place in _of_wheels(runner, prefix)),
    ]:
        real = runner.realpath(place)
        if real in seen or not runner.exists(f"{real}/bin/nvcc"):
            continue
        seen.add(real)
        match = _RELEASE.search(runner.run([f"{real}/bin/nvcc", "--version"], 10.0).out)
        version, build = match.groups() if match else ("", "")
        found.append({"path": real, "version": version, "build": build, "packaged": packaged})
    return found


def _of_wheels(runner: Runner, prefix: str) -> t.List[str]:
    found = []
    for python in runner.listdir(f"{prefix}/lib") if prefix else []:
        folder = f"{prefix}/lib/{python}/site-packages/nvidia"
        found += [f"{folder}/{name}" for name in runner.listdir(folder) if OF_WHEELS.match(name)]
    return found


def link(runner: Runner) -> str:
    """Where /usr/local/cuda leads, "" where it is not there."""
    return runner.realpath(LINK) if runner.exists(LINK) else ""


def compiled(runner: Runner, toolkit: str, architectures: t.Sequence[str], folder: str) -> Facts:
    """Compile a kernel: ``{ok, problem, lines}``, with the compiler's own words.

    ``architectures``: compute capabilities (``9.0``), none for nvcc's own choice; ``folder``: an empty one.
    """
    source, made = os.path.join(folder, "kernel.cu"), os.path.join(folder, "kernel.o")
    with open(runner.path(source), "w", encoding="utf-8") as file:
        file.write(KERNEL)
    codes = [
        f"-gencode=arch=compute_{one.replace('.', '')},code=sm_{one.replace('.', '')}"
        for one in sorted({*architectures})
    ]
    result = runner.run([f"{toolkit}/bin/nvcc", *codes, "-c", source, "-o", made], COMPILE_LIMIT)
    data = runner.read_bytes(made) or b""
    whole = data[:4] == b"\x7fELF" and b".nv_fatbin" in data
    said = [line.replace(folder + "/", "") for line in (result.err + result.out).splitlines() if line.strip()]
    problem = result.problem or ("" if whole else "nvcc ended well and left no object with device code")
    return {"ok": not problem, "problem": problem, "lines": said[:20]}


def python_headers(runner: Runner, python: str) -> Facts:
    """Where an interpreter's ``Python.h`` has to be, and whether it is: ``{path, there, problem}``."""
    asked = runner.run([python, "-I", "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"], 10.0)
    path = f"{asked.out.strip()}/Python.h"
    return {"path": path, "there": not asked.problem and runner.exists(path), "problem": asked.problem}
