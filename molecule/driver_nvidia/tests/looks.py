# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host looks like with a driver of a vendor's repository, by apt's and the kernel's own tools."""

from __future__ import annotations

import typing as t


def driver(host: t.Any) -> dict[str, tuple[str, str]]:
    """State of dpkg and version of each package that is installed from the stand-in."""
    listed = host.check_output("dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\\n'")
    rows = [line.split("|") for line in listed.splitlines()]
    return {
        name: (state.strip(), version)
        for state, name, version in rows
        if name.startswith(("nvidia-", "libcuda", "libnvidia", "libcudnn", "libnccl", "cuda-"))
    }


def assert_driver(host: t.Any, version: str, metas: set[str]) -> None:
    """One version of all, held, and its module built for the kernel of the headers."""
    manager = f"nvidia-fabricmanager-{version.split('.')[0]}"
    parts = {"libcuda1", "libnvidia-ml1", "nvidia-kernel-open-dkms", "nvidia-driver-cuda", manager} | metas
    found = driver(host)
    assert {name: found.get(name) for name in parts} == dict.fromkeys(parts, ("hi", f"{version}-1"))
    others = [name for name in found if name.startswith(("nvidia-open", "nvidia-fabric")) and name not in parts]
    assert others == []
    kernel = host.check_output("ls /lib/modules")
    assert host.check_output(f"modinfo -k {kernel} -F version nvidia") == version
    assert host.check_output("dkms status").splitlines() == [f"nvidia/{version}, {kernel}, x86_64: installed"]
    # A board with NVSwitches computes nothing before its fabric manager runs.
    assert host.check_output("systemctl is-enabled nvidia-fabricmanager") == "enabled"


def assert_pinned(host: t.Any, version: str) -> None:
    """What is not here yet would come in this version too, and a real upgrade by the other tool moves nothing."""
    assert f"Candidate: {version}-1" in host.check_output("apt-cache policy nvidia-persistenced")
    before = driver(host)
    host.check_output("DEBIAN_FRONTEND=noninteractive apt-get -qq --yes dist-upgrade")
    assert driver(host) == before
