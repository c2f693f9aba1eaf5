# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A clean clone on a fresh Debian 12 with Python and git and nothing else done: the two commands are enough."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, images

ROOT = Path(__file__).resolve().parents[2]
SITE = ("ansible-playbook", "site.yml", "-i", "inventories/local")
SECONDS = 3000  # for all tests, on two cores that others use too


class Machine(t.NamedTuple):
    box: str
    user: str
    clone: str
    state: str

    def run(self, *command: str, user: str = "") -> subprocess.CompletedProcess[str]:
        """`./run COMMAND` in the clone, with its output in one."""
        told = ["--user", user or self.user, "--workdir", self.clone]
        if self.user != "root" and not user:
            told += ["--env", f"HOME=/home/{self.user}", "--env", f"XDG_STATE_HOME={Path(self.state).parent}"]
        shell = ["/bin/sh", "-c", 'exec ./run "$@" 2>&1', "run", *command]
        try:
            return images.podman("exec", *told, self.box, *shell, check=False, timeout=SECONDS)
        except subprocess.TimeoutExpired as error:
            pytest.fail(f"no end after {SECONDS} s: {(error.output or b'').decode(errors='replace')[-6000:]}")

    def state_of(self, playbook: str) -> dict[str, t.Any]:
        report = images.podman("exec", self.box, "cat", f"{self.clone}/reports/{playbook}/latest.json").stdout
        host: dict[str, t.Any] = json.loads(report)["hosts"]["localhost"]
        return host


#: Root's form is what continuous integration is itself, so only GPUFLEET_WHOLE=1 has it here; it also runs all tests.
WHOLE = bool(os.environ.get("GPUFLEET_WHOLE"))


@pytest.fixture(scope="module", params=["root", "plain"] if WHOLE else ["plain"])
def machine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Machine]:
    """Root clones into a path with a space; the plain user has no sudo and keeps state where XDG_STATE_HOME says."""
    run = tmp_path_factory.mktemp(f"fresh-{request.param}")
    subprocess.run(["git", "-C", str(ROOT), "bundle", "create", "-q", str(run / "clone"), "HEAD"], check=True)
    try:
        box = boxes.start(run, request.param, "debian12", "--volume", f"{run / 'clone'}:/srv/clone:ro")
        if request.param == "root":
            machine = Machine(box, "root", "/root/a clone", "/etc/gpufleet")
        else:
            images.podman("exec", box, "useradd", "--create-home", "plain")
            machine = Machine(box, "plain", "/home/plain/gpufleet", "/home/plain/own-state/gpufleet")
        images.podman("exec", "--user", machine.user, box, "git", "clone", "-q", "/srv/clone", machine.clone)
        yield machine
    finally:
        boxes.remove(run)


@pytest.mark.container
def test_main_job(machine: Machine) -> None:
    done = machine.run(*SITE)
    assert done.returncode == 0, done.stdout[-6000:]
    assert machine.state_of("site")["state"] == "ready"
    expected = json.loads(images.podman("exec", machine.box, "cat", f"{machine.state}/expected.json").stdout)
    assert expected["plan"]["torch"]["requirement"] == "torch==2.13.0+cpu"


@pytest.mark.container
def test_roots_gate_ignores_the_state_of_a_plain_user(machine: Machine) -> None:
    if machine.user == "root":
        assert machine.run("ansible-playbook", "drift.yml", "-i", "inventories/local").returncode == 0
        return
    assert images.podman("exec", machine.box, "test", "-e", "/etc/gpufleet", check=False).returncode == 1
    done = machine.run("ansible-playbook", "drift.yml", "-i", "inventories/local", user="root")
    assert done.returncode != 0
    judged = machine.state_of("drift")
    assert judged["state"] == "unknown"
    assert "never-proved" in [finding["check"] for finding in judged["findings"]]


#: What a user without root could not do. The rest depends on neither, and the session around this one has it.
CHOSEN = (
    *(f"tests/unit/module_utils/{part}" for part in ("_environment", "_gate", "_probe")),
    "tests/integration/test_fresh_machine.py",
)


@pytest.mark.container
def test_pytest(machine: Machine) -> None:
    """`./run pytest` gets what its tests need; container scenarios skip inside a container and say so.

    GPUFLEET_WHOLE=1 runs all tests, for either user, which takes as long again as everything else.
    """
    done = machine.run("pytest", "-q", *(() if WHOLE else CHOSEN))
    assert done.returncode == 0, done.stdout[-6000:]
    assert "container tests" in done.stdout  # named among the skipped, with the reason
