# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A box is a host: systemd runs, SSH opens it, it has the machine's pip settings, and nothing of it stays."""

from __future__ import annotations

import configparser
import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import boxes, images


@pytest.mark.container
@pytest.mark.parametrize("image", sorted(images.SUITES))
def test_a_box_is_a_host(image: str, tmp_path: Path) -> None:
    try:
        box = boxes.start(tmp_path, image, image, "--network", "none")
        settings = boxes.ssh_config(tmp_path / "ssh config")
        for user, sudo in (("root", ""), ("ops", "sudo ")):
            told = ["ssh", "-F", str(settings), f"{user}@{box}", f"whoami; {sudo}systemctl is-system-running"]
            done = subprocess.run(told, capture_output=True, text=True, timeout=60, check=False)
            assert done.stdout.splitlines() == [user, "running"], done.stderr
        # The wheel folders and certificates that the settings name are there for a plain user too.
        config = configparser.RawConfigParser()
        config.read(tmp_path / "pip.conf")
        for value in config["global"].values():
            for path in (word.removeprefix("file://") for word in value.split()):
                if path.startswith("/") and os.path.exists(path):
                    images.podman("exec", "--user", "ops", box, "test", "-r", path)
    finally:
        boxes.remove(tmp_path)
    assert images.podman("container", "exists", box, check=False).returncode == 1
