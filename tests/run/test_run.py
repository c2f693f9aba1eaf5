# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`run`, for real: environments are made by pip from its configured index."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import typing as t
from pathlib import Path

import pytest

#: Some plain user's ids; nobody needs to be known by this number.
PLAIN = ("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "--")
MAKING = "run: making .venv"


def one_line(error: str) -> str:
    """The only line that `run` wrote of what stopped it."""
    lines = [line for line in error.splitlines() if not line.startswith((MAKING, "run: installing"))]
    assert len(lines) == 1 and lines[0].startswith("run: "), error
    return lines[0]


def test_without_a_command_it_says_what_it_wants(clone: t.Any) -> None:
    assert "needs a command" in one_line(clone.run(expect=3).stderr)


def test_the_small_set_runs_ansible_with_the_clones_settings(made_clone: t.Any) -> None:
    version = made_clone.run("ansible", "--version").stdout
    assert f"config file = {made_clone.root}/ansible.cfg" in version
    assert f"ansible python module location = {made_clone.root}/.venv/" in version
    assert not (made_clone.root / ".venv/bin/pytest").exists()


def test_the_collection_is_found_from_any_directory(made_clone: t.Any, tmp_path: Path) -> None:
    link = tmp_path / "run-by-another-name"
    link.symlink_to(made_clone.root / "run")
    command = [str(link), "ansible-doc", "gpufleet.pytorch.gpu_info"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "gpufleet.pytorch.gpu_info" in done.stdout


def test_directory_arguments_and_exit_code_are_the_commands(made_clone: t.Any, tmp_path: Path) -> None:
    (tmp_path / "ansible-echo").write_text('#!/bin/sh\npwd\nprintf "<%s>" "$@"\nexit 42\n', encoding="utf-8")
    (tmp_path / "ansible-echo").chmod(0o755)
    path = os.pathsep.join([os.environ["PATH"], str(tmp_path)])
    done = made_clone.run("ansible-echo", "two words", "", "*", expect=42, PATH=path)
    assert done.stdout == f"{made_clone.root.parent}\n<two words><><*>"


@pytest.mark.alone
def test_a_second_call_costs_under_a_tenth_of_a_second(made_clone: t.Any, environment: dict[str, str]) -> None:
    bare = ["env", "true"]
    through = made_clone.command("ansible-true")
    tool = made_clone.root / ".venv/bin/ansible-true"
    tool.symlink_to(str(shutil.which("true")))
    best = {}
    for name, command in (("bare", bare), ("run", through)):
        times = []
        for _round in range(10):
            start = time.perf_counter()
            subprocess.run(command, env=environment, check=True)
            times.append(time.perf_counter() - start)
        best[name] = min(times)
    tool.unlink()
    assert best["run"] - best["bare"] < 0.1


def test_a_moved_clone_makes_its_environment_again(clone: t.Any) -> None:
    clone.run("ansible", "--version")
    moved = clone.root.rename(clone.root.parent / "moved")
    clone.root = moved
    done = clone.run("ansible", "--version")
    assert MAKING in done.stderr
    assert f"ansible python module location = {moved}/.venv/" in done.stdout
    assert MAKING not in clone.run("ansible-doc", "gpufleet.pytorch.gpu_info").stderr


def test_another_lock_and_a_lost_python_make_it_again(clone: t.Any) -> None:
    clone.run("ansible", "--version")
    with (clone.root / "requirements/ansible.txt").open("a", encoding="utf-8") as lock:
        lock.write("# another lock\n")
    assert MAKING in clone.run("ansible", "--version").stderr
    for python in (clone.root / ".venv/bin").glob("python*"):
        python.unlink()
        python.symlink_to("/nowhere/python3")
    assert MAKING in clone.run("ansible", "--version").stderr


def test_an_interrupted_install_is_made_again(clone: t.Any) -> None:
    process = clone.start("ansible", "--version")
    while not list((clone.root / ".venv/lib").glob("python3*/site-packages/ansible/*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not clone.made
    done = clone.run("ansible", "--version")
    assert MAKING in done.stderr and "core 2." in done.stdout


def test_two_at_once_make_one(clone: t.Any) -> None:
    processes = [clone.start("ansible", "--version") for _number in range(2)]
    ends = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    assert [MAKING in err for _out, err in ends].count(True) == 1
    assert all("core 2." in out for out, _err in ends)


def test_no_python_new_enough(clone: t.Any, tmp_path: Path, interpreters: dict[str, str]) -> None:
    """What `run` itself needs is there, and Pythons are not, or are too old, or are shims that fail."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in "bash env dirname readlink mkdir ln rm cmp flock".split():
        (tools / name).symlink_to(str(shutil.which(name)))
    assert "3.11 or newer" in one_line(clone.run("ansible", expect=3, PATH=str(tools)).stderr)
    (tools / "python3").write_text("#!/bin/sh\necho 'python3: command not found' >&2\nexit 127\n", encoding="utf-8")
    (tools / "python3").chmod(0o755)
    assert "command not found" in one_line(clone.run("ansible", expect=3, PATH=str(tools)).stderr)
    if "3.8" in interpreters:
        (tools / "python3.11").symlink_to(interpreters["3.8"])
        assert "Python 3.8" in one_line(clone.run("ansible", expect=3, PATH=str(tools)).stderr)
    assert not (clone.root / ".venv").exists()


def test_an_index_that_cannot_be_reached(clone: t.Any) -> None:
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
    line = one_line(clone.run("ansible", "--version", expect=3, **nowhere).stderr)
    assert "could not" in line and "PIP_INDEX_URL" in line  # install, or fetch pip where there is no ensurepip
    assert not clone.made
    assert "core 2." in clone.run("ansible", "--version").stdout


def test_a_wrong_hash_is_refused(clone: t.Any) -> None:
    lock = clone.root / "requirements/ansible.txt"
    lock.write_text(re.sub(r"sha256:.{8}", "sha256:00000000", lock.read_text(encoding="utf-8")), encoding="utf-8")
    one_line(clone.run("ansible", "--version", expect=3).stderr)
    assert not clone.made


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
class TestPlainUser:
    @pytest.fixture
    def place(self, clone: t.Any) -> t.Iterator[t.Any]:
        """A clone that every user can reach."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            clone.root = clone.root.rename(Path(folder) / clone.root.name)
            yield clone

    def settings(self, place: t.Any) -> dict[str, str]:
        home = place.root.parent / "home"
        home.mkdir()
        os.chown(home, 54321, 54321)
        return {"HOME": str(home), "PATH": "/usr/local/bin:/usr/bin:/bin"}

    def test_makes_its_own(self, place: t.Any) -> None:
        settings = self.settings(place)
        shutil.chown(place.root, 54321, 54321)
        done = place.run("ansible", "--version", prefix=PLAIN, **settings)
        assert MAKING in done.stderr and (place.root / ".venv").stat().st_uid == 54321

    def test_uses_what_root_made(self, place: t.Any) -> None:
        settings = self.settings(place)
        place.run("ansible", "--version", PATH=settings["PATH"])
        done = place.run("ansible", "--version", prefix=PLAIN, **settings)
        assert MAKING not in done.stderr and f"location = {place.root}/.venv" in done.stdout

    def test_says_that_it_may_not_write(self, place: t.Any) -> None:
        settings = self.settings(place)
        line = one_line(place.run("ansible", "--version", expect=3, prefix=PLAIN, **settings).stderr)
        assert "no right to write" in line
