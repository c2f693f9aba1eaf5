# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role through Ansible on simulated machines, with the machine's own /etc under an overlay: check, real, again.

One simulation serves all steps of a machine, as starting it costs most.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import visibility
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.host import detect_virtualization
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import conf, decide, shapes, tree

ROOT = Path(__file__).resolve().parents[3]
GPUSIM = ROOT / "tests" / "simulator" / "gpusim"

PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.include_role:
        name: gpufleet.pytorch.topology
    - ansible.builtin.copy:
        content: "{{ topology_result | to_json }}"
        dest: "{{ answer }}"
        mode: "0644"
      check_mode: false
      diff: false
"""
#: What the namespace's process does: nothing that it writes below these folders stays.
STEPS = """
import json, os, subprocess, sys
folder, steps = sys.argv[1], json.loads(sys.argv[2])
def run(*command, **more):
    return subprocess.run(command, check=True, **more)
os.mkdir("layer")
run("mount", "-t", "tmpfs", "layer", "layer")
with open("/etc/ld.so.cache", "rb") as file:
    cache = file.read()
for number, place in enumerate(("/etc", "/usr/local/lib")):
    for name in ("upper", "work"):
        os.makedirs(f"layer/{name}{number}")
    options = f"lowerdir={place},upperdir=layer/upper{number},workdir=layer/work{number}"
    run("mount", "-t", "overlay", "overlay", "-o", options, place)
with open("/etc/ld.so.cache", "wb") as file:
    file.write(cache)
for number, step in enumerate(steps):
    for path, text in step.get("files", {}).items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", newline="") as file:
            file.write(text)
    for command in step.get("before", []):
        run("sh", "-ec", command)
    variables = {"topology_when_busy": "proceed", **step.get("variables", {}), "answer": f"{folder}/{number}.json",
                 "ansible_python_interpreter": sys.executable}
    run("ansible-playbook", "-i", "localhost,", "-c", "local", "play.yml", "-e", json.dumps(variables),
        *step.get("arguments", []), stdout=sys.stderr)
    held = {}
    for path in step.get("look", []):
        with open(path, newline="") if os.path.exists(path) else open(os.devnull) as file:
            held[path] = file.read()
    print(json.dumps(held), flush=True)
    for command in step.get("after", []):
        run("sh", "-ec", command, stdout=sys.stderr)
"""


def play(folder: Path, machine: str, steps: t.Sequence[t.Mapping[str, t.Any]], *options: str) -> list[t.Any]:
    """What the role returned in each step, and the files that the step looks at."""
    if os.geteuid() != 0:
        pytest.skip("an overlay over /etc needs root")
    (folder / "play.yml").write_text(PLAYBOOK)
    command = [sys.executable, str(GPUSIM), "--profile", machine, *options, "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", STEPS, str(folder), json.dumps(steps)],
        cwd=folder,
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode == 125 or "mount: " in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
    held = [json.loads(line) for line in done.stdout.splitlines()]
    answers = [json.loads((folder / f"{number}.json").read_text()) for number in range(len(steps))]
    return list(zip(answers, held, strict=True))


def states(answer: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {one["check"]: one["state"] for one in answer["findings"]}


@pytest.mark.needs("gcc")
def test_a_virtual_machine_that_hides_its_switches(tmp_path: Path) -> None:
    look = [conf.NCCL_CONF, decide.FILE]
    mine = {conf.NCCL_CONF: "NCCL_DEBUG=WARN", "/etc/environment": "NCCL_BLOCKING_WAIT=1\n"}
    theirs = {conf.NCCL_CONF: "NCCL_TOPO_FILE=/opt/mine.xml\n"}
    steps: list[dict[str, t.Any]] = [
        {"arguments": ["--check", "--diff"], "files": mine},
        {},
        {"arguments": ["--check"]},
        {"files": theirs, "variables": {"topology_environment_replace": True}, "look": [*look, "/etc/environment"]},
    ]
    predicted, done, again, kept = play(tmp_path, "azure-nd-a100-v4", [{"look": look, **step} for step in steps])
    assert predicted[0]["changed"] and predicted[1] == {conf.NCCL_CONF: "NCCL_DEBUG=WARN", decide.FILE: ""}
    assert done[0]["changed"] and done[0]["files"] == predicted[0]["files"]
    assert done[1][conf.NCCL_CONF].startswith(f"NCCL_DEBUG=WARN\n{conf.BEGIN}\nNCCL_TOPO_FILE={decide.FILE}\n")
    written = tree.as_read(tree.parse(done[1][decide.FILE]))
    assert written == tree.as_read(shapes.build(shapes.BY_NAME["azure-nd-a100-v4"]))
    assert not again[0]["changed"]
    assert states(done[0]) == {
        "topology-file": "ok", "environment-renamed": "warn", "nvlink-mesh": "ok", "gpu-nic-affinity": "ok",
        "nic-link": "ok", "gpu-numa": "ok", "acs": "not_applicable",
    }  # fmt: skip
    assert kept[1] == {
        conf.NCCL_CONF: f"{theirs[conf.NCCL_CONF]}" + kept[1][conf.NCCL_CONF][len(theirs[conf.NCCL_CONF]) :],
        decide.FILE: "",
        "/etc/environment": "TORCH_NCCL_BLOCKING_WAIT=1\n",
    }
    assert decide.FILE not in kept[1][conf.NCCL_CONF] and states(kept[0])["topology-file"] == "warn"
    assert predicted[0]["picture"] == "" and done[0]["picture"] == "reports/topology/localhost.svg"
    picture = ElementTree.parse(tmp_path / done[0]["picture"])
    shown = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "GPU 7" in shown and "mlx5_7" in shown and "NVLink: 12 links between each pair" in shown


@pytest.mark.needs("gcc")
def test_bare_metal_with_acs_and_a_broken_link(tmp_path: Path) -> None:
    metal = [
        "test -d /sys/class/dmi/id || mkdir -p /sys/class/dmi/id",
        "mount -t tmpfs dmi /sys/class/dmi/id && echo node.metal > /sys/class/dmi/id/product_name",
    ]
    paths = [decide.UNIT, decide.SCRIPT]
    script = f"{sys.executable} -I {decide.SCRIPT}"
    copied = tmp_path / "gpufleet-acs.service"  # systemd-analyze does not look through an overlay
    verify = f"cp {decide.UNIT} {copied}" + (
        f" && systemd-analyze verify {copied}" if shutil.which("systemd-analyze") else ""
    )
    # As at a start: the registers are as the firmware leaves them, and the unit's command clears them.
    restart = "p=/sys/bus/pci/devices/0000:19:00.0/config; printf '\\035\\000' | dd of=$p bs=1 seek=262 conv=notrunc"
    contained = detect_virtualization(Runner(), "", False) in visibility.CONTAINERS
    wish = {"variables": {"topology_clear_acs": True}}
    steps: list[dict[str, t.Any]] = [{"before": metal}, wish] if contained else [
        {"before": metal}, {**wish, "after": [verify, restart, script]}, wish, {},
    ]  # fmt: skip
    settings = ("--set", "sim.acs=0x1d", "--set", "gpu.2.nvlink.5.state=Inactive")
    plain, done, *rest = play(tmp_path, "h100-sxm", [{"look": paths, **step} for step in steps], *settings)
    assert not plain[0]["changed"] and states(plain[0])["acs"] == "warn"
    mesh = next(one for one in plain[0]["findings"] if one["check"] == "nvlink-mesh")
    assert (mesh["state"], mesh["policy"]) == ("fail", "block") and "7 of 28 pairs" in mesh["found"]
    assert states(plain[0])["gpu-nic-affinity"] == "ok" and plain[0]["shape"] == ""
    if contained:  # the host's registers are not a container's to change
        assert not done[0]["changed"] and states(done[0])["acs"] == "warn"
    else:
        again, gone = rest
        assert done[0]["changed"] and states(done[0])["acs"] == "ok"
        assert f"ExecStart={script}" in done[1][decide.UNIT] and "def clear(" in done[1][decide.SCRIPT]
        assert not again[0]["changed"] and states(again[0])["acs"] == "ok"
        assert gone[0]["changed"] and gone[1] == dict.fromkeys(paths, "")
    # What drift compares is the same whatever was written.
    assert {one[0]["topology"]["digest"] for one in (done, *rest)} == {plain[0]["topology"]["digest"]}
    system = tree.parse(plain[0]["xml"])
    assert [int(node.attributes["count"]) for node in system.walk("nvlink")].count(4) > 0
    assert len(list(system.walk("gpu"))) == 8 and len(list(system.walk("net"))) == 8
