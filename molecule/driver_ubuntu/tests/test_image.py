# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An image that site.yml made, seen by the system's own tools: whole, of one source, and not called proved."""

from __future__ import annotations

import json
import os
import typing as t

ARCHIVE = "580.159.03-0ubuntu0.24.04.1"


def states(host: t.Any) -> dict[str, tuple[str, str]]:
    """State of dpkg and version of each package."""
    listed = host.check_output("dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\\n'")
    rows = [line.split("|") for line in listed.splitlines()]
    return {name: (state.strip(), version) for state, name, version in rows}


def test_driver_and_fabric_are_of_the_archive_in_one_version(host: t.Any) -> None:
    found = states(host)
    driver = ("nvidia-driver-580-server-open", "libnvidia-compute-580-server", "nvidia-kernel-common-580-server")
    for name in (*driver, "nvidia-fabricmanager-580", "libnvsdm-580"):
        assert found.get(name) == ("hi", ARCHIVE), name
    assert found["nvlsm"] == ("hi", "2025.06.5-1")
    assert found["infiniband-diags"][0] == "ii"


def test_the_other_source_moves_nothing(host: t.Any) -> None:
    pinned = host.file("/etc/apt/preferences.d/gpufleet-driver").content_string
    assert [line for line in pinned.splitlines() if line.startswith("Pin:")] == [f"Pin: version {ARCHIVE}"]
    for name in ("nvidia-fabricmanager-580", "libnvsdm-580"):
        assert "580.178.04-1" in host.check_output(f"apt-cache madison {name}")
        assert f"Candidate: {ARCHIVE}" in host.check_output(f"apt-cache policy {name}")
    # What copied commands left stays: it is the user's.
    assert host.file("/etc/apt/sources.list.d/cuda-ubuntu2404-12-8-local.list").exists


def test_the_signed_module_is_that_of_the_images_kernel(host: t.Any) -> None:
    assert host.check_output("modinfo -k 6.8.0-50-generic -F version nvidia") == "580.159.03"
    assert not [name for name in states(host) if "dkms" in name]


def test_what_starts_with_a_host_of_this_image(host: t.Any) -> None:
    assert host.file("/etc/modules-load.d/gpufleet-fabric.conf").content_string.split()[-2:] == ["ib_umad", "mlx5_ib"]
    for unit in (
        "nvidia-fabricmanager.service",
        "nvidia-persistenced.service",
        "gpufleet-device-nodes.service",
        "gpufleet-first-start.service",
        "gpufleet-gate.timer",
    ):
        assert host.check_output(f"systemctl is-enabled {unit}") == "enabled", unit
    assert host.run("systemd-analyze verify /etc/systemd/system/gpufleet-first-start.service").rc == 0


def test_it_is_not_called_proved(host: t.Any) -> None:
    """The run ended well, and nobody may take that for a proof."""
    path = os.path.join(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "reports/site/latest.json")
    with open(path, encoding="utf-8") as stream:
        verdict = json.load(stream)["hosts"]["noble"]
    assert (verdict["ok"], verdict["state"]) == (False, "unknown")
    doubts = [item for item in verdict["findings"] if item["state"] in ("fail", "unknown")]
    assert [(item["check"], item["state"]) for item in doubts] == [("never-proved", "unknown")]
    assert not host.file("/etc/gpufleet/expected.json").exists
    planned = json.loads(host.file("/etc/gpufleet/planned.json").content_string)
    assert planned["plan"]["torch"]["requirement"] == "torch==2.13.0+cu130"
    assert planned["python"] == "/opt/gpufleet/venv/bin/python"
    # Before the first start's proof the gate lets no job begin.
    assert host.run("/usr/local/bin/gpufleet-gate --fresh").rc == 2
