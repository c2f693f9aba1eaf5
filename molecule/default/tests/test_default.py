# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the main job leaves behind, seen by other means than its own modules."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import pytest

BEFORE = "/root/environment.before"
# Interpreter and version of torch, by Debian's release.
ENVIRONMENTS = {
    "12": ("/opt/gpufleet/venv/bin/python", "2.13.0+cpu"),
    "13": ("/opt/research/bin/python", "2.6.0+debian"),
}
# Whole numbers, so that the product has one right answer; numpy computes the other side without torch.
PRODUCT = """
import numpy, torch
a = torch.arange(384 * 384).reshape(384, 384) % 7
right = numpy.array_equal((a.float() @ a.float()).numpy(), a.numpy() @ a.numpy())
print(torch.__version__, torch.cuda.is_available(), right)
"""


@pytest.fixture
def environment(host: t.Any) -> tuple[str, str]:
    return ENVIRONMENTS[host.system_info.release.partition(".")[0]]


def test_torch_computes(host: t.Any, environment: tuple[str, str]) -> None:
    python, version = environment
    assert host.check_output("%s -I -c %s", python, PRODUCT) == f"{version} False True"


def test_what_is_recorded_is_what_is_there(host: t.Any, environment: tuple[str, str]) -> None:
    python, version = environment
    record = host.file("/etc/gpufleet/expected.json")
    assert (record.user, record.mode & 0o022) == ("root", 0)
    expected = json.loads(record.content_string)
    assert expected["baseline"]["accelerator"] == "cpu"
    assert expected["baseline"]["environment"]["python"] == python
    assert expected["baseline"]["environment"]["torch_version"] == version


def test_the_users_environment_is_as_it_was(host: t.Any) -> None:
    if not host.file(BEFORE).exists:
        pytest.skip("this host had none")
    command = host.file("/root/list-environment").content_string
    assert host.check_output("sh -c %s", command) == host.file(BEFORE).content_string.rstrip("\n")
    assert not host.file("/opt/gpufleet/venv").exists


def test_the_verdict_is_ready(host: t.Any) -> None:
    report = json.loads(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "reports/site/latest.json").read_text())
    assert report["ok"] is True
    assert {name: judged["state"] for name, judged in report["hosts"].items()} == dict.fromkeys(
        report["hosts"], "ready"
    )
    assert sorted(report["hosts"]) == ["debian12", "debian13"]


def test_the_gate_answers_everybody_and_its_timer_looks(host: t.Any) -> None:
    timer = host.service("gpufleet-gate.timer")
    assert timer.is_enabled and timer.is_running
    assert host.run("systemctl start gpufleet-gate.service").rc == 0
    verdict = json.loads(host.check_output("/usr/local/bin/gpufleet-gate --json"))
    assert verdict["ok"] is True and verdict["made_by"] == "look"
    assert host.run("setpriv --reuid=65534 --clear-groups /usr/local/bin/gpufleet-gate").stdout == "ready\n"
    assert host.run("setpriv --reuid=65534 --clear-groups env -i /usr/local/bin/gpufleet-gate").rc == 0
    host.check_output("mv /etc/gpufleet/expected.json /root/")
    looked = host.run("/usr/local/bin/gpufleet-gate --fresh")
    host.check_output("mv /root/expected.json /etc/gpufleet/")
    assert looked.rc == 2 and "never-proved" in looked.stdout
    assert host.run("/usr/local/bin/gpufleet-gate").rc == 2, "what was found then is the verdict"
    assert host.run("/usr/local/bin/gpufleet-gate --fresh").rc == 0


def test_drift_looked_through_the_gate(host: t.Any) -> None:
    report = json.loads(Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "reports/drift/latest.json").read_text())
    assert report["ok"] is True
    for judged in report["hosts"].values():
        # The module, which stands in where there is no gate, does not count GPUs.
        assert {"drift", "accelerator-present"} <= {finding["check"] for finding in judged["findings"]}
