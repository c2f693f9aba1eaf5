# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""verify.yml over hosts of which one is slow: it is named, one computes at a time; what cannot be learnt is said once.

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

from ansible_collections.gpufleet.pytorch.plugins.action.fleet_rates import _check
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

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


def play(folder, playbook, hosts, **common):
    common |= {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": common}}))
    done = subprocess.run(
        ["ansible-playbook", str(playbook), "-i", "hosts.json", "--diff"],
        cwd=folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def verify(folder, pythons):
    code, output = play(
        folder, ROOT / "verify.yml", {name: {"pytorch_python": python} for name, python in pythons.items()},
        gpufleet_accelerator="auto", pytorch_version="2.13.0", verify_cpu_workers=1, verify_dtypes=["float32"],
        verify_at_once=1, verify_group=f"{folder}: rack 7", verify_baseline="rates.json", verify_baseline_learn=True,
    )  # fmt: skip
    return code, output, json.loads((folder / "reports/verify/latest.json").read_text())["hosts"]


@pytest.mark.alone
def test_a_slow_host_is_named(sleeper, tmp_path):
    usual, slow = sleeper("usual", 0.04), sleeper("slow", 0.08)
    code, output, hosts = verify(tmp_path, {"a": usual, "b": usual, "slow": slow})
    # Other load on a CPU cannot be told from a slow one: said, and no more.
    assert {verdict["state"] for verdict in hosts.values()} == {"ready"}, output
    said = {
        host: [item for item in verdict["findings"] if item["check"] == "matmul-rate-fleet"]
        for host, verdict in hosts.items()
    }
    assert [item["state"] for item in said["slow"]] == ["warn"], output
    assert "under 2 other hosts" in said["slow"][0]["found"]
    assert len(re.findall("waits for its turn in group '.*rack 7', 1 at once", output)) == 2, output
    # That two are too few to learn from once the slow one is left out, nobody knew before. No host is to blame.
    error = f"error of the run: verify_baseline {tmp_path}/rates.json: nothing can be learnt: 3 healthy devices"
    assert code == 2 and output.count(error) == 1 and "found 2 of CPU" in output, output
    assert not (tmp_path / "rates.json").exists()


def test_too_few_hosts_to_learn_from_are_refused_once_and_before_any_load(torch_python, tmp_path):
    code, output, hosts = verify(tmp_path, {"a": torch_python, "b": torch_python})
    assert code == 2 and output.count("fatal: ") == 1, output
    assert "3 healthy devices of a model are needed, found 2 of CPU (a host without a GPU counts as one)" in output
    assert "Prove each GPU" not in output, output
    assert {host: [item["check"] for item in verdict["findings"]] for host, verdict in hosts.items()} == {
        "a": ["run-finished"], "b": ["run-finished"]
    }  # fmt: skip


RATES = """
- hosts: all
  gather_facts: false
  tasks:
    - gpufleet.pytorch.fleet_rates: {baseline: rates.json, learn: true}
      run_once: true
"""


def test_what_healthy_hosts_reach_is_learnt(tmp_path):
    (tmp_path / "rates.yml").write_text(RATES)
    row = {"dtype": "float32", "m": 512, "n": 512, "k": 512, "state": "ok"}
    hosts = {
        name: {"verify_result": {"findings": [Finding("matmul-run", "ok").to_dict()], "proof": {"devices": [
            {"kind": "cpu", "key": "0", "name": "CPU process", "ended": "done", "rates": [{**row, "rounds": [v, v]}]}
        ]}}}
        for name, v in {"a": 0.1, "b": 0.1, "c": 0.1, "slow": 0.05}.items()
    }  # fmt: skip
    code, output = play(tmp_path, tmp_path / "rates.yml", hosts)
    assert code == 0 and '"devices": 3' in output, output  # the diff
    learnt = json.loads((tmp_path / "rates.json").read_text())["models"]
    assert learnt == {"CPU": {"float32 512x512x512": {"deviation": 0.0, "devices": 3, "middle": 0.1}}}


CPU = {"gpufleet_plan": {"accelerator": "cpu"}, "gpufleet_observed": {"gpus": []}}
GOOD = '{"schema": 1, "models": {"CPU": {"float32 1x1x1": {"middle": 1.0, "deviation": 0.0}}}}'


def facts(count, name="verify"):
    hosts = {f"h{number}": CPU for number in range(count)}
    return {"report_name": name, "ansible_play_hosts": list(hosts), "hostvars": hosts}


@pytest.mark.parametrize(
    ("content", "learn", "count", "says"),
    [
        (GOOD, False, 1, None),
        (GOOD, True, 3, None),
        (None, True, 3, None),
        (None, True, 2, "3 healthy devices of a model are needed, found 2 of CPU"),
        (None, False, 3, "there is no such file; verify_baseline_learn writes one from at least 3 healthy devices"),
        (GOOD.replace("1.0", "NaN"), False, 3, "models, 'CPU', 'float32 1x1x1': .*a rate of nan.*; mend it, or remove"),
        (GOOD.replace("1.0", "NaN"), True, 3, "a rate of nan"),  # what lies there is not overwritten
        (GOOD.replace("1.0", "true"), False, 3, "a rate of True"),
        (GOOD.replace("0.0", "-Infinity"), False, 3, "a deviation of -inf"),
        (GOOD[:-1], False, 3, "no baseline of rates: Expecting"),
        ("", False, 3, "no baseline of rates: Expecting value"),
        ("[" * 100_000, False, 3, "no baseline of rates: maximum recursion"),
        (b"\xff\xfe", False, 3, "no baseline of rates: 'utf-8' codec"),
        ("[]", False, 3, "no baseline of rates: it: TypeError"),
        ("folder", False, 3, "it cannot be read: Is a directory"),
        ("rollout", True, 3, "a rollout proves its hosts batch by batch"),
        ("no folder", True, 3, "is not there or cannot be written"),
    ],
)
def test_a_baseline_is_refused_before_the_proof(tmp_path, content, learn, count, says):
    path, name = tmp_path / "rates.json", "verify"
    if content == "folder":
        path.mkdir()
    elif content == "rollout":
        name = content
    elif content == "no folder":
        path = tmp_path / "no" / "rates.json"
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    if says is None:
        _check(str(path), learn, facts(count, name))
        return
    with pytest.raises(ValueError, match=says):
        _check(str(path), learn, facts(count, name))
