# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that fail beside one that is fine, over SSH: every exit code is non-zero, and the fine host stays ready."""

from __future__ import annotations

import json
import os
import subprocess
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, images

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300
# Bigger than what pip needs to look around, smaller than any torch.
SMALL_DISK = "200m"


class Fleet(t.NamedTuple):
    """`good` has a user's own torch, `full` too small a disk, and nothing answers at the address of `gone`."""

    folder: Path
    full: str

    def play(self, playbook: str, limit: str) -> tuple[int, str, dict[str, t.Any]]:
        """The exit code, what was printed, and the verdict of each host in the report."""
        command = ["ansible-playbook", str(ROOT / f"{playbook}.yml"), "-i", str(self.folder / "hosts.json")]
        environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
        done = subprocess.run(
            [*command, "--limit", limit], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        report = json.loads((self.folder / "reports" / playbook / "latest.json").read_text())
        return done.returncode, done.stdout + done.stderr, report["hosts"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Fleet]:
    run = tmp_path_factory.mktemp("fleet")
    try:
        good = boxes.start(run, "good", "debian13-torch")
        full = boxes.start(run, "full", "debian12", "--tmpfs", f"/opt/gpufleet:size={SMALL_DISK}")
        reach = {"ansible_user": "root", "ansible_ssh_common_args": f'-F "{boxes.ssh_config(run / "ssh_config")}"'}
        hosts: dict[str, dict[str, t.Any]] = {
            "good": {
                **reach,
                "ansible_host": good,
                "pytorch_python": "/opt/research/bin/python",
                "pytorch_version": "2.6.0",
                "verify_cpu_workers": 1,
            },
            "full": {**reach, "ansible_host": full},
            "gone": {"ansible_host": "127.0.0.1", "ansible_port": 1},
        }
        own = {
            "ansible_python_interpreter": "/usr/bin/python3",
            "gpufleet_accelerator": "auto",
            "plan_scope": "host",
            "pytorch_version": "2.13.0",
            "pytorch_pip_isolated": False,
        }
        (run / "hosts.json").write_text(json.dumps({"all": {"hosts": hosts, "vars": own}}))
        yield Fleet(run, full)
    finally:
        boxes.remove(run)


@pytest.mark.container
@pytest.mark.parametrize("playbook", ["site", "verify"])
@pytest.mark.parametrize(
    ("limit", "states"),
    [
        ("good", {"good": "ready"}),
        ("all", {"good": "ready", "full": "not_ready", "gone": "unknown"}),
        ("full,gone", {"full": "not_ready", "gone": "unknown"}),
        ("full", {"full": "not_ready"}),
        ("gone", {"gone": "unknown"}),
    ],
)
def test_exit_code_and_states(fleet: Fleet, playbook: str, limit: str, states: dict[str, str]) -> None:
    code, output, hosts = fleet.play(playbook, limit)
    assert {host: hosts[host]["state"] for host in states} == states, output
    assert (code == 0) == (set(states.values()) == {"ready"}), output
    assert hosts["good"]["state"] == "ready", "a host outside the limit keeps its verdict"


@pytest.mark.container
def test_no_space_is_said_and_nothing_half_done(fleet: Fleet) -> None:
    code, output, hosts = fleet.play("site", "full")
    assert code != 0
    (finding,) = [item for item in hosts["full"]["findings"] if item["state"] == "fail"]
    assert "not enough space" in json.dumps(finding), output
    assert images.podman("exec", fleet.full, "ls", "-A", "/opt/gpufleet").stdout == ""
    assert images.podman("exec", fleet.full, "test", "-e", "/etc/gpufleet", check=False).returncode == 1


def test_python_too_old_on_the_target(tmp_path: Path) -> None:
    """Ansible itself cannot run there: the verdict says so in its words, which name both versions."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = sorted(versions.glob("3.[67].*/bin/python"))
    if not found:
        pytest.skip(f"no Python 3.6 or 3.7 in {versions}")
    host = {"ansible_connection": "local", "ansible_python_interpreter": str(found[0])}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"hosts": {"old": host}}}))
    code, output, hosts = Fleet(tmp_path, "").play("site", "all")
    assert code != 0
    assert hosts["old"]["state"] == "not_ready"
    said = json.dumps(hosts["old"]["findings"])
    assert "3.8" in said and found[0].parents[1].name in said, output
