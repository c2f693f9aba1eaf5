# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is left after driver_state absent: the host as it was before."""

from __future__ import annotations

import json
import typing as t

import pytest

OURS = (
    "/etc/apt/preferences.d/gpufleet-driver",
    "/etc/apt/sources.list.d/gpufleet-debian.sources",
    "/etc/modprobe.d/gpufleet-nouveau.conf",
    "/etc/systemd/system/gpufleet-device-nodes.service",
    "/etc/systemd/system/multi-user.target.wants/gpufleet-device-nodes.service",
    "/etc/gpufleet/driver.json",
)


@pytest.fixture(autouse=True)
def only(host: t.Any) -> None:
    if host.system_info.release.partition(".")[0] != "12":
        pytest.skip("nothing was installed there")


def test_nothing_was_removed_beside_a_running_job(host: t.Any) -> None:
    result = json.loads(host.file("/root/busy.json").content_string)
    assert result["failed"] is True
    assert [finding["check"] for finding in result["findings"]] == ["driver-busy"]
    assert "sleep (pid " in result["findings"][0]["found"] and "/dev/nvidia0" in result["findings"][0]["found"]


def test_no_package_hold_file_or_module_of_the_driver_is_left(host: t.Any) -> None:
    listed = host.check_output("dpkg-query -W -f '${db:Status-Abbrev}|${Package}\\n'").splitlines()
    assert [line for line in listed if "nvidia" in line] == []
    assert host.check_output("apt-mark showhold") == ""
    assert host.check_output("find /lib/modules -name 'nvidia*.ko*'") == ""
    assert [path for path in OURS if host.file(path).exists or host.file(path).is_symlink] == []


def test_apt_is_whole(host: t.Any) -> None:
    assert host.check_output("dpkg --audit") == ""
    host.check_output("apt-get check")
