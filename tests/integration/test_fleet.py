# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of four names of this machine, each with its own environment: the odd one out in one run, and in slices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from concurrent import futures
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLICES = 3
#: Of each host the torch that its environment names.
TORCH = {f"gpu{number}": "2.13.0" for number in range(1, 4)} | {"gpu4": "2.12.1"}


def environment(folder: Path, torch: str) -> str:
    """The interpreter of an environment whose metadata name this torch; nothing of it is imported."""
    venv.create(folder, symlinks=True)
    told = next(folder.glob("lib/python*/site-packages")) / f"torch-{torch}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    return str(folder / "bin" / "python")


def play(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    return subprocess.run(
        command, cwd=folder, env=settings, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the inventory ``hosts.json``; each host is recorded as it is."""
    folder = tmp_path_factory.mktemp("fleet")
    hosts = {
        name: {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "gate_directory": str(folder / name / "state"),
            "python": environment(folder / name / "venv", torch),
        }
        for name, torch in TORCH.items()
    }
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    task = {
        "gpufleet.pytorch.gpu_drift": {
            "state": "recorded", "directory": "{{ gate_directory }}", "python": "{{ python }}",
            "plan": {"status": "ok", "accelerator": "cpu"}, "proof": {"devices": []},
            "findings": [{"check": "matmul", "state": "ok", "subject": {"kind": "host"}}],
        }
    }  # fmt: skip
    (folder / "record.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    done = play(folder, "ansible-playbook", "record.yml", "-i", "hosts.json")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def odd(hosts: dict[str, dict]) -> dict[str, list[str]]:
    told = {
        name: [item["found"] + ", not " + item["expected"] for item in host["findings"] if "odd" in item["check"]]
        for name, host in hosts.items()
    }
    return {name: found for name, found in told.items() if found}


def read(path: Path) -> dict[str, dict]:
    return json.loads(path.read_text())["hosts"]


def test_drift_finds_the_odd_one_out(fleet: Path) -> None:
    done = play(fleet, "ansible-playbook", str(ROOT / "drift.yml"), "-i", "hosts.json")
    assert done.returncode == 0, done.stdout + done.stderr
    hosts = read(fleet / "reports" / "drift" / "latest.json")
    assert {host["state"] for host in hosts.values()} == {"ready"}
    assert {name: host["identity"]["torch"] for name, host in hosts.items()} == TORCH
    assert odd(hosts) == {"gpu4": ["torch 2.12.1, not 2.13.0, as 3 of 4 hosts alike"]}
    assert "fleet-odd-torch" in done.stdout


def test_slices_of_ansible_runner_are_folded_into_one_report(fleet: Path) -> None:
    """AWX gives slice n an inventory of every SLICES-th host from the n-th on; each job has a folder of its own."""
    hosts = json.loads((fleet / "hosts.json").read_text())["all"]["hosts"]
    inbox = fleet / "inbox"
    inbox.mkdir()

    def run(number: int) -> subprocess.CompletedProcess[str]:
        job = fleet / f"slice{number}"
        (job / "inventory").mkdir(parents=True)
        (job / "project").mkdir()
        mine = {name: hosts[name] for name in sorted(hosts)[number::SLICES]}
        (job / "inventory" / "hosts.json").write_text(json.dumps({"all": {"hosts": mine}}))
        options = ("-p", str(ROOT / "drift.yml"), "--cmdline", f"-e report_inbox={inbox}")
        return play(fleet, "ansible-runner", "run", str(job), *options)

    with futures.ThreadPoolExecutor(SLICES) as pool:
        jobs = list(pool.map(run, range(SLICES)))
    assert [job.returncode for job in jobs] == [0] * SLICES, "".join(job.stdout + job.stderr for job in jobs)
    # No slice can tell who is odd, nor does it know another's hosts.
    seen = [
        read(fleet / f"slice{number}" / "project" / "reports" / "drift" / "latest.json") for number in range(SLICES)
    ]
    assert [sorted(one) for one in seen] == [["gpu1", "gpu4"], ["gpu2"], ["gpu3"]]
    assert [odd(one) for one in seen] == [{}, {}, {}]

    (fleet / "controller").mkdir()
    done = play(
        fleet / "controller", "ansible-playbook", str(ROOT / "report.yml"), "-i", str(fleet / "hosts.json"),
        "-e", f"report_inbox={inbox}",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    folded = read(fleet / "controller" / "reports" / "report" / "latest.json")
    assert {name: host["source"] for name, host in folded.items()} == {n: str(inbox / f"{n}.json") for n in TORCH}
    assert odd(folded) == {"gpu4": ["torch 2.12.1, not 2.13.0, as 3 of 4 hosts alike"]}
