# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses a GPU, on a /proc laid out as the kernel does."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import busy
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner


def process(proc: Path, pid: int, comm: str, files: t.Sequence[str] = (), title: bytes = b"") -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(comm + "\n")
    (folder / "cmdline").write_bytes(title)
    for number, target in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(target)


def test_processes_jobs_and_the_drivers_own_services(tmp_path: Path) -> None:
    process(tmp_path, 10, "nvidia-persiste", ["/dev/nvidia0", "/dev/nvidiactl"])
    process(tmp_path, 11, "nv-fabricmanage", ["/dev/nvidiactl", "/dev/nvidia0"])
    process(tmp_path, 900, "python3", ["/dev/null", "/dev/nvidia7"])
    process(tmp_path, 20, "cuda-worker", ["/dev/nvidia-uvm"])
    # A monitor that only asks for the version holds the control node and no GPU.
    process(tmp_path, 30, "nvidia-smi", ["/dev/nvidiactl"])
    process(tmp_path, 40, "slurmstepd", [], b"slurmstepd: [4711.extern]\0")
    process(tmp_path, 50, "bash", ["/dev/pts/0"])
    (tmp_path / "self").mkdir()
    assert [str(user) for user in busy.users(str(tmp_path))] == [
        "cuda-worker (pid 20, has /dev/nvidia-uvm open)",
        "slurmstepd (pid 40, Slurm job 4711)",
        "python3 (pid 900, has /dev/nvidia7 open)",
    ]


def test_an_image_counts_what_runs_in_it(tmp_path: Path) -> None:
    proc, image = tmp_path / "proc", tmp_path / "image"
    image.mkdir()
    process(proc, 20, "trains-here", ["/dev/nvidia0"])
    process(proc, 30, "runs-in-the-image", ["/dev/nvidia0"])
    (proc / "20/root").symlink_to("/")
    (proc / "30/root").symlink_to(image)
    assert [user.command for user in busy.of_image(str(proc), str(image))] == ["runs-in-the-image"]


def test_nobody(tmp_path: Path) -> None:
    assert busy.users(str(tmp_path)) == []


# As Slurm 22.05 answers: one job, none, a host that is no node, a controller that is gone.
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("echo '2 alice'", ["job 2 (of alice in Slurm)"]),
        ("true", []),
        ("echo 'squeue: error: Invalid node name n1' >&2; exit 1", []),
        (
            "echo 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            [
                "squeue (does not say which jobs run here: exit status 1: slurm_load_node error: Unable to contact"
                " slurm controller (connect failure))"
            ],
        ),
    ],
)
def test_what_slurm_says(tmp_path: Path, answer: str, expected: t.List[str]) -> None:
    squeue = tmp_path / "usr/bin/squeue"
    squeue.parent.mkdir(parents=True)
    squeue.write_text(f'#!/bin/sh\n[ "$2" = --nodelist=n1 ] || exit 9\n{answer}\n')
    squeue.chmod(0o755)
    assert [str(user) for user in busy.jobs(Runner(str(tmp_path)), "n1.example.invalid")] == expected


def test_no_slurm(tmp_path: Path) -> None:
    assert busy.jobs(Runner(str(tmp_path)), "n1") == []


# Debian 12 (systemd 252): a unit with a PAM session, a login over SSH, one that was left with tmux, a console.
SESSIONS = """Name=ops
TTY=
RemoteHost=
Leader=1741
Class=background
State=active

Name=ops
TTY=pts/3
RemoteHost=10.0.0.7
Leader=1764
Class=user
State=active

Name=alice
TTY=
RemoteHost=UNKNOWN
Leader=0
Class=user
State=closing

Name=root
TTY=tty1
RemoteHost=
Leader=812
Class=user
State=online
"""


def loginctl(root: Path, script: str) -> Runner:
    command = root / "usr/bin/loginctl"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return Runner(str(root))


def test_who_is_logged_in(tmp_path: Path) -> None:
    (tmp_path / "said").write_text(SESSIONS)
    runner = loginctl(
        tmp_path,
        'case $1 in list-sessions) printf "5 1000 ops\\n7 1000 ops\\n8 0 root\\n";;\n'
        f'*) [ "$2 $3" = "5 8" ] || exit 9; cat {tmp_path}/said;; esac',
    )
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("3:pids:/user.slice\n0::/user.slice/user-1000.slice/session-7.scope\n")
    assert [str(user) for user in busy.sessions(runner)] == [
        "ops (pid 1764, logged in at pts/3 10.0.0.7)",
        "alice (logged out, and something of theirs runs)",
        "root (pid 812, logged in at tty1)",
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("true", []),
        (
            "echo 'Failed to connect to bus: Connection refused' >&2; exit 1",
            ["loginctl (does not say who is logged in: exit status 1: Failed to connect to bus: Connection refused)"],
        ),
    ],
)
def test_nobody_is_logged_in_or_nobody_says(tmp_path: Path, script: str, expected: t.List[str]) -> None:
    assert [str(user) for user in busy.sessions(loginctl(tmp_path, script))] == expected


def test_a_system_without_logind(tmp_path: Path) -> None:
    assert busy.sessions(Runner(str(tmp_path))) == []
