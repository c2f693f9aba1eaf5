# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate in a real Slurm: jobs refused and started elsewhere, nodes drained and cleared, and never a person's."""

from __future__ import annotations

import time

import pytest

from .conftest import FOLDER, HEALTH, OURS, Fleet

pytestmark = [pytest.mark.container, pytest.mark.needs("gcc")]
BROKEN = {"check": "gpu-count", "found": "7 of 8", "action": "replace"}
REASON = "gpufleet: gate: gpu-count: 7 of 8 -> replace"
GATE = "/usr/local/bin/gpufleet-gate"


@pytest.fixture(autouse=True)
def clean(installed: Fleet) -> None:
    """All nodes ready and idle, nothing remembered, and no health check but by hand."""
    fleet = installed

    def forget(name: str) -> None:
        fleet.slurm.on(name, "sh", "-c", "rm -rf /run/gpufleet/slurm-* /run/gpufleet/verdict.json")
        fleet.judge(name, "ready")

    fleet.slurm.each(forget)
    fleet.slurm.configure(*OURS)
    for name in fleet.drained():
        fleet.slurm.ctl("scontrol", "update", f"nodename={name}", "state=resume")
    fleet.slurm.until(lambda: {node["state"] for node in fleet.slurm.nodes().values()} == {"idle"})


def test_a_bad_node_is_refused_and_the_job_runs_on_a_good_one(fleet: Fleet) -> None:
    slurm = fleet.slurm
    slurm.on("n1", "gpusim-set", "gpu.2=@lost")
    assert "gpu-count: found 7, expected 8" in slurm.on("n1", "gpufleet-gate", "--fresh", check=False)
    slurm.on("n1", "gpusim-set", "gpu.2=ok")
    job, nodes, _seconds = fleet.run("--nodes=1")
    assert (nodes, slurm.job(job)["restarts"]) == ("n2", "1")
    assert slurm.on("n2", "cat", f"/tmp/{job}.out") == "n2"
    assert slurm.on("n1", "find", "/tmp", "-name", f"{job}.out") == "", "its first line ran"
    assert fleet.drained() == {"n1": "Prolog error"}
    (line,) = fleet.log("n1", f"job {job} ")
    assert line.startswith(f"job {job} was refused: not ready") and "gpu-count" in line

    # Slurm itself now runs the health program, which gives the drain its reason, and takes it back in the end.
    slurm.configure(*OURS, *HEALTH, "HealthCheckInterval=2")
    slurm.until(lambda: fleet.drained().get("n1", "").startswith("gpufleet: gate: "))
    assert "-> drain and inspect" in fleet.drained()["n1"]
    fleet.judge("n1", "ready")
    slurm.until(lambda: not fleet.drained())
    assert (slurm.node("n1")["state"], slurm.node("n1")["reason"]) == ("idle", "none")


def test_a_job_on_two_nodes_runs_on_good_ones_and_never_on_the_bad_one(fleet: Fleet) -> None:
    fleet.judge("n2", "not_ready", BROKEN)
    job, nodes, _seconds = fleet.run("--nodes=2")
    assert (fleet.slurm.job(job)["restarts"], nodes) == ("1", "n[3-4]")
    out = {name: fleet.slurm.on(name, "sh", "-c", f"cat /tmp/{job}.out || true") for name in fleet.slurm.names}
    # On n1, which was good, Slurm may have begun and ended the script: it hears that a Prolog is through, and only
    # then that it refused.
    assert (out["n2"], out["n3"], out["n4"]) == ("", "n3", "")


def test_what_is_slow_by_30_seconds_delays_no_job(fleet: Fleet) -> None:
    slurm = fleet.slurm
    _job, _nodes, usual = fleet.run("--nodelist=n1")
    # The look at the GPUs: no job waits for it.
    slurm.on("n1", "gpusim-set", "gpu.3.temperature.gpu_temp=@slow 30s 40")
    slurm.on("n1", "systemctl", "start", "--no-block", "gpufleet-gate.service")
    _job, _nodes, seconds = fleet.run("--nodelist=n1")
    slurm.on("n1", "gpusim-set", "gpu.3.temperature.gpu_temp=40 C")
    assert seconds < 2 * usual + 2
    # The gate itself, as on a disk that hangs: the job waits 4 s.
    slow = "printf '#!/bin/sh\nsleep 30\n' >/run/slow; chmod +x /run/slow; ln -sfn /run/slow "
    slurm.on("n1", "sh", "-c", slow + GATE)
    try:
        job, _nodes, seconds = fleet.run("--nodelist=n1")
    finally:
        slurm.on("n1", "ln", "-sfn", f"{FOLDER}/gpufleet-gate", GATE)
    assert seconds < 2 * usual + 8
    assert fleet.log("n1", f"job {job} was let pass, nothing is known of this host")
    assert not fleet.drained()


def test_a_drain_of_somebody_else_stays_as_it_is(fleet: Fleet) -> None:
    theirs = {"n1": "Ann swaps a cable", "n2": "gpufleet: rollout 7: change", "n3": "Prolog error"}
    for name, reason in theirs.items():
        fleet.drain(name, reason)
    for state in ("not_ready", "unknown", "ready"):
        for name in theirs:
            fleet.judge(name, state, *([BROKEN] if state == "not_ready" else []))
        fleet.check_all()
        assert fleet.drained() == theirs, state


def test_a_drain_that_a_person_took_over_stays(fleet: Fleet) -> None:
    fleet.judge("n1", "not_ready", BROKEN)
    fleet.check_all()
    assert fleet.drained() == {"n1": REASON}
    fleet.drain("n1", "mine now, Ann")
    fleet.judge("n1", "ready")
    fleet.check_all()
    assert fleet.drained() == {"n1": "mine now, Ann"}


def test_the_limit_holds_for_all_at_once_and_is_said_once(fleet: Fleet) -> None:
    slurm = fleet.slurm
    slurm.each(lambda name: fleet.judge(name, "not_ready", {**BROKEN, "found": "6 of 8"}))
    fleet.check_all()
    held = fleet.drained()
    assert list(held.values()) == [REASON.replace("7", "6")] * 2
    fleet.check_all()
    assert fleet.drained() == held
    left = [name for name in slurm.names if name not in held]
    for name in left:
        assert len(fleet.log(name, "at the limit of 2 drained nodes, for: gpufleet: gate: gpu-count: 6 of 8")) == 1
    # They stay in service: a Prolog that refused there would drain them all the same.
    job, _nodes, _seconds = fleet.run(f"--nodelist={left[0]}")
    assert fleet.log(left[0], f"job {job} was let pass at the limit of drained nodes")
    # One comes back, and one of those that waited takes its place.
    back = min(held)
    fleet.judge(back, "ready")
    slurm.on(back, f"{FOLDER}/slurm-health")
    fleet.check_all()
    assert len(fleet.drained()) == 2 and back not in fleet.drained()


def test_the_limit_holds_for_refused_jobs(fleet: Fleet) -> None:
    for name in ("n3", "n4"):
        fleet.drain(name, "gpufleet: rollout 7: change")
    fleet.judge("n1", "not_ready", BROKEN)
    job = fleet.slurm.submit("hostname", "--nodelist=n1")
    fleet.slurm.until(lambda: fleet.drained().get("n1") == "Prolog error")
    fleet.check_all()
    assert sorted(fleet.drained()) == ["n3", "n4"]
    fleet.slurm.until(lambda: fleet.slurm.job(job)["state"] == "COMPLETED", 90)


def test_what_drains_no_node(fleet: Fleet) -> None:
    fleet.judge("n1", "unknown", {**BROKEN, "state": "unknown"})
    fleet.judge("n2", "not_ready", {**BROKEN, "action": "none"})
    fleet.judge("n3", "ready", {**BROKEN, "policy": "report"})
    fleet.judge("n4", "ready", {**BROKEN, "state": "warn"})
    fleet.check_all()
    assert not fleet.drained()
    # Where the site wants it so, what is unknown drains too.
    fleet.slurm.on("n1", GATE, "slurm-health", "--limit=2", "--unknown=drain", "--scontrol=scontrol")
    assert fleet.drained() == {"n1": REASON}


#: What becomes of the verdict, by node.
SPOILT = {
    "n1": "rm -f verdict.json",
    "n2": "printf '{\"schema\": 1' >verdict.json",
    "n3": "rm -f verdict.json; mkfifo verdict.json",
    "n4": "rm -f verdict.json; mkdir verdict.json",
}


def test_without_a_verdict_nodes_stay_and_jobs_run(fleet: Fleet) -> None:
    fleet.slurm.each(lambda name: fleet.slurm.on(name, "sh", "-c", "cd /run/gpufleet; " + SPOILT[name]))
    fleet.check_all()
    job, _nodes, _seconds = fleet.run("--nodes=4")
    assert not fleet.drained()
    for name in SPOILT:
        assert fleet.log(name, f"job {job} was let pass, nothing is known of this host")


def test_without_slurm_the_health_program_ends_well_and_in_time(fleet: Fleet) -> None:
    slurm = fleet.slurm
    fleet.judge("n1", "not_ready", BROKEN)
    slurm.on("n1", "mv", "/usr/bin/scontrol", "/usr/bin/scontrol.away")
    try:
        slurm.on("n1", f"{FOLDER}/slurm-health")
    finally:
        slurm.on("n1", "mv", "/usr/bin/scontrol.away", "/usr/bin/scontrol")
    slurm.ctl("systemctl", "stop", "slurmctld")
    try:
        started = time.monotonic()
        slurm.on("n1", f"{FOLDER}/slurm-health")
        assert time.monotonic() - started < 60, "slurmd kills it then"
    finally:
        slurm.ctl("systemctl", "start", "slurmctld")
    assert len(fleet.log("n1", "Slurm does not show node n1")) == 2
