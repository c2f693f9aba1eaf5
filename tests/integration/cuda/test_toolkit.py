# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kernel compiled by the real nvcc of the wheels that a plan names, and what is said where that fails."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import shadows as shadow_checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import toolkit as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import runner, shadows, toolkits
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat.packages import toolkit_wheels
from ansible_collections.gpufleet.pytorch.tests.containers import images

pytestmark = pytest.mark.needs("g++")
VERSION = "13.0"


@pytest.fixture(scope="module")
def prefix() -> Path:
    """An environment with the toolkit's wheels, made once and kept: 115 MB of the index."""
    place = images.cache_dir() / f"toolkit-{VERSION}"
    with open(f"{place}.lock", "w", encoding="utf-8") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        if not (place / "whole").exists():
            # torch requires the runtime.
            wheels = [*toolkit_wheels(VERSION), f"nvidia-cuda-runtime=={VERSION}.*"]
            target = place / "lib/python3.11/site-packages"
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-input",
                "--upgrade",
                "--target",
                str(target),
            ]
            subprocess.run([*pip, *wheels], check=True, timeout=300)
            (place / "whole").touch()
    return place


@pytest.fixture(scope="module")
def nvcc(prefix: Path) -> str:
    """The folder of the wheels' toolkit, as it is found."""
    (found,) = (one for one in toolkits.toolkits(runner.Runner(), str(prefix)) if one["packaged"] == "wheels")
    assert found["version"] == VERSION
    assert found["path"] == str(prefix / "lib/python3.11/site-packages/nvidia/cu13")
    return str(found["path"])


@pytest.mark.parametrize(
    ("capabilities", "path", "state", "found", "reason"),
    [
        (["9.0"], None, "ok", "compiles a kernel for compute capability 9.0", ""),
        (["6.0"], None, "fail", "Unsupported gpu architecture 'compute_60'", "the plan names one that does"),
        ([], "/nowhere", "fail", "gcc: No such file or directory", "cuda_compiler: true installs gcc and g++"),
    ],
)
def test_a_kernel_is_compiled(nvcc, tmp_path, monkeypatch, capabilities, path, state, found, reason):
    if path:
        monkeypatch.setenv("PATH", path)
    result = toolkits.compiled(runner.Runner(), nvcc, capabilities, str(tmp_path))
    finding = checks.compiles(result, nvcc, capabilities)
    assert (finding.state, found in finding.found) == (state, True), finding
    assert reason in finding.reason


def test_a_compiler_that_is_too_new_is_named(nvcc, tmp_path):
    """A g++ that calls itself 99, in the way of the real one."""
    fake = tmp_path / "bin" / "g++"
    fake.parent.mkdir()
    for name in ("gcc", "g++"):
        (fake.parent / name).write_text(f'#!/bin/sh\nexec /usr/bin/{name} -U__GNUC__ -D__GNUC__=99 "$@"\n')
        (fake.parent / name).chmod(0o755)
    env = {"PATH": f"{fake.parent}:/usr/bin:/bin"}
    finding = checks.compiles(toolkits.compiled(runner.Runner(env=env), nvcc, [], str(tmp_path)), nvcc, [])
    assert finding.state == "fail"
    assert "unsupported GNU version! gcc versions later than" in finding.found
    assert finding.reason.startswith("another host compiler")


def test_the_module_compiles_with_the_planned_version(prefix: Path) -> None:
    def run(**options: t.Any) -> t.Any:
        script = (
            "from ansible_collections.gpufleet.pytorch.plugins.modules import cuda_toolkit\n"
            "from ansible.module_utils import basic\n"
            f"basic._ANSIBLE_ARGS = {json.dumps({'ANSIBLE_MODULE_ARGS': options}).encode()!r}\n"
            "basic._ANSIBLE_PROFILE = 'legacy'\n"
            "cuda_toolkit.main()\n"
        )
        env = {"PYTHONPATH": ":".join(entry for entry in sys.path if entry), "PATH": "/usr/bin:/bin", "HOME": "/root"}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, env=env, timeout=120)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return {item["check"]: (item["state"], item["reason"]) for item in told["findings"]}

    assert run(version=VERSION, venv=str(prefix)) == {"cuda-toolkit": ("ok", ""), "cuda-compiles": ("ok", "")}
    missing = run(version="12.8", source="pip", venv=str(prefix), headers=True)
    assert missing["cuda-toolkit"] == ("fail", "the wheels of CUDA 12 hold no nvcc: cuda_from: packages")
    assert missing["python-headers"][0] == "fail"  # this prefix has no interpreter


def test_the_wheels_are_no_double_and_no_shadow(prefix: Path) -> None:
    assert shadow_checks.doubled(shadows.doubled(runner.Runner(), str(prefix)), "python")[0].state == "ok"
    assert not any(str(prefix) in str(one["folder"]) for one in shadows.probe(runner.Runner()))
