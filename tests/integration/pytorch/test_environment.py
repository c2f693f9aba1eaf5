# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment from nothing, again, changed, damaged and killed: with the real pip and tiny wheels."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import subprocess
import time
import typing as t
from pathlib import Path

import pytest

from .conftest import Host, Index, build_torch, build_wheel, tree


def test_from_nothing_and_again(host: Host, index: Index) -> None:
    first = host.run(index_url=index.url)
    assert first["changed"] and first["packages"] == {"sympy": "1.14.0", "torch": "2.9.0+cpu"}
    assert host.installed() == {"sympy": "1.14.0", "torch": "2.9.0+cpu"}
    assert [finding["state"] for finding in first["findings"]] == ["ok"]
    before, index.asked = tree(host.venv), []
    second = host.run(index_url=index.url)
    assert not second["changed"] and second["lock"] == first["lock"]
    assert tree(host.venv) == before and index.asked == []


def test_check_mode_predicts_and_writes_nothing(host: Host, index: Index) -> None:
    predicted = host.run(index_url=index.url, _ansible_check_mode=True, _ansible_diff=True)
    assert not host.venv.exists() and not host.store.exists()
    (finding,) = predicted["findings"]
    assert (finding["state"], finding["policy"]) == ("unknown", "block") and finding["evidence"]["check_mode"] is True
    assert finding["found"] == "check mode: nothing was installed; torch 2.9.0+cpu and 1 more packages would be"
    done = host.run(index_url=index.url, _ansible_diff=True)
    assert predicted["changed"] and predicted["diff"] == done["diff"]
    assert done["diff"]["after"] == "sympy==1.14.0\ntorch==2.9.0+cpu\n"
    again = host.run(index_url=index.url, _ansible_check_mode=True)
    assert not again["changed"] and [item["state"] for item in again["findings"]] == ["ok"]


def test_paths_of_any_kind(host: Host, index: Index) -> None:
    name = "space, quote' and ü"
    host.venv, host.store = host.folder / name / "venv", host.folder / name / "store"
    assert host.run(index_url=index.url)["changed"]
    assert "torch" in host.installed()


def test_the_next_host_needs_no_index(host: Host, index: Index) -> None:
    host.run(index_url=index.url)
    index.asked = []
    host.venv = host.folder / "next"
    assert host.run(index_url=index.url)["changed"]
    assert index.asked == [] and host.installed()["torch"] == "2.9.0+cpu"


def test_wheels_put_into_the_store_need_no_index(host: Host, wheels: Path) -> None:
    shutil.copytree(wheels, host.store)
    answer = host.run(index_url="http://127.0.0.1:9/simple")
    assert answer["changed"] and "127.0.0.1:9" in str(answer["warnings"])
    assert host.installed()["torch"] == "2.9.0+cpu"


def test_new_wish_keeps_what_the_user_added(host: Host, index: Index, wheels: Path) -> None:
    host.run(index_url=index.url)
    extra = build_wheel(host.folder / "extra", "mine", "1.0")
    subprocess.run([host.venv / "bin/pip", "install", "-q", "--no-deps", "--no-index", extra], check=True)
    build_torch(wheels, "2.9.1+cpu")
    build_wheel(wheels, "numpy", "1.26.0")
    build_wheel(wheels, "numpy", "2.0.0")
    plan = {"torch": {"version": "2.9.1", "variant": "cpu", "python_packages": {"numpy": "<2"}}}
    answer = host.run(index_url=index.url, plan=plan, packages=["numpy"], _ansible_diff=True)
    assert answer["changed"]
    assert host.installed() == {"mine": "1.0", "numpy": "1.26.0", "sympy": "1.14.0", "torch": "2.9.1+cpu"}
    assert "torch==2.9.0+cpu" in answer["diff"]["before"] and "torch==2.9.1+cpu" in answer["diff"]["after"]


def test_companions_come_in_the_planned_release(host: Host, index: Index, wheels: Path) -> None:
    build_wheel(wheels, "torchvision", "0.24.0+cpu")
    build_wheel(wheels, "torchvision", "0.25.0+cpu")
    plan = {"torch": {"version": "2.9.0", "variant": "cpu", "torchvision": "0.24.0"}}
    assert host.run(index_url=index.url, plan=plan, packages=["torchvision"])["packages"]["torchvision"] == "0.24.0+cpu"


def test_lock_installs_exactly_that(host: Host, index: Index, wheels: Path) -> None:
    lock = host.run(index_url=index.url)["lock"]
    build_wheel(wheels, "sympy", "1.15.0")
    host.venv, host.store = host.folder / "other", host.folder / "other-store"
    assert host.run(index_url=index.url)["packages"]["sympy"] == "1.15.0"
    host.venv, host.store = host.folder / "third", host.folder / "third-store"
    assert host.run(index_url=index.url, lock=lock)["lock"] == lock
    assert host.installed()["sympy"] == "1.14.0"


def _cut(venv: Path) -> None:
    path = next(venv.glob("lib/*/site-packages/torch/lib/libtorch_cpu.so"))
    path.write_bytes(path.read_bytes()[:-1])


#: What somebody or something did to the environment, and what the answer names.
DAMAGES: dict[str, tuple[t.Callable[[Path], None], str]] = {
    "shared object deleted": (
        lambda venv: next(venv.glob("lib/*/site-packages/torch/lib/libtorch_cpu.so")).unlink(),
        "torch/lib/libtorch_cpu.so",
    ),
    "file cut short": (_cut, "torch/lib/libtorch_cpu.so"),
    "record deleted": (lambda venv: next(venv.glob("lib/*/site-packages/torch-*/RECORD")).unlink(), "RECORD"),
    "package deleted": (lambda venv: shutil.rmtree(next(venv.glob("lib/*/site-packages/sympy-1.14.0.dist-info"))), ""),
    "interpreter deleted": (lambda venv: (venv / "bin/python").unlink(), ""),
    "interpreter points nowhere": (
        lambda venv: [link.unlink() or link.symlink_to("/nonexistent") for link in venv.glob("bin/python*")] and None,
        "",
    ),
    "interpreter is a folder": (
        lambda venv: (venv / "bin/python").unlink() or (venv / "bin/python").symlink_to("/tmp"),
        "",
    ),
    "pyvenv.cfg deleted": (lambda venv: (venv / "pyvenv.cfg").unlink(), ""),
    "other version by hand": (
        lambda venv: (
            subprocess.run(
                [venv / "bin/pip", "install", "-q", "--no-index", build_wheel(venv.parent / "hand", "sympy", "1.15.0")],
                check=True,
            )
            and None
        ),
        "",
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """An environment that each test damages and the module repairs."""
    host = Host(tmp_path_factory.mktemp("made"))
    build_torch(host.store)
    build_wheel(host.store, "sympy", "1.14.0")
    assert host.run()["changed"]
    return host


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_and_repaired(made: Host, damage: str) -> None:
    whole = set(tree(made.venv))
    act, named = DAMAGES[damage]
    act(made.venv)
    answer = made.run()
    assert answer["changed"], answer
    assert named in str(answer["repaired"])
    assert made.installed() == {"sympy": "1.14.0", "torch": "2.9.0+cpu"}
    assert {path for path in whole if "__pycache__" not in path} <= set(tree(made.venv))
    assert not made.run()["changed"]


#: The file whose appearance is the moment of the kill.
MOMENTS = {
    "download": "store/.work/*/tmp/**/*.whl",
    "marked, still empty": "venv/gpufleet-environment.json",
    "interpreter made": "venv/bin/python",
    "half unpacked": "venv/lib/*/site-packages/torch/part_10*.py",
    "all unpacked": "venv/lib/*/site-packages/torch-*/METADATA",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_work_converges(host: Host, index: Index, wheels: Path, moment: str) -> None:
    build_torch(wheels, files=1500, size=2000)
    first = host.run(index_url=index.url, wait=0.01, job="first")
    assert not first["finished"]
    while not any(host.folder.glob(MOMENTS[moment])):
        assert not any(host.store.glob(".work/*/result.json")), "the work ended before the moment"
        time.sleep(0.001)
    (progress,) = host.store.glob(".work/*/progress.json")
    worker = int(progress.read_text().split('"pid": ')[1].split(",")[0])
    os.killpg(os.getpgid(worker), signal.SIGKILL)
    assert "killed" in host.fails(index_url=index.url, wait=20, job="first")
    again = host.run(index_url=index.url)
    assert again["changed"] and host.installed() == {"sympy": "1.14.0", "torch": "2.9.0+cpu"}
    assert len(list(host.venv.glob("lib/*/site-packages/torch/part_*.py"))) == 1500
    assert not host.run(index_url=index.url)["changed"]
    assert not any(host.store.glob(".work/*/tmp/*"))


def test_worker_alone_killed_pip_keeps_the_lock(host: Host, index: Index, wheels: Path) -> None:
    build_torch(wheels, files=3000, size=2000)
    host.run(index_url=index.url, wait=0.01, job="first")
    while not any(host.folder.glob(MOMENTS["half unpacked"])):
        time.sleep(0.001)
    (progress,) = host.store.glob(".work/*/progress.json")
    os.kill(int(progress.read_text().split('"pid": ')[1].split(",")[0]), signal.SIGKILL)
    # A second pip beside the one that lives on would be two writers of the same files.
    assert "is at work" in host.fails(index_url=index.url)
    while "is at work" in str(host.run(index_url=index.url).get("msg")):
        time.sleep(0.05)
    assert host.installed()["torch"] == "2.9.0+cpu"


def test_a_second_run_joins_the_first(host: Host, index: Index, wheels: Path) -> None:
    build_torch(wheels, files=1500, size=2000)
    runs = [host.start(index_url=index.url, wait=60, job=name) for name in ("one", "two")]
    answers = [json.loads(run.communicate()[0]) for run in runs]
    done = [answer for answer in answers if answer.get("finished", True)]
    assert [answer["changed"] for answer in done].count(True) == 1
    assert not host.run(index_url=index.url)["changed"]


def test_nothing_is_replaced_under_a_running_process(host: Host, index: Index, wheels: Path) -> None:
    host.run(index_url=index.url)
    build_torch(wheels, "2.9.1+cpu")
    plan = {"torch": {"version": "2.9.1", "variant": "cpu"}}
    before = tree(host.venv)
    path = next(host.venv.glob("lib/*/site-packages/torch/lib/libtorch_cpu.so"))
    with path.open("rb") as library, mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ):
        message = host.fails(index_url=index.url, plan=plan)
    assert f"in use by process {os.getpid()}" in message and "pytorch_when_busy" in message
    assert tree(host.venv) == before
    assert host.run(index_url=index.url, plan=plan)["changed"]


@pytest.mark.parametrize("minor", ["3.8", "3.13"])
def test_other_pythons(host: Host, index: Index, interpreters: dict[str, str], minor: str) -> None:
    if minor not in interpreters:
        pytest.skip(f"no Python {minor} on this machine")
    answer = host.run(index_url=index.url, base_python=interpreters[minor])
    assert answer["changed"]
    done = subprocess.run(
        [answer["python"], "-c", "import sys, sympy; print(sys.version)"], capture_output=True, check=True
    )
    assert done.stdout.decode().startswith(minor + ".")


def test_another_base_python_sets_it_up_again(host: Host, index: Index, interpreters: dict[str, str]) -> None:
    other = interpreters.get("3.12") or interpreters.get("3.13")
    if not other:
        pytest.skip("no second Python on this machine")
    host.run(index_url=index.url)
    assert host.run(index_url=index.url, base_python=other)["changed"]
    done = subprocess.run(
        [host.venv / "bin/python", "-c", "import sys, sympy; print(sys.prefix)"], capture_output=True, check=True
    )
    assert done.stdout.decode().strip() == str(host.venv)
    assert host.installed() == {"sympy": "1.14.0", "torch": "2.9.0+cpu"}
    assert not host.run(index_url=index.url, base_python=other)["changed"]
