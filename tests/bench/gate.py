# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gate costs a host, and drift.yml a fleet, in CPU time, as ratios in one run on a simulated 8-GPU host.

    ./run python tests/bench/gate.py               # a few hosts, a minute
    ./run python tests/bench/gate.py --hosts 50 --rounds 3

As root, in a namespace of its own. Fifty hosts are fifty names of this machine over a local connection, one at a time,
so that none has its answer from another's look. Each way is measured with --hosts and with one host, in turns; the
difference is what a host costs, without the start of Ansible.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.gpufleet.pytorch.tests.containers.images import cache_dir  # noqa: E402
from ansible_collections.gpufleet.pytorch.tests.integration.gate.conftest import GPUSIM, Host  # noqa: E402

#: Runs inside the host: CPU seconds of each command, the best of several in turns, since other work only adds.
COSTS = """
import json, os, sys
commands, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
best = {name: 1e9 for name in commands}
null = os.open(os.devnull, os.O_RDWR)
for _round in range(rounds):
    for name, argv in commands.items():
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, n) for n in (1, 2)])
        used = os.wait4(pid, 0)[2]
        best[name] = min(best[name], used.ru_utime + used.ru_stime)
print(json.dumps(best))
"""
#: The calls themselves, as the gate makes them, in its interpreter; without argument everything but the calls.
CALLS = """
import sys
sys.path.insert(0, "/usr/local/lib/gpufleet/gpufleet-gate")
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import facts, facts_health
sys.path.insert(0, "/usr/local/lib/gpufleet")
import pynvml
if len(sys.argv) > 1:
    pynvml.nvmlInit()
    facts.system(pynvml)
    count = pynvml.nvmlDeviceGetCount()
    for index in range(count):
        facts.gpu(pynvml, index, facts_health.PARTS)
    facts_health.p2p(pynvml, count)
"""
PYTHON = "/usr/bin/python3"
GATE = "/usr/local/bin/gpufleet-gate"


def provision(host: Host, python: str) -> None:
    """The gate, and a record of the host with the environment of ``python``."""
    host.provision(Path(python), "cuda")
    host.ok("mkdir", "-p", "/run/elsewhere")
    host.ok("cp", "/etc/gpufleet/expected.json", "/run/elsewhere/")
    code, verdict = host.gate("--fresh")
    assert code == 0, verdict


def costs(host: Host, rounds: int) -> dict[str, float]:
    """CPU seconds of the gate's calls beside Python's own."""
    commands = {
        "pass": [PYTHON, "-c", "pass"],
        "read": [GATE],
        "fresh": [GATE, "--fresh"],
        "calls": [PYTHON, "-ISB", "-c", CALLS, "calls"],
        "none": [PYTHON, "-ISB", "-c", CALLS],
    }
    found = json.loads(host.ok(sys.executable, "-c", COSTS, json.dumps(commands), str(rounds)))
    found["nvml"] = max(found.pop("calls") - found.pop("none"), 0.0)
    return t.cast("dict[str, float]", found)


def fleet(host: Host, ways: t.Sequence[str], hosts: int, rounds: int) -> dict[str, float]:
    """CPU seconds a host of each way: ping, gate, the gate's last verdict, module, tasks."""
    names = [f"h{number}" for number in range(hosts)]
    variables = {
        "ansible_connection": "local",
        "ansible_python_interpreter": PYTHON,
        "bench_python": json.loads(host.ok("cat", "/etc/gpufleet/expected.json"))["baseline"]["environment"]["python"],
    }
    inventory = host.folder / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": dict.fromkeys(names), "vars": variables}}))
    play = ["ansible-playbook", "-i", str(inventory), "-f", "1"]
    commands = {
        "ping": ["ansible", "all", "-i", str(inventory), "-f", "1", "-m", "ansible.builtin.ping"],
        "gate": [*play, str(ROOT / "drift.yml")],
        "standing": [*play, str(ROOT / "drift.yml"), "-e", "drift_within=86400"],
        "module": [*play, str(ROOT / "drift.yml"), "-e", "gate_directory=/run/elsewhere"],
        "tasks": [*play, str(ROOT / "tests/bench/drift_tasks.yml")],
    }
    best: dict[tuple[str, int], float] = {}
    for _round in range(rounds):
        for count in (1, hosts):
            for way in ways:
                took = _cpu(host, [*commands[way], "-l", ",".join(names[:count])])
                best[way, count] = min(took, best.get((way, count), took))
    return {way: (best[way, hosts] - best[way, 1]) / (hosts - 1) for way in ways}


def _cpu(host: Host, command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        host.argv(*command),
        cwd=host.folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the figures beside their budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tasks-hosts", type=int, default=3, help="hosts for the same content as single tasks")
    parser.add_argument("--python", default=str(cache_dir() / "torch 2.13.0+cpu" / "bin" / "python"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        host = Host(Path(folder), sys.executable, str(GPUSIM), "--profile", "h100-sxm", "--")
        try:
            provision(host, options.python)
            one = costs(host, 10)
            print(f"python3 -c pass: {one['pass']:.3f} s")
            print(f"reading the verdict: {one['read']:.3f} s, {one['read'] / one['pass']:.1f} times; budget 4 times")
            own = one["fresh"] - one["nvml"]
            print(f"--fresh: {one['fresh']:.3f} s, {own:.3f} s without the NVML calls; budget 0.15 s")
            many = fleet(host, ("ping", "gate", "standing", "module"), options.hosts, options.rounds)
            for way, budget in (("gate", 0.4), ("standing", 0.4), ("module", 1.3)):
                ratio = many[way] / many["ping"]
                print(f"drift.yml, {way}: {many[way]:.3f} s a host, {ratio:.2f} times ping; budget {budget} times")
            print(f"ping: {many['ping']:.3f} s a host")
            tasks = fleet(host, ("tasks",), options.tasks_hosts, 1)["tasks"]
            print(f"the same as single tasks: {tasks:.3f} s a host, {tasks / many['gate']:.0f} times the gate")
        finally:
            host.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
