# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_limits on a simulated machine: check, real, again, again in check mode; and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GPUSIM = ROOT / "tests/simulator/gpusim"
#: Runs the module as often as asked, in one simulated machine with /run and /etc/systemd of its own.
SCRIPT = """
import json, os, subprocess, sys
for folder in ("/run", "/etc/systemd"):
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
os.makedirs("/run/systemd/system")
runs = json.loads(sys.argv[1])
unit = "/etc/systemd/system/gpufleet-gpu-limits.service"
for run in runs:
    held = None
    if run.pop("held", False):
        held = subprocess.Popen(["sleep", "60"], stdin=os.open("/dev/nvidia0", os.O_PATH))
    code = (
        "from ansible_collections.gpufleet.pytorch.plugins.modules import gpu_limits\\n"
        "from ansible.module_utils import basic\\n"
        f"basic._ANSIBLE_ARGS = {json.dumps({'ANSIBLE_MODULE_ARGS': run})!r}.encode()\\n"
        "basic._ANSIBLE_PROFILE = 'legacy'\\n"
        "gpu_limits.main()\\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if held:
        held.kill()
        held.wait()
    answer = json.loads(done.stdout or json.dumps({"msg": done.stderr}))
    query = ["nvidia-smi", "--query-gpu=power.limit,persistence_mode", "--format=csv,noheader,nounits"]
    answer["smi"] = subprocess.run(query, capture_output=True, text=True).stdout.splitlines()
    answer["unit"] = open(unit).read() if os.path.exists(unit) else None
    answer["enabled"] = os.path.exists(unit.replace("system/", "system/multi-user.target.wants/", 1))
    print(json.dumps(answer), flush=True)
"""
WISH: dict[str, t.Any] = {"power_limit": 500, "persistence": True, "clocks": [1200, 1500]}
CHECK = {"_ansible_check_mode": True}


def simulated(profile: str, *runs: t.Mapping[str, t.Any], settings: t.Sequence[str] = ()) -> list[dict[str, t.Any]]:
    command = [sys.executable, str(GPUSIM), "--profile", profile]
    command += [word for setting in settings for word in ("--set", setting)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", SCRIPT, json.dumps(runs)],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        timeout=120,
    )
    if done.returncode == 125:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.needs("gcc")
def test_check_real_again_and_taken_away() -> None:
    runs = [{**WISH, **CHECK}, WISH, WISH, {**WISH, **CHECK}, {}, {}]
    predicted, real, again, checked, away, gone = simulated("h100-sxm", *runs, settings=["persistence_mode=Disabled"])
    assert [run["changed"] for run in (predicted, real, again, checked, away, gone)] == [
        True,
        True,
        False,
        False,
        True,
        False,
    ]
    assert predicted["smi"] == ["700.00, Disabled"] * 8
    assert predicted["unit"] is None
    assert predicted["changes"] == real["changes"]
    assert predicted["diff"] == real["diff"]
    assert [(change["setting"], len(change["gpus"]), change["after"]) for change in real["changes"]] == [
        ("persistence", 8, "on"),
        ("power limit", 8, "500 W"),
        ("clocks", 8, "1200 to 1500 MHz"),
    ]
    assert real["smi"] == ["500.00, Enabled"] * 8
    assert [finding["state"] for run in (predicted, real, again) for finding in run["findings"]] == [
        "unknown",
        "ok",
        "ok",
    ]
    starts = [line for line in real["unit"].splitlines() if line.startswith("ExecStart")]
    assert [line.split("nvidia-smi ")[1] for line in starts] == ["-pm 1", "-pl 500", "-lgc 1200,1500"]
    assert real["enabled"]
    # Nothing is wanted any more: the unit goes, the GPUs keep what they have until they start again.
    assert (away["unit"], away["enabled"], away["smi"]) == (None, False, real["smi"])


@pytest.mark.needs("gcc")
def test_what_is_refused_changes_nothing() -> None:
    runs: list[dict[str, t.Any]] = [
        {"power_limit": 900},
        {"power_limit": 650, "held": True},
        {"clocks": [1200, 9000], "power_limit": 650},
        {"clocks": [1500]},
        {"power_limit": 650, "held": True, "when_busy": "proceed"},
    ]
    *refused, proceeded = simulated("h100-sxm", *runs)
    words = [
        "takes 200 to 700 W, and 900 W is wanted",
        "sleep (pid",
        "1980 MHz at most, and 9000",
        "lowest and the highest",
    ]
    for run, word in zip(refused, words, strict=True):
        assert (run.get("failed"), word in run["msg"], "nothing was set" in run["msg"]) == (True, True, True), run[
            "msg"
        ]
        assert {line.split(",")[0] for line in run["smi"]} == {"700.00"}
        assert run["unit"] is None
    assert proceeded["changed"]
    assert {line.split(",")[0] for line in proceeded["smi"]} == {"650.00"}


@pytest.mark.needs("gcc")
def test_a_gpu_that_is_lost() -> None:
    (run,) = simulated("h100-sxm", {"power_limit": 500}, settings=["gpu.3=@lost"])
    assert (run["failed"], "GPU 3 does not answer" in run["msg"]) == (True, True), run["msg"]
