# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long planning takes: a first plan in a fresh process, and 1,000 unlike hosts in one process.

    ./run python tests/bench/compat.py

Prints CPU seconds beside their budgets; the best of several runs, since other work on the machine only adds.
"""

from __future__ import annotations

import itertools
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPAT = "ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat"
RUNS = 5
HOSTS = 1000
COLD = f"""
from {COMPAT} import answer
assert answer.answer("2.8.0", {{"gpus": ["NVIDIA H100 80GB HBM3"], "driver": "550.163.01"}})["status"] == "ok"
"""


def main() -> int:
    """Print the two figures."""
    sys.path.insert(0, str(ROOT / "collections"))
    cold, bare = (min(_process(code) for _run in range(RUNS)) for code in (COLD, "pass"))
    print(f"first plan, fresh process: {cold:.3f} s (python alone {bare:.3f} s); budget 0.3 s")
    warm, states = min(_hosts() for _run in range(RUNS))
    print(f"{HOSTS} unlike hosts: {warm:.3f} s; budget 1 s ({states})")
    return 0


def _process(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "collections")})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _hosts() -> tuple[float, str]:
    from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer, resolver

    resolver.forget()
    asked = _unlike()
    start = time.process_time()
    found = [answer.answer(torch, options)["status"] for torch, options in asked]
    took = time.process_time() - start
    return took, ", ".join(f"{found.count(state)} {state}" for state in sorted(set(found)))


def _unlike() -> list[tuple[str, dict[str, object]]]:
    """As many hosts, no two of them alike, over releases, GPUs, drivers, Pythons and systems."""
    torches = ("latest", "2.8.0", "2.15.0", ">=2.6,<2.11", "2.5.1")
    gpus = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB", "NVIDIA B200", "Tesla T4",
            "NVIDIA GeForce RTX 4090", "NVIDIA L40S")  # fmt: skip
    drivers = ("", "535.261.03", "550.163.01", "580.95.05")
    systems = (("ubuntu", "24.04"), ("debian", "12"), ("rocky", "9.6"))
    pythons = ("3.10", "3.11", "3.12")
    combinations = itertools.product(torches, gpus, drivers, systems, pythons)
    return [
        (torch, {"gpus": [gpu] * 8, "driver": driver, "os_id": system[0], "os_version": system[1], "python": python})
        for torch, gpu, driver, system, python in itertools.islice(combinations, HOSTS)
    ]


if __name__ == "__main__":
    sys.exit(main())
