# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that pulls: the playbook sets it up, the lines of its unit are run as systemd runs them, with real git."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.integration.gate.conftest import ROOT, Host
from ansible_collections.gpufleet.pytorch.tests.integration.test_fleet import environment

pytestmark = [pytest.mark.container, pytest.mark.needs("git")]

UNIT = "/etc/systemd/system/gpufleet-pull.service"
GIT = {f"GIT_{role}_{what}": "test@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
#: What has a meaning in a unit, or to a shell, stands for itself.
INBOX = 'in box %h "$unset" \\'


class Pulling(t.NamedTuple):
    """``host`` pulls from ``repository``, in which it is gpu1; its own name is in no inventory."""

    host: Host
    repository: Path

    def commit(self, name: str, text: str) -> None:
        (self.repository / name).parent.mkdir(parents=True, exist_ok=True)
        (self.repository / name).write_text(text)
        for words in (["add", name], ["commit", "-q", "-m", name]):
            subprocess.run(["git", *words], cwd=self.repository, env={**os.environ, **GIT}, check=True)

    def start(self) -> dict[str, t.Any]:
        """Run the unit's commands, and return the verdict that was delivered."""
        unit = self.host.ok("cat", UNIT).replace("\\\n", " ").splitlines()
        variables = dict(word.split("=", 1) for line in unit if line.startswith("Environment=") for word in words(line))
        (main,) = (words(line) for line in unit if line.startswith("ExecStart="))
        done = self.host.run(*main, **variables)
        print(done.stdout + done.stderr)
        result = "exit-code" if done.returncode else "success"
        for line in unit:
            if line.startswith("ExecStopPost=-"):
                self.host.run(*(word.replace("${SERVICE_RESULT}", result) for word in words(line)))
        return json.loads((self.host.folder / INBOX / "gpu1.json").read_text())


def words(line: str) -> list[str]:
    """The words of a unit's line: quotes and backslashes as a shell's, %% and $$ for one of them."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(line.split("=", 1)[1].lstrip("-"))]


@pytest.fixture(scope="module")
def pulling(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[Pulling]:
    folder = tmp_path_factory.mktemp("pull")
    repository = folder / "repository"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", str(repository)], check=True)
    subprocess.run(["git", "checkout", "-q", "-B", "fleet"], cwd=repository, check=True)
    made = Pulling(Host(folder), repository)
    try:
        made.host.provision(Path(environment(folder / "venv", "2.13.0")), "cpu")
        hosts = f"gpu1 ansible_python_interpreter={sys.executable}\ngpu2 ansible_host=192.0.2.1\n"
        made.commit("inventories/mine/hosts", hosts)
        yield made
    finally:
        made.host.end()


def test_a_host_that_pulls(pulling: Pulling) -> None:
    host, clone = pulling.host, pulling.host.folder / "clone"
    (host.folder / INBOX).mkdir()
    wishes = {
        "pull_url": f"file://{pulling.repository}", "pull_checkout": "fleet", "pull_directory": str(clone),
        "pull_inventory": "inventories/mine/hosts", "pull_deliver_to": str(host.folder / INBOX), "pull_host": "gpu1",
    }  # fmt: skip
    code, told, _report = host.play("pull", **wishes)
    assert code == 0, told
    code, told, _report = host.play("pull", "--check", **wishes)
    assert code == 0 and "changed=0" in told, told
    assert host.ok("stat", "-c", "%U %a", UNIT).split() == ["root", "600"]
    if shutil.which("systemd-analyze"):
        assert host.run("systemd-analyze", "verify", "--man=no", UNIT).stderr == ""
    made_before(clone)

    first = pulling.start()
    assert first["state"] == "ready", first
    assert pulls(first) == [("ok", "the last ansible-pull ended with success")]
    report = json.loads((clone / "reports" / "drift" / "latest.json").read_text())["hosts"]["gpu1"]
    assert first["identity"]["torch"] == report["identity"]["torch"] == "2.13.0"

    # A commit of the night before breaks the playbook of the whole fleet: it is fetched, and each host says so.
    pulling.commit("drift.yml", "---\n- hosts: all\n  gather_facts: false\n  tasks: [{ansible.builtin.fail: {}}]\n")
    second = pulling.start()
    assert second["state"] == "ready" and pulls(second) == [("warn", "the last ansible-pull ended with exit-code")]
    assert second["judged_at"] > first["judged_at"]

    folded = fold(host, pulling.repository)
    assert {name: item["state"] for name, item in folded.items()} == {"gpu1": "ready", "gpu2": "unknown"}
    assert [item["check"] for item in folded["gpu1"]["findings"] if item["state"] == "warn"] == ["pull"]
    assert [item["check"] for item in folded["gpu2"]["findings"]] == ["host-heard"]


def made_before(clone: Path) -> None:
    """What ./run makes once, of the packages of this session; tests/run has the making of it."""
    place = clone / ".venv"
    place.mkdir()
    (place / "bin").symlink_to(Path(sys.prefix) / "bin")
    (place / "made-in").write_text(f"{clone}\n")
    shutil.copy(clone / "requirements" / "ansible.txt", place)
    link = clone / "collections" / "ansible_collections" / "gpufleet" / "pytorch"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../..")


def pulls(verdict: dict[str, t.Any]) -> list[tuple[str, str]]:
    return [(item["state"], item["found"]) for item in verdict["findings"] if item["check"] == "pull"]


def fold(host: Host, repository: Path) -> dict[str, t.Any]:
    """The report of a controller that reaches none of the hosts."""
    done = host.run(
        *("ansible-playbook", str(ROOT / "report.yml"), "-i", str(repository / "inventories/mine/hosts")),
        *("-e", json.dumps({"report_inbox": str(host.folder / INBOX)})),
        ANSIBLE_CONFIG=str(ROOT / "ansible.cfg"),
    )
    assert done.returncode == 2, done.stdout + done.stderr
    return json.loads((host.folder / "reports" / "report" / "latest.json").read_text())["hosts"]
