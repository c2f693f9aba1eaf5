# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt, dpkg-query and apt-cache print, as read on Debian 12 and 13, and what is concluded from it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import apt
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

# dpkg-query on Debian 12 while a module was being built, with a package held and one removed but for its settings.
INSTALLED = """it \tglx-alternative-nvidia\t1.2.2
hi \tlibcuda1:amd64\t535.261.03-1
ii \tlibc-bin\t2.36-9+deb12u14
iF \tnvidia-open-kernel-dkms\t535.261.03-1
iU \tnvidia-smi\t535.261.03-1
rc \tnvidia-persistenced\t535.171.04-1~deb12u1
"""
MADISON = """nvidia-open-kernel-dkms | 535.261.03-1 | http://mirror/debian bookworm/contrib amd64 Packages
nvidia-persistenced | 535.171.04-1~deb12u1 | http://mirror/debian bookworm/contrib amd64 Packages
libcuda1 | 580.105.08-1 | http://127.0.0.1:8081 ./ Packages
libcuda1 | 580.95.05-1 | http://127.0.0.1:8081 ./ Packages
libcuda1 | 580.95.05-1 | http://127.0.0.1:8082 ./ Packages
"""
SIMULATION = """NOTE: This is only a simulation!
Reading package lists...
The following packages will be DOWNGRADED:
  libcuda1
Inst libpci3 (1:3.9.0-4 Debian:12.15/oldstable [amd64])
Inst libcuda1 [580.105.08-1] (580.95.05-1 NVIDIA:stable [amd64]) []
Remv nvidia-kernel-dkms [535.261.03-1]
Conf libpci3 (1:3.9.0-4 Debian:12.15/oldstable [amd64])
"""
UNMET = """The following packages have unmet dependencies:
 nvidia-open-580 : Depends: nvidia-driver-cuda (= 580.95.05-1) but 580.105.08-1 is to be installed
E: Unable to correct problems, you have held broken packages.
"""


def test_installed_packages_with_holds_and_what_is_half_done() -> None:
    found = apt.parse_installed(INSTALLED)
    assert "nvidia-persistenced" not in found
    assert found["libcuda1:amd64"] == apt.Package("libcuda1:amd64", "535.261.03-1", True)
    assert {name: package.state for name, package in found.items() if package.state != "installed"} == {
        "glx-alternative-nvidia": "triggers-pending",
        "nvidia-open-kernel-dkms": "half-configured",
        "nvidia-smi": "unpacked",
    }


def test_versions_newest_first_and_once() -> None:
    found = apt.parse_madison(MADISON)
    assert found["libcuda1"] == ["580.105.08-1", "580.95.05-1"]
    assert found["nvidia-open-kernel-dkms"] == ["535.261.03-1"]


def test_a_simulation_says_what_comes_changes_and_goes() -> None:
    change = apt.parse_simulation(SIMULATION)
    assert change.install == {"libpci3": ("", "1:3.9.0-4"), "libcuda1": ("580.105.08-1", "580.95.05-1")}
    assert change.remove == {"nvidia-kernel-dkms": "535.261.03-1"}
    assert change.lines() == [
        "install libpci3 1:3.9.0-4",
        "libcuda1 580.105.08-1 to 580.95.05-1",
        "remove nvidia-kernel-dkms 535.261.03-1",
    ]
    assert not apt.parse_simulation("Reading package lists...\n")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("535.261.03-1", "535.261.03"),
        ("580.95.05-0ubuntu0.24.04.1", "580.95.05"),
        ("1:4.4.1-1", "4.4.1"),
        ("20220217+3~deb12u1", "20220217+3~deb12u1"),
        ("2.28.3-1+cuda13.0", "2.28.3"),
    ],
)
def test_upstream(version: str, expected: str) -> None:
    assert apt.upstream(version) == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            UNMET,
            "nvidia-open-580 : Depends: nvidia-driver-cuda (= 580.95.05-1) but 580.105.08-1 is to be installed;"
            " The following packages have unmet dependencies:; E: Unable to correct problems, you have held broken"
            " packages.",
        ),
        ("E: Unable to locate package nvidia-open\n", "E: Unable to locate package nvidia-open"),
        ("", "no word"),
    ],
)
def test_complaint(output: str, expected: str) -> None:
    assert apt.complaint(output) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("libcuda1", "libcuda1=580.105.08-1"),
        ("libcuda1=580.95.05-*", "libcuda1=580.95.05-1"),
        ("libcuda1=550*", ""),
        ("nvidia-open", ""),
    ],
)
def test_choose(wanted: str, expected: str) -> None:
    available: t.Mapping[str, t.Sequence[str]] = apt.parse_madison(MADISON)
    assert apt.choose(wanted, available) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)", True),
        ("dpkg: error: dpkg frontend lock was locked by another process with pid 4711", True),
        ("E: Unable to lock directory /var/lib/apt/lists/", True),
        ("dpkg: error processing package block-dkms (--configure): lockfile missing", False),
    ],
)
def test_only_a_lock_is_waited_for(said: str, expected: bool) -> None:
    assert bool(apt.LOCKED.search(said)) is expected


# Ubuntu's archive and NVIDIA's repository with one name and even one version, and the same packages on the host itself.
POLICY = """Package files:
 100 /var/lib/dpkg/status
     release a=now
 600 https://vendor.example.invalid/ubuntu2404/x86_64  Packages
     release o=NVIDIA,l=NVIDIA CUDA,c=
     origin vendor.example.invalid
 500 file:/var/cuda-repo-ubuntu2404-12-8-local  Packages
     release o=NVIDIA,l=NVIDIA CUDA,c=
 500 http://archive.example.invalid/ubuntu noble-updates/restricted amd64 Packages
     release v=24.04,o=Ubuntu,a=noble-updates,n=noble,l=Ubuntu,c=restricted,b=amd64
     origin archive.example.invalid
Pinned packages:
     libcuda1 -> 580.159.03-1 with priority 1001
"""
TWO_SOURCES = """
nvidia-fabricmanager-580 | 580.178.04-1 | https://vendor.example.invalid/ubuntu2404/x86_64  Packages
nvidia-fabricmanager-580 | 580.159.03-1 | https://vendor.example.invalid/ubuntu2404/x86_64  Packages
nvidia-fabricmanager-580 | 580.159.03-0ubuntu0.24.04.1 | http://archive.example.invalid/ubuntu noble-updates/restricted amd64 Packages
nvidia-fabricmanager-580 | 580.65.06-1 | file:/var/cuda-repo-ubuntu2404-12-8-local  Packages
"""  # noqa: E501


@pytest.mark.parametrize(
    ("vendor", "mirror", "expected"),
    [
        (True, "", ["580.178.04-1", "580.159.03-1", "580.65.06-1"]),
        (False, "", ["580.159.03-0ubuntu0.24.04.1"]),
        (None, "", ["580.178.04-1", "580.159.03-1", "580.159.03-0ubuntu0.24.04.1", "580.65.06-1"]),
        # A mirror that signs with a name of its own is known by its address.
        (True, "http://archive.example.invalid/ubuntu/", None),
    ],
)
def test_versions_by_their_source(
    tmp_path: Path, vendor: t.Optional[bool], mirror: str, expected: t.Optional[t.List[str]]
) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "policy").write_text(POLICY)
    (tmp_path / "madison").write_text(TWO_SOURCES)
    script = f'#!/bin/sh\ncase " $* " in *" policy "*) cat {tmp_path}/policy;; *) cat {tmp_path}/madison;; esac\n'
    (tmp_path / "usr/bin/apt-cache").write_text(script)
    (tmp_path / "usr/bin/apt-cache").chmod(0o755)
    found = apt.Apt(Runner(str(tmp_path), {"PATH": "/usr/bin:/bin"}), 1, 1).versions(["x"], vendor, mirror)
    every = ["580.178.04-1", "580.159.03-1", "580.159.03-0ubuntu0.24.04.1", "580.65.06-1"]
    assert found == {"nvidia-fabricmanager-580": every if expected is None else expected}
