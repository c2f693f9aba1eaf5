# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input: each gives a clear error, and nothing is left half done."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import typing as t
from pathlib import Path

import pytest

from .conftest import Host, Index, build_torch, tree


def test_venv_is_a_file(host: Host, index: Index) -> None:
    host.venv.write_text("mine")
    message = host.fails(index_url=index.url)
    assert f"pytorch_venv {host.venv} is a file" in message
    assert host.venv.read_text() == "mine" and not host.store.exists()


def _conda(path: Path) -> None:
    (path / "conda-meta").mkdir(parents=True)
    (path / "bin").mkdir()


def _venv(path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)


def _data(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


@pytest.mark.parametrize(
    "make, said",
    [
        (_conda, "a conda environment"),
        (_venv, "a virtual environment that gpufleet did not make"),
        (_data, "a folder with other files (thesis.tex)"),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_somebody_elses_environment(
    host: Host, index: Index, make: t.Callable[[Path], None], said: str, check: bool
) -> None:
    make(host.venv)
    before = tree(host.venv)
    message = host.fails(index_url=index.url, _ansible_check_mode=check)
    assert said in message and ("pytorch_python" in message) is (make is _venv)
    assert tree(host.venv) == before


def test_somebody_elses_environment_with_a_python(host: Host, index: Index) -> None:
    _venv(host.venv)
    assert f"set pytorch_python: {host.venv}/bin/python" in host.fails(index_url=index.url)


@pytest.mark.parametrize("option", ["venv", "wheel_store", "python", "base_python"])
@pytest.mark.parametrize(
    "value, said",
    [
        ("relative/venv", ""),
        ("$NOSUCH/x", "no variable $NOSUCH"),
        ("/data/${NOSUCH}/x", "no variable ${NOSUCH}"),
        ("~nosuchuser/x", ""),
        ("7", ""),
        (7, ""),
        ("-rf", ""),
        (["/a", "/b"], ""),
        ("/a\0b", "NUL byte"),
    ],
)
def test_paths_that_mean_no_place(host: Host, option: str, value: t.Any, said: str) -> None:
    before = tree(host.folder)
    message = host.fails(**{option: value})
    assert f"pytorch_{option} needs an absolute path" in message and f"found {str(value)!r}" in message
    assert said in message and "nothing was changed" in message and tree(host.folder) == before


def test_path_that_python_refuses(host: Host, index: Index) -> None:
    host.venv = host.folder / "a:b" / "venv"
    assert "pytorch_venv needs a path without ':'" in host.fails(index_url=index.url)
    assert not host.venv.parent.exists() and not host.store.exists()


def test_link_to_an_empty_folder_is_followed(host: Host, index: Index) -> None:
    real = host.folder / "real"
    real.mkdir()
    host.venv.symlink_to("real")
    answer = host.run(index_url=index.url)
    assert answer["venv"] == str(real)
    assert f"pytorch_venv {host.venv} is a link: the environment is in {real}" in str(answer["warnings"])
    assert host.venv.is_symlink() and host.installed()["torch"] == "2.9.0+cpu"
    again = host.run(index_url=index.url)
    assert not again["changed"] and "warnings" not in again


@pytest.mark.parametrize("check", [False, True])
def test_link_to_nothing_is_refused(host: Host, index: Index, check: bool) -> None:
    host.venv.symlink_to("/nonexistent/disk")
    message = host.fails(index_url=index.url, _ansible_check_mode=check)
    assert f"pytorch_venv {host.venv} is a link to /nonexistent/disk, where nothing is" in message
    assert host.venv.is_symlink() and not host.store.exists()


@pytest.mark.parametrize(
    "mode, said", [(None, "is not there"), (0o644, "may not execute it (mode 0644)"), (0o40755, "is a folder")]
)
def test_users_python_that_cannot_be_started(host: Host, mode: int | None, said: str) -> None:
    python = host.folder / "python"
    if mode == 0o40755:
        python.mkdir()
    elif mode:
        python.write_text("#!/bin/sh\n")
        python.chmod(mode)
    message = host.fails(python=str(python))
    assert f"pytorch_python needs the interpreter of an environment, found: {python} {said}" in message.replace(
        f"is there, but user {os.geteuid()} ", ""
    )


def test_marker_that_is_no_marker(host: Host, index: Index) -> None:
    host.venv.mkdir()
    (host.venv / "gpufleet-environment.json").write_text("{")
    before = tree(host.venv)
    assert "gpufleet-environment.json cannot be read" in host.fails(index_url=index.url)
    assert tree(host.venv) == before


@pytest.fixture
def small_disk(tmp_path: Path) -> t.Iterator[Path]:
    """A file system of 40 MB."""
    path = tmp_path / "small"
    path.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", path], check=False).returncode
    ):
        pytest.skip("mounting a small tmpfs needs root and CAP_SYS_ADMIN")
    yield path
    subprocess.run(["umount", path], check=True)


def test_no_space_for_the_environment(host: Host, index: Index, wheels: Path, small_disk: Path) -> None:
    build_torch(wheels, files=500, size=100_000)
    host.venv = small_disk / "venv"
    message = host.fails(index_url=index.url)
    assert re.search(r"not enough space: 1[23]\d MB needed \(1[23]\d MB for the environment in ", message)
    assert f"MB free at {small_disk}" in message
    assert not host.venv.exists()


def test_no_space_for_the_wheels(host: Host, index: Index, wheels: Path, small_disk: Path) -> None:
    """A repair with another store: what is needed is known before any byte is downloaded."""
    build_torch(wheels, files=500, size=100_000)
    host.run(index_url=index.url)
    next(host.venv.glob("lib/*/site-packages/torch/lib/libtorch_cpu.so")).unlink()
    before = tree(host.venv)
    index.asked, host.store = [], small_disk / "store"
    message = host.fails(index_url=index.url)
    assert "not enough space" in message and f"MB for the wheels in {host.store}" in message
    assert not any(path.endswith(".whl") for path in index.asked)
    assert tree(host.venv) == before and not list(host.store.glob("*.whl"))


def test_disk_fills_while_downloading(host: Host, index: Index, wheels: Path, small_disk: Path) -> None:
    """Where the index does not tell sizes, the space is known to be too small only when it is full."""
    build_torch(wheels, files=500, size=100_000)
    host.store = small_disk / "store"
    index.tells = False
    message = host.fails(index_url=index.url)
    assert "no space left on the device; free are" in message and f"MB in {host.store}" in message
    assert not host.venv.exists() and not list(host.store.glob("*.whl"))
    assert not list(host.store.glob(".work/*/tmp"))


def test_index_that_refuses(host: Host) -> None:
    start = time.monotonic()
    message = host.fails(index_url="http://me:secret@127.0.0.1:9/simple")
    assert "the index http://me:****@127.0.0.1:9/simple cannot be reached from this host" in message
    assert "Connection refused" in message and "pytorch_index_url" in message and "secret" not in message
    assert time.monotonic() - start < 20
    assert not host.venv.exists()


def test_index_that_says_nothing(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start = time.monotonic()
        message = host.fails(index_url=f"http://127.0.0.1:{silent.getsockname()[1]}/simple")
    assert "cannot be reached from this host (timed out)" in message
    assert time.monotonic() - start < 30


def test_index_without_that_release(host: Host, index: Index) -> None:
    plan = {"torch": {"version": "2.99.0", "variant": "cpu"}}
    message = host.fails(index_url=index.url, plan=plan)
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"torch 2.99.0+cpu has no wheel for Python {minor} on " in message
    assert "found for this Python: 2.9.0+cpu" in message
    assert not host.venv.exists()


def test_python_without_a_wheel(host: Host, index: Index, wheels: Path) -> None:
    for path in wheels.glob("torch-*"):
        path.unlink()
    build_torch(wheels, tag="cp36-cp36m-manylinux1_x86_64")
    message = host.fails(index_url=index.url)
    assert "torch 2.9.0+cpu has no wheel for Python" in message and "pytorch_base_python" in message
    assert not host.venv.exists()


def test_python_too_old_for_the_release(host: Host, index: Index, wheels: Path) -> None:
    build_torch(wheels, python=">=3.99")
    message = host.fails(index_url=index.url)
    assert "torch 2.9.0+cpu has no wheel for Python" in message and "Requires-Python >=3.99" in message
    assert not host.venv.exists()


@pytest.mark.parametrize(
    "python, said",
    [
        ("/nonexistent/python3", "No such file or directory"),
        ("/bin/true", "it printed nothing"),
        ("3.7", "needed is 3.8 or newer"),
    ],
)
def test_base_python_that_will_not_do(
    host: Host, index: Index, interpreters: dict[str, str], python: str, said: str
) -> None:
    path = interpreters.get(python, python)
    if not path.startswith("/"):
        pytest.skip(f"no Python {python} on this machine")
    message = host.fails(index_url=index.url, base_python=path)
    assert path in message and said in message
    assert not host.venv.exists()


#: Settings of the machine that bring another build: the variable or the line of the user's pip.conf, and what is named.
SETTINGS = {
    "variable": ({"PIP_FIND_LINKS": "{other}"}, "", "PIP_FIND_LINKS = {other}"),
    "file": ({}, "find-links = {other}", "find-links = {other}"),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("label", ["+cpu", ""])
def test_settings_that_bring_another_build(host: Host, index: Index, wheels: Path, setting: str, label: str) -> None:
    """A preset extra place makes the CPU build of a GPU host's torch: with a label, and told by its content alone."""
    other = host.folder / "other"
    build_torch(other, "2.9.1" + label)
    build_torch(wheels, "2.9.1.dev1+cu130", "13.0")
    plan = {"torch": {"version": "2.9.1", "variant": "cu130", "requirement": "torch>=2.9.1.dev1"}}
    variables, line, named = SETTINGS[setting]
    host.environ.update({name: value.format(other=other) for name, value in variables.items()})
    config = host.folder / "home" / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text(f"[global]\nindex-url = {index.url}\n" + line.format(other=other) + "\n")
    message = host.fails(index_url=index.url, plan=plan, isolated=False)
    assert f"the plan wants torch 2.9.1+cu130, but what pip finds is torch 2.9.1{label}" in message
    assert named.format(other=other) in message and "pytorch_pip_isolated: true" in message
    assert not host.venv.exists()


def test_isolated_from_every_setting(host: Host, index: Index, wheels: Path) -> None:
    other = host.folder / "other"
    build_torch(other, "2.9.0+zzz")
    build_torch(wheels, "2.9.0+cu130", "13.0")
    config = host.folder / "home" / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True)
    config.write_text(
        f"[global]\nfind-links = {other}\nindex-url = http://127.0.0.1:9/\ntarget = {host.folder}/target\n"
    )
    host.environ.update(
        PIP_CONFIG_FILE=str(config), PIP_EXTRA_INDEX_URL="http://127.0.0.1:9/", PIP_NO_DEPS="1", PIP_PRE="1"
    )
    plan = {"torch": {"version": "2.9.0", "variant": "cu130", "requirement": "torch==2.9.0"}}
    for path in wheels.glob("*+cpu*"):
        path.unlink()
    assert host.run(index_url=index.url, plan=plan)["packages"]["torch"] == "2.9.0+cu130"
    assert host.installed()["torch"] == "2.9.0+cu130"


def test_settings_of_the_machine_find_the_wheel(host: Host, wheels: Path) -> None:
    """The plan's index is out of reach, and costs neither the installation nor minutes."""
    host.environ.update(PIP_FIND_LINKS=str(wheels), PIP_NO_INDEX="1", PIP_TARGET=str(host.folder / "target"))
    start = time.monotonic()
    answer = host.run(index_url="http://127.0.0.1:9/simple", isolated=False)
    assert answer["changed"] and "this host's own pip settings" in str(answer["warnings"])
    assert host.installed() == {"sympy": "1.14.0", "torch": "2.9.0+cpu"} and not (host.folder / "target").exists()
    assert time.monotonic() - start < 60


def test_wheel_that_is_not_what_the_index_told(host: Host, index: Index, wheels: Path) -> None:
    predicted = host.run(index_url=index.url, _ansible_check_mode=True)
    build_torch(wheels, files=9)
    said = "those of pytorch_lock"
    for plan in ({}, {"plan": {"torch": {"version": "2.9.0", "variant": "cpu", "wheels": predicted["lock"]}}}):
        message = host.fails(index_url=index.url, lock=predicted["lock"], **plan)
        assert "torch" in message and "HASH" in message.upper() and said in message
        assert not host.venv.exists()
        said = "those of plan_lock"


@pytest.mark.parametrize(
    "lock, said",
    [
        (["torch==2.9.0+cpu"], "is not NAME==VERSION --hash=sha256:HASH"),
        (["sympy==1.14.0 --hash=sha256:" + "0" * 64], "torch is not in the list"),
        (["torch==2.9.0+cu130 --hash=sha256:" + "0" * 64], "pytorch_lock holds torch 2.9.0+cu130"),
        (["torch==2.9.0+cpu --hash=sha256:" + "0" * 64], "HASH"),
    ],
)
def test_lock_that_will_not_do(host: Host, index: Index, lock: list[str], said: str) -> None:
    message = host.fails(index_url=index.url, lock=lock)
    assert said in message or said.lower() in message.lower()
    assert not host.venv.exists()


@pytest.mark.parametrize(
    "args, said",
    [
        ({"packages": ["torch==2.8.0"]}, "the plan decides torch (2.9.0)"),
        ({"packages": ["--index-url=http://127.0.0.1:9/"]}, "is no requirement"),
        ({"packages": ["torchvision"]}, "the plan knows no torchvision for torch 2.9.0"),
        ({"packages": ["absent-package"]}, "absent-package"),
        ({"packages": "[]"}, "JSON: -e '{\"pytorch_packages\": [...]}'"),
        ({"packages": "['numpy', 'sympy']"}, "JSON: -e '{\"pytorch_packages\": [...]}'"),
        ({"lock": "[]"}, "JSON: -e '{\"pytorch_lock\": [...]}'"),
        ({"plan": {"status": "conflict"}}, "the plan of this host is a conflict"),
        ({"plan": {}}, "the plan names no torch version"),
    ],
)
def test_wishes_that_cannot_be(host: Host, index: Index, args: dict[str, t.Any], said: str) -> None:
    assert said in host.fails(index_url=index.url, **args)
    assert not host.venv.exists()


def test_source_distribution_is_not_built(host: Host, index: Index, wheels: Path) -> None:
    shutil.copy(next(wheels.glob("sympy*")), wheels / "sympy-1.15.0.tar.gz")
    assert host.run(index_url=index.url)["packages"]["sympy"] == "1.14.0"


def test_password_is_nowhere(host: Host, index: Index) -> None:
    answer = host.run(index_url=index.url.replace("//", "//me:pass-word-1@"), _ansible_diff=True, _ansible_verbosity=4)
    assert answer["changed"] and "pass-word-1" not in str(answer)
    for folder in (host.venv, host.store):
        for path in folder.rglob("*"):
            assert not path.is_file() or b"pass-word-1" not in path.read_bytes(), path


def test_place_where_this_user_may_not_write(host: Host, index: Index) -> None:
    (host.folder / "file").write_text("")
    host.venv = host.folder / "file" / "venv"
    message = host.fails(index_url=index.url)
    assert f"pytorch_venv {host.venv} cannot be made: {host.folder}/file is no folder" in message
    assert not list(host.store.glob("*.whl"))


def test_users_own_environment_is_compared_and_left_alone(host: Host, index: Index) -> None:
    python = host.run(index_url=index.url)["python"]
    before = tree(host.venv)
    plan = {"torch": {"version": "2.9.0", "variant": "cu130"}}
    host.store = host.folder / "no-store"
    answer = host.run(plan=plan, python=python)
    assert "findings" in answer, answer
    (finding,) = answer["findings"]
    assert not answer["changed"] and answer["python"] == python
    assert (finding["state"], finding["found"], finding["expected"]) == ("fail", "torch 2.9.0+cpu", "torch 2.9.0+cu130")
    assert {path: what for path, what in tree(host.venv).items() if "__pycache__" not in path} == {
        path: what for path, what in before.items() if "__pycache__" not in path
    }
    assert not host.store.exists()
