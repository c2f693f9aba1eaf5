# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each Molecule scenario as one test, with containers of its own, removed however it ends."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import boxes

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted(path.parent.name for path in (ROOT / "molecule").glob("*/molecule.yml"))
SECONDS = 1800  # a kernel module of NVIDIA's is built, which takes minutes on an idle machine


@pytest.mark.container
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, tmp_path: Path) -> None:
    # Molecule empties its folder when it ends, and the log must outlive that.
    run = tmp_path / "run"
    run.mkdir()
    environment = {**os.environ, "MOLECULE_EPHEMERAL_DIRECTORY": str(run), "ANSIBLE_NOCOLOR": "1", "NO_COLOR": "1"}
    log = tmp_path / "molecule.log"
    try:
        with log.open("w") as handle:
            command = ["molecule", "test", "--scenario-name", scenario]
            done = subprocess.run(
                command, cwd=ROOT, env=environment, stdout=handle, stderr=handle, timeout=SECONDS, check=False
            )
    finally:
        boxes.remove(run)
    assert done.returncode == 0, f"molecule test -s {scenario}: exit {done.returncode}, log {log}:\n" + "\n".join(
        log.read_text(errors="replace").splitlines()[-80:]
    )
