# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podman, for real, finds the GPUs by the description that the module lets nvidia-ctk make.

nvidia-ctk stands in for itself: it needs a GPU to describe one. podman sees a copy of /etc, in which it works.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.tests.containers import images

ROOT = Path(__file__).resolve().parents[3]
#: As nvidia-ctk 1.20 describes a GPU, less its hooks.
SPEC = """cdiVersion: "0.5.0"
kind: nvidia.com/gpu
devices:
  - name: all
    containerEdits: {deviceNodes: [{path: /dev/nvidia0, hostPath: /dev/null, type: c, major: 1, minor: 3}]}
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  mounts:
    - {hostPath: LIBRARY, containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05, options: [ro, bind]}
"""
#: Runs the module's own steps for podman twice, then what is given.
LAYS = """
import json, subprocess, sys
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import containers as checks
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import containers
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
containers.CTK = sys.argv[1]
runner, told = Runner(), []
for turn in range(2):
    facts = {**containers.look(runner), "driver": "580.95.05", "unlinked": {}, "rule": True}
    steps = containers.steps(facts, ["podman"])
    told.append([containers.said(step) for step in steps])
    told.append([finding.state for finding in checks.judge(facts, ["podman"]) if finding.check == "container-cdi"])
    for step in steps:
        containers.do(runner, step)
done = subprocess.run(sys.argv[2:], capture_output=True, text=True)
print(json.dumps([told, done.returncode, done.stdout + done.stderr]))
"""


@pytest.mark.container
def test_podman_resolves_the_description(tmp_path):
    image = images.ensure("debian12")
    ctk, library = tmp_path / "nvidia-ctk", tmp_path / "lib/libcuda.so.580.95.05"
    library.parent.mkdir()
    library.write_text("of the driver\n")
    spec = SPEC.replace("LIBRARY", str(library))
    ctk.write_text(f"#!/bin/sh\nmkdir -p /etc/cdi\ncat > \"${{3#--output=}}\" <<'S'\n{spec}S\n")
    ctk.chmod(0o755)
    for name in ("upper", "work"):
        (tmp_path / name).mkdir()
    over = f"lowerdir=/etc,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
    inside = "ls -l /dev/nvidia0 && cat /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05 && echo $NVIDIA_VISIBLE_DEVICES"
    run = ["podman", "run", "--rm", "--name", f"gpufleet-cdi-{tmp_path.name}", "--network", "none"]
    run += ["--device", "nvidia.com/gpu=all", image, "sh", "-c", inside]
    script = 'mount -t overlay overlay -o "$0" /etc && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, over, sys.executable, "-c", LAYS, str(ctk), *run],
        env={**images.podman_environment(), "PYTHONPATH": str(ROOT / "collections")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "mount:" in done.stderr:
        pytest.skip(f"this root may not lay a copy over /etc: {done.stderr.strip()}")
    told, code, output = json.loads(done.stdout)
    assert told == [[f"{ctk} cdi generate --output=/etc/cdi/nvidia.yaml"], ["fail"], [], ["ok"]]
    assert code == 0, output
    assert "1, 3" in output and "of the driver" in output and "void" in output
