# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lookup inside Ansible: on the command line, with facts and observations of hosts, and for groups."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(sys.executable).parent
H100, V100 = "NVIDIA H100 80GB HBM3", "Tesla V100-SXM2-16GB"


def run(command, *arguments, cwd):
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections"), "ANSIBLE_NOCOLOR": "1"}
    environment |= {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default", "ANSIBLE_LOCALHOST_WARNING": "0"}
    environment["ANSIBLE_CALLBACK_RESULT_FORMAT"] = "json"  # whatever the caller prefers
    return subprocess.run(
        [str(BIN / command), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_on_the_command_line(tmp_path):
    call = "lookup('gpufleet.pytorch.compat', '2.8.0', gpus=['NVIDIA H100 80GB HBM3'], driver='550.163.01')"
    done = run("ansible", "localhost", "-m", "debug", "-a", "msg={{ " + call + " }}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout.split("=>", 1)[1])["msg"]
    assert plan["torch"]["requirement"] == "torch==2.8.0+cu128"
    assert (plan["driver"]["action"], plan["driver"]["version"]) == ("keep", "550.163.01")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("'2.9.0', gpus=['Tesla V100-SXM2-16GB'], cuda='13.0'", "1. torch 2.9.0+cu128 runs on driver 580 (cuda: auto)"),
        ("2.10, gpus=['Tesla T4']", "YAML reads 2.10 as 2.1"),
        ("'2.9.0', gpus=['Tesla T4'], driver_polcy='keep'", "driver_polcy: found an option that there is not"),
        ("'2.9.0'", "no-gpu: gpu: found no GPU"),
    ],
)
def test_a_conflict_is_a_readable_error(tmp_path, arguments, says):
    done = run(
        "ansible",
        "localhost",
        "-m",
        "debug",
        "-a",
        f"msg={{{{ lookup('gpufleet.pytorch.compat', {arguments}) }}}}",
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def observation(gpu, driver="", owner="nobody"):
    return {
        "schema": 1,
        "host": {"os": {"id": "ubuntu", "version": "24.04"}, "arch": "x86_64", "python": "3.12.3", "glibc": "2.39"},
        "pci": [],
        "driver": {"version": driver, "owner": owner},
        "gpus": [{"name": gpu, "pci_address": "00000000:01:00.0"}],
    }


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.debug:
        msg:
          host: "{{ lookup('gpufleet.pytorch.compat', 'latest', on_conflict='report') }}"
          group: "{{ lookup('gpufleet.pytorch.compat', 'latest', plan_scope='group', on_conflict='report') }}"
          two: "{{ query('gpufleet.pytorch.compat', '2.8.0', '2.9.0', plan_scope='host') | map(attribute='torch') }}"
"""


def test_hosts_of_a_play(tmp_path):
    hosts = {
        "a": {"gpufleet_observed": observation(H100)},
        "b": {"gpufleet_observed": observation(V100)},
        "c": {"gpufleet_observed": observation(H100, "550.163.01", "dgx_os"), "plan_group": "old"},
        "d": {
            "gpufleet_observed": observation(H100),
            "plan_group": "old",
            "cuda_version": "12.8",
            "driver_policy": "570",
        },
    }
    inventory = {"all": {"hosts": hosts, "vars": {"ansible_connection": "local"}}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    (tmp_path / "play.yml").write_text(PLAY, encoding="utf-8")
    done = run("ansible-playbook", "-i", "hosts.yml", "play.yml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for part in done.stdout.split("ok: [")[1:]:
        name, text = part.split("] => ", 1)
        found[name] = json.loads(text[: text.rindex("}") + 1] if "\n\n" not in text else text.split("\n\n")[0])["msg"]
    alone = {
        name: answer["host"]["torch"]["requirement"]
        for name, answer in found.items()
        if answer["host"]["status"] == "ok"
    }
    assert alone == {
        "a": "torch==2.15.0+cu132",
        "b": "torch==2.15.0+cu126",
        "c": "torch==2.15.0+cu126",
        "d": "torch==2.11.0+cu128",
    }
    assert found["d"]["host"]["driver"]["branch"] == "570"
    together = {name: found[name]["group"]["torch"]["requirement"] for name in "ab"}
    assert together == dict.fromkeys("ab", "torch==2.15.0+cu126")
    assert [torch["version"] for torch in found["a"]["two"]] == ["2.8.0", "2.9.0"]
    # What one host of a group wishes or cannot change holds for the others.
    assert {name: found[name]["group"]["torch"]["requirement"] for name in "cd"} == dict.fromkeys(
        "cd", "torch==2.11.0+cu128"
    )
    assert {name: found[name]["group"]["driver"]["branch"] for name in "cd"} == {"c": "550", "d": "570"}
