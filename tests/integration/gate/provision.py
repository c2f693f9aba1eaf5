# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in a host: installs the gate as the module of that name does, and records the host as it is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

#: What the lookup compat answers, as far as a proof and a comparison read it.
TORCH = {"version": "2.13.0", "requirement": "torch==2.13.0+cpu"}


def main(root: str, python: str, accelerator: str) -> None:
    """Install and record, with the environment of ``python``."""
    sys.path.insert(0, f"{root}/collections")
    base = "ansible_collections.gpufleet.pytorch.plugins"

    def module(name: str):
        return importlib.import_module(f"{base}.{name}")

    pynvml = importlib.util.find_spec("pynvml").origin
    build = module("plugin_utils._gate.build").build()
    settings = {"collection": "0.1.0", "build": build, "directory": "/etc/gpufleet", "valid_for": 900}
    start = f"{base}.module_utils._gate.main"
    module("module_utils._gate.install").install(start, settings, Path(pynvml).read_bytes(), False)
    runner = module("module_utils._probe.runner").Runner()
    environment = module("module_utils._probe.environment").environment
    content = module("module_utils._gate.record").content(
        None,
        {"status": "ok", "accelerator": accelerator, "torch": {**TORCH, "variant": "cpu"}},
        {"accelerator": "cuda", "gpus_expected": 8} if accelerator == "cuda" else {"accelerator": "auto"},
        module("module_utils._probe.observe").observe(runner),
        environment(runner, python),
        {},
    )
    module("module_utils._state").write_expected("/etc/gpufleet", content)


if __name__ == "__main__":
    main(*sys.argv[1:])
