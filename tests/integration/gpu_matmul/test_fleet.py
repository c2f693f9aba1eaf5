# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verify.yml over hosts of which one is slow: it is named, one computes at a time, and rates are learnt.

The hosts are this machine under four names. In their environments a product sleeps, so that other load on the machine
does not show; in the slow one for twice as long. It thinks itself well.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SLOW = """
import importlib.machinery
import sys
import time


class Slow:
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            product = module.mm
            module.mm = lambda *args, **more: time.sleep(SECONDS) or product(*args, **more)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Slow())
"""


@pytest.fixture
def sleeper(torch_python, interpreters, tmp_path):
    """Makes an environment that borrows torch from the real one and sleeps so many seconds a product."""

    def make(name, seconds):
        venv = tmp_path / name
        subprocess.run([interpreters["3.11"], "-m", "venv", "--without-pip", str(venv)], check=True)
        packages = "lib/python3.11/site-packages"
        (venv / packages / "borrowed.pth").write_text(f"{Path(torch_python).parents[1] / packages}\n")
        (venv / packages / "sitecustomize.py").write_text(SLOW.replace("SECONDS", str(seconds)))
        return str(venv / "bin/python")

    return make


def verify(folder, hosts):
    common = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "gpufleet_accelerator": "auto",
        "pytorch_version": "2.13.0",
        "verify_cpu_workers": 1,
        "verify_dtypes": ["float32"],
        "verify_at_once": 1,
        "verify_group": f"{folder}: rack 7",
        "verify_baseline": "rates.json",
        "verify_baseline_learn": True,
    }
    inventory = {"all": {"hosts": {name: {"pytorch_python": python} for name, python in hosts.items()}, "vars": common}}
    (folder / "hosts.json").write_text(json.dumps(inventory))
    done = subprocess.run(
        ["ansible-playbook", str(ROOT / "verify.yml"), "-i", "hosts.json", "--diff"],
        cwd=folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, json.loads((folder / "reports/verify/latest.json").read_text())


def test_a_slow_host_is_named(sleeper, tmp_path):
    usual, slow = sleeper("usual", 0.05), sleeper("slow", 0.1)
    code, output, report = verify(tmp_path, {**dict.fromkeys(("a", "b", "c"), usual), "slow": slow})
    assert code == 0, output  # other load on a CPU cannot be told from a slow one: said, and no more
    said = {
        host: [item for item in verdict["findings"] if item["check"] == "matmul-rate-fleet"]
        for host, verdict in report["hosts"].items()
    }
    assert [item["state"] for item in said["slow"]] == ["warn"], output
    assert "under 3 other hosts" in said["slow"][0]["found"]
    assert len(re.findall("waits for its turn in group '.*rack 7', 1 at once", output)) == 3, output
    learnt = json.loads((tmp_path / "rates.json").read_text())["models"]
    assert {row["devices"] for row in learnt["CPU"].values()} == {3}
    assert "rates.json" in output  # the diff
