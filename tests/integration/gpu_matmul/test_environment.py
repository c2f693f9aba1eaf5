# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real environments that are broken or not the planned one: the proof fails and says which file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import NOT_READY, fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.prove import Settings, prove


def failed(python, plan=None, **settings):
    """The failed findings of a proof, by check."""
    _proof, findings = prove(Settings(python=str(python), plan=plan, cpu_workers=1, **settings))
    assert fold(findings) == NOT_READY
    return {finding.check: finding for finding in findings if finding.state == "fail"}


@pytest.mark.parametrize("name", ["libtorch_cpu.so", "libc10.so", "libtorch_global_deps.so"])
def test_a_deleted_shared_object_is_named(damaged_venv, name):
    victim = next(damaged_venv.glob(f"lib/python3.11/site-packages/torch/lib/{name}"))
    victim.unlink()
    found = failed(damaged_venv / "bin/python")
    assert str(victim) in found["environment-files"].found
    assert Path(found["torch-import"].evidence["library"]).name == name


def test_a_truncated_shared_object_is_named(damaged_venv):
    victim = next(damaged_venv.glob("lib/python3.11/site-packages/torch/lib/libtorch_python.so"))
    victim.unlink()
    victim.write_bytes(b"\x7fELF")
    found = failed(damaged_venv / "bin/python")
    assert f"{victim} has another size" in found["environment-files"].found
    assert Path(found["torch-import"].evidence["library"]).name == "libtorch_python.so"


def test_a_shared_object_that_the_import_does_not_need_is_missed_too(damaged_venv):
    victim = next(damaged_venv.glob("lib/python3.11/site-packages/torch/lib/libtorchbind_test.so"))
    victim.unlink()
    found = failed(damaged_venv / "bin/python")
    assert set(found) == {"environment-files"} and str(victim) in found["environment-files"].found


def test_an_environment_without_torch(damaged_venv):
    shutil.rmtree(damaged_venv / "lib/python3.11/site-packages/torch")
    found = failed(damaged_venv / "bin/python")
    assert found["torch-import"].found == "ModuleNotFoundError: No module named 'torch'"


@pytest.mark.parametrize("content", [None, "not a program", "#!/nowhere/python\n", "#!/bin/sh\nexit 3\n"])
def test_an_interpreter_that_does_not_start(tmp_path, content):
    python = tmp_path / "a b" / "python"
    if content is not None:
        python.parent.mkdir()
        python.write_text(content)
        python.chmod(0o755)
    found = failed(python)
    assert set(found) == {"environment-python"} and str(python) in found["environment-python"].found


def test_an_import_that_does_not_end(damaged_venv):
    init = damaged_venv / "lib/python3.11/site-packages/torch/__init__.py"
    init.unlink()
    init.write_text("import time\ntime.sleep(1000)\n")
    found = failed(damaged_venv / "bin/python", import_timeout=3)
    assert "within its time limit" in found["torch-import"].found


def test_another_build_than_planned(torch_python):
    plan = {"accelerator": "cuda", "torch": {"version": "2.13.0", "variant": "cu130"}}
    found = failed(torch_python, plan)
    assert "2.13.0+cpu" in found["wheel-as-planned"].found and "cu130" in found["wheel-as-planned"].expected
    assert found["proof-device"].found == "torch sees no GPU: torch 2.13.0+cpu is built without CUDA"


def test_a_library_from_elsewhere_is_named(torch_python, damaged_venv, monkeypatch):
    own = damaged_venv / "lib/python3.11/site-packages/torch/lib/libc10.so"
    other = damaged_venv / "elsewhere/libc10.so"
    other.parent.mkdir()
    shutil.copy(own, other)
    monkeypatch.setenv("LD_PRELOAD", str(other))
    found = failed(torch_python)
    assert str(other) in found["torch-libraries"].found
    assert "LD_LIBRARY_PATH" in found["torch-libraries"].reason
