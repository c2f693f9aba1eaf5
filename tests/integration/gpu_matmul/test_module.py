# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module through Ansible: what is a failed task, what is a finding, and what a stopped task leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ansible.module_utils import basic

from ansible_collections.gpufleet.pytorch.plugins.modules import gpu_matmul

ROOT = Path(__file__).resolve().parents[3]
CUDA_PLAN = {"accelerator": "cuda", "torch": {"version": "2.13.0", "variant": "cu130"}}


def command(python, **options):
    arguments = {"python": python, **options}
    return [
        *("ansible", "localhost", "-c", "local", "-i", "localhost,", "-m", "gpufleet.pytorch.gpu_matmul"),
        *("-e", f"ansible_python_interpreter='{sys.executable}'", "-a", json.dumps(arguments)),
    ]


def environ():
    return {
        **os.environ,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
    }


def run(python, *more, **options):
    """Whether the task failed, and its result."""
    done = subprocess.run(
        [*command(python, **options), *more], env=environ(), capture_output=True, text=True, timeout=300, check=False
    )
    head, _separator, body = done.stdout.partition("=>")
    assert body, done.stdout + done.stderr
    return "FAILED" in head, json.loads(body)


@pytest.fixture
def call(monkeypatch, capsys):
    """The module's own code in this process, which Ansible's start of every single one would slow down tenfold."""

    def run_here(python, check=False, **options):
        arguments = {"ANSIBLE_MODULE_ARGS": {"python": python, "_ansible_check_mode": check, **options}}
        monkeypatch.setattr(basic, "_ANSIBLE_ARGS", json.dumps(arguments).encode())
        monkeypatch.setattr(basic, "_ANSIBLE_PROFILE", "legacy")
        with pytest.raises(SystemExit):
            gpu_matmul.main()
        result = json.loads(capsys.readouterr().out)
        return bool(result.get("failed")), result

    return run_here


def test_a_proof_changes_nothing_and_tells_what_it_ran_on(torch_python):
    failed, result = run(torch_python, cpu_workers=1, device="cpu")
    assert not failed and not result["changed"]
    assert {finding["state"] for finding in result["findings"]} == {"ok"}
    assert result["proof"]["devices"][0]["kind"] == "cpu"
    assert all(finding["observed_at"] for finding in result["findings"])


def test_check_mode_runs_nothing_and_says_so(call, tmp_path):
    failed, result = call(str(tmp_path / "no/python"), check=True, plan=CUDA_PLAN)
    (finding,) = result["findings"]
    assert not failed and (finding["state"], finding["policy"]) == ("unknown", "block")
    assert finding["evidence"] == {"check_mode": True}
    assert finding["found"].startswith("check mode: nothing was run; a proof of level quick would run on every GPU")


def test_a_missing_interpreter_is_a_finding(call, tmp_path):
    failed, result = call(str(tmp_path / "no python"))
    (finding,) = result["findings"]
    assert not failed and (finding["check"], finding["state"]) == ("environment-python", "fail")


@pytest.mark.parametrize(
    "mode, says", [(None, "is not there"), (0o644, "is there, but user"), (0o40755, "is a folder")]
)
def test_an_interpreter_that_cannot_be_started_is_told_as_it_is(call, tmp_path, mode, says):
    python = tmp_path / "python"
    if mode == 0o40755:
        python.mkdir()
    elif mode:
        python.write_text("#!/bin/sh\n")
        python.chmod(mode)
    _failed, result = call(str(python))
    (finding,) = result["findings"]
    assert finding["found"].startswith(f"{python} {says}") and finding["action"] == "fix configuration"


@pytest.mark.parametrize(
    "dtypes, checks",
    [
        (["tf32"], {"proof-dtypes": "unknown"}),
        (["int8"], {"matmul-exact": "ok", "matmul-run": "ok", "matmul-rate": "not_applicable"}),
        (["tf32", "float32"], {"proof-dtypes": "not_applicable", "matmul-exact": "ok", "matmul-rate": "ok"}),
    ],
)
def test_types_of_gpus_on_a_cpu(call, torch_python, dtypes, checks, monkeypatch):
    """And nothing of what a user's login leaves in the environment stops a proof on the CPU."""
    monkeypatch.setenv("HOME", "/proc/nobody")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "garbage,,GPU-nope,-1")
    _failed, result = call(torch_python, cpu_workers=1, device="cpu", dtypes=dtypes)
    states = {finding["check"]: finding["state"] for finding in result["findings"]}
    assert checks.items() <= states.items()
    assert {finding["action"] for finding in result["findings"]} <= {"none", "fix configuration"}


def test_a_gpu_plan_is_never_proved_on_the_cpu(call, torch_python):
    failed, result = call(torch_python, plan=CUDA_PLAN)
    assert not failed and result["proof"]["devices"] == []
    states = {finding["check"]: finding["state"] for finding in result["findings"]}
    assert states["proof-device"] == states["wheel-as-planned"] == "fail"


@pytest.mark.parametrize(
    "options, says",
    [
        ({"python": "bin/python"}, "pytorch_python needs an absolute path, found 'bin/python'"),
        ({"python": "-rf"}, "pytorch_python needs an absolute path, found '-rf'"),
        ({"venv": "$NOSUCH/x"}, "found '$NOSUCH/x', and this host has no variable $NOSUCH"),
        ({"timeout": "inf"}, "verify_timeout needs a number of seconds from 0 to 2592000, found inf"),
        ({"timeout": "nan"}, "verify_timeout needs a number of seconds from 0 to 2592000, found nan"),
        ({"timeout": -1}, "verify_timeout needs a number of seconds from 0 to 2592000, found -1.0"),
        ({"import_timeout": 1e300}, "verify_import_timeout needs a number of seconds from 1 to 2592000, found 1e+300"),
        ({"import_timeout": 0}, "verify_import_timeout needs a number of seconds from 1 to 2592000, found 0.0"),
        ({"device": "cpu", "plan": CUDA_PLAN}, "device is cpu, but the plan says accelerator cuda"),
        ({"cpu_workers": 0}, "verify_cpu_workers needs a number of processes from 1 to 1024, found 0"),
        ({"memory": 100}, "verify_memory needs a number of percent from 0 to 95, found 100"),
        ({"dtypes": ["float12"]}, "value of dtypes must be one or more of"),
        ({"level": "0"}, "value of level must be one of: quick, standard, burnin"),
        ({"device": "GPU-00000000-0000-0000-0000-000000000000"}, "value of device must be one of: auto, cuda, cpu"),
        ({"cpu_workers": -1}, "verify_cpu_workers needs a number of processes from 1 to 1024, found -1"),
        ({"cpu_workers": 10**30}, "verify_cpu_workers needs a number of processes from 1 to 1024, found 1000000"),
        ({"memory": -1}, "verify_memory needs a number of percent from 0 to 95, found -1"),
        ({"at_once": -1}, "verify_at_once needs a number of hosts from 0 to 1000000, found -1"),
        ({"engine": "lxc", "image": "i"}, "value of engine must be one of: podman, docker, enroot"),
        ({"plan": {"accelerator": "tpu"}}, "the plan has accelerator 'tpu'"),
        ({"plan": {"accelerator": "cuda", "torch": "2.13"}}, "the plan has torch '2.13'"),
        ({"image": "-v/:/host"}, "pytorch_image needs the name of an image, found '-v/:/host'"),
    ],
)
def test_misuse_fails_the_task(call, options, says):
    failed, result = call(**{"python": "/usr/bin/python3", **options})
    assert failed and says in result["msg"]


def test_an_interrupted_task_leaves_no_worker(tmp_path):
    """Control-C while the import of torch lasts for ever."""
    slow = tmp_path / "bin/python"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec {sys.executable} -I -c "import time; time.sleep(600)"\n'
    )
    slow.chmod(0o755)
    task = subprocess.Popen(
        command(str(slow), device="cpu", import_timeout=500), env=environ(), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    pids = tmp_path / "pids"
    assert wait_for(lambda: pids.exists() and pids.read_text().strip())
    os.killpg(task.pid, signal.SIGINT)
    task.wait(60)
    assert wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.read_text().split()))


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_no_load_is_put_on_a_host_that_has_lost_a_supply(call, tmp_path):
    """The interpreter is not there, so that a proof would say something else."""
    lost = {"check": "psu-ac-lost", "state": "warn", "found": "supply 2 has no input"}
    failed, result = call(
        str(tmp_path / "no/python"), unless=[lost, {"check": "other", "state": "fail"}], unless_checks=["psu-ac-lost"]
    )
    (finding,) = result["findings"]
    assert not failed and (finding["check"], finding["state"]) == ("matmul-run", "unknown")
    assert "supply 2 has no input" in finding["found"]
