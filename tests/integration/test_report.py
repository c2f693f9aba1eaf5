# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""report.yml: verdicts that hosts and earlier runs left, folded on the controller without a word to any host."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, verdict

ROOT = Path(__file__).resolve().parents[2]
# Nobody answers there: a host that were asked would be unreachable.
HOSTS = "[all]\n" + "".join(f"gpu{n} ansible_host=127.0.0.1 ansible_port=1\n" for n in range(1, 6))


def report(folder: Path, *more: str) -> tuple[subprocess.CompletedProcess[str], dict[str, dict[str, object]]]:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        ["ansible-playbook", str(ROOT / "report.yml"), "-i", "hosts", *more],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    written = folder / "reports" / "report" / "latest.json"
    return done, json.loads(written.read_text())["hosts"] if written.exists() else {}


def save(path: Path, driver: str, age: float, *findings: Finding) -> dict[str, object]:
    made = {
        **verdict(findings),
        "judged_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age)),
        "identity": {"gpus": "8 x NVIDIA H100 80GB HBM3", "driver": driver},
    }
    path.write_text(json.dumps(made))
    return made


def test_a_pulling_fleet(tmp_path):
    (tmp_path / "hosts").write_text(HOSTS)
    inbox, site = tmp_path / "in box", tmp_path / "reports" / "site"
    inbox.mkdir()
    site.mkdir(parents=True)
    fine = Finding("drift", "ok", found="as proved")
    lost = Finding("psu-ac-lost", "fail", found="supply 2 without AC", action="ask facility")
    for name, driver in (("gpu1", "580.95.05"), ("gpu2", "580.95.05"), ("gpu3", "570.195.03")):
        save(inbox / f"{name}.json", driver, 60, fine)
    newer = save(tmp_path / "newer.json", "580.95.05", 30, lost)
    older = save(tmp_path / "older.json", "580.95.05", 90, lost)
    (site / "latest.json").write_text(json.dumps({"hosts": {"gpu1": older, "gpu4": newer}}))
    (inbox / "gpu5.json").write_text("<html>")

    done, hosts = report(tmp_path, "-e", '{"report_inbox": "in box"}')

    assert done.returncode == 2, done.stdout + done.stderr
    assert {name: host["state"] for name, host in hosts.items()} == {
        "gpu1": "ready", "gpu2": "ready", "gpu3": "ready", "gpu4": "not_ready", "gpu5": "unknown"
    }  # fmt: skip
    assert "driver 570.195.03 (expected 580.95.05, as 3 of 4 hosts alike)" in page_text(tmp_path)
    assert hosts["gpu4"]["source"] == "reports/site/latest.json"
    assert "3 of 5 hosts ready" in done.stdout
    assert "unreachable=0" in done.stdout
    # One host alone is judged by itself, and fine.
    assert report(tmp_path, "-e", '{"report_inbox": "in box"}', "--limit", "gpu1")[0].returncode == 0


def page_text(folder: Path) -> str:
    text = (folder / "reports" / "report" / "index.html").read_text()
    return text.replace('<span class="dim">', "").replace("\n", " ")


def test_a_missing_inbox_and_a_missing_inventory_fail(tmp_path):
    (tmp_path / "hosts").write_text(HOSTS)
    done, hosts = report(tmp_path, "-e", "report_inbox=nowhere")
    assert done.returncode == 2
    assert "report_inbox names a folder" in done.stdout + done.stderr
    assert not hosts
    (tmp_path / "hosts").unlink()
    assert report(tmp_path)[0].returncode == 1
