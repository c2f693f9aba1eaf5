# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After the wish for branch 580: all of the driver moved, and nothing of 570 stayed."""

from __future__ import annotations

import sys
import typing as t
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import looks


def test_the_driver(host: t.Any) -> None:
    looks.assert_driver(host, "580.105.08", {"nvidia-open"})
    looks.assert_pinned(host, "580.105.08")


def test_unattended_upgrades_move_what_stands_by_and_not_the_driver(host: t.Any) -> None:
    quiet = "DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install"
    host.check_output(f"{quiet} unattended-upgrades bystander=1.0-1")
    pattern = 'Unattended-Upgrade::Origins-Pattern { "origin=NVIDIA,suite=stable"; };'
    host.check_output("echo %s > /etc/apt/apt.conf.d/99tests", pattern)
    before = looks.driver(host)
    host.check_output("unattended-upgrade")
    assert host.package("bystander").version == "2.0-1"
    assert looks.driver(host) == before
