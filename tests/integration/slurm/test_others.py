# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else asks the gate on a host, real too: NHC, systemd, and Prometheus' own parser of what is written for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import images

from .conftest import METRICS, Fleet

pytestmark = [pytest.mark.container, pytest.mark.needs("gcc")]
BROKEN = {"check": "gpu-count", "found": '7 of 8; it\'s "gone"', "action": "replace"}
PARSE = """
import sys
from prometheus_client.parser import text_string_to_metric_families as parse
for family in parse(open(sys.argv[1]).read()):
    for sample in family.samples:
        print(family.type, sample.name, *sorted(sample.labels.items()), int(sample.value))
"""
#: NHC's own functions, as far as a check uses them.
BARE = 'die() { shift; echo "$*"; exit 3; }; source /etc/nhc/scripts/gpufleet.nhc; check_gpufleet '
UNIT = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"


def test_metrics_are_written_after_each_look_and_parsed(installed: Fleet) -> None:
    on = installed.slurm.on
    on("n1", "rm", "-f", METRICS)
    on("n1", "systemctl", "start", "gpufleet-gate.service")
    told = on("n1", "python3", "-c", PARSE, METRICS).splitlines()
    assert "gauge gpufleet_ready 0" in told
    assert "gauge gpufleet_state ('state', 'unknown') 1" in told, "a host that was never proved"
    assert sum("('check', 'never-proved')" in line for line in told) == 1
    assert on("n1", "stat", "-c", "%U %a", METRICS) == "root 644"
    assert on("n1", "ls", "-A", os.path.dirname(METRICS)) == "gpufleet.prom", "nothing half written is left"
    installed.judge("n1", "not_ready", BROKEN)
    on("n1", "gpufleet-gate", "metrics", f"--to={METRICS}")
    told = on("n1", "python3", "-c", PARSE, METRICS).splitlines()
    assert "gauge gpufleet_findings ('policy', 'block') ('state', 'fail') 1" in told
    assert any(line.startswith("gauge gpufleet_verdict_timestamp_seconds 1") for line in told)


def test_a_unit_starts_on_a_host_that_is_ready_only(installed: Fleet) -> None:
    on = installed.slurm.on
    on("n1", "sh", "-c", f"printf '{UNIT}' >/etc/systemd/system/training.service; systemctl daemon-reload")
    # It looks itself: this host was never proved.
    assert "failed" in on("n1", "sh", "-c", "systemctl start training.service 2>&1 || true")
    assert "never-proved" in on("n1", "journalctl", "-u", "training.service", "-o", "cat", "-q")
    # With a look that leaves the verdict as it is.
    blind = "/run/systemd/system/gpufleet-gate.service.d"
    text = "[Service]\\nExecStart=\\nExecStart=/bin/true\\n"
    on("n1", "sh", "-c", f"mkdir -p {blind}; printf '{text}' >{blind}/blind.conf; systemctl daemon-reload")
    try:
        installed.judge("n1", "ready")
        on("n1", "systemctl", "start", "training.service")
        assert on("n1", "systemctl", "is-active", "training.service") == "active"
    finally:
        on("n1", "sh", "-c", f"rm -r {blind}; systemctl daemon-reload")


@pytest.mark.parametrize(
    ("state", "option", "says"),
    [
        ("ready", "--unknown", ""),
        ("not_ready", "", "check_gpufleet:  not ready fail gpu-count: 7 of 8; its gone -> replace"),
        ("unknown", "", ""),
        ("unknown", "--unknown", "check_gpufleet:  unknown"),
    ],
)
def test_the_check_of_nhc(installed: Fleet, state: str, option: str, says: str) -> None:
    installed.judge("n1", state, *([BROKEN] if state == "not_ready" else []))
    told = installed.slurm.on("n1", "bash", "-c", BARE + option, check=False)
    assert told.strip() == says


def test_the_check_in_nhc_itself(installed: Fleet) -> None:
    """NHC is no package of Debian's: GPUFLEET_NHC names a checkout of it."""
    source = Path(os.environ.get("GPUFLEET_NHC", "/nonexistent"))
    if not (source / "nhc").is_file():
        pytest.skip("GPUFLEET_NHC names no checkout of LBNL NHC")
    slurm = installed.slurm
    box = slurm.boxes["n1"]
    slurm.on("n1", "mkdir", "-p", "/usr/libexec")
    for what, where in (("nhc", "/usr/sbin/nhc"), ("helpers", "/usr/libexec/nhc"), ("scripts/.", "/etc/nhc/scripts")):
        images.podman("cp", f"{source}/{what}", f"{box}:{where}")
    slurm.on("n1", "sh", "-c", "echo '* || check_gpufleet' >/etc/nhc/nhc.conf")
    run = "nhc -l - NHC_RM=slurm MARK_OFFLINE=0; echo exit $?"
    installed.judge("n1", "not_ready", BROKEN)
    told = slurm.on("n1", "bash", "-c", run)
    assert "check_gpufleet:  not ready fail gpu-count" in told and told.endswith("exit 1")
    installed.judge("n1", "ready")
    assert slurm.on("n1", "bash", "-c", run) == "exit 0"
