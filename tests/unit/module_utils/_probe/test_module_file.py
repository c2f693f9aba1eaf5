# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which file is the nvidia module, among all that a distribution's driver brings."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import libraries
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # Debian 12, open and proprietary; DKMS elsewhere; Ubuntu's prebuilt ones; a compressed one of EL.
        (
            [f"updates/dkms/nvidia-current-open{part}.ko" for part in ("-uvm", "-modeset", "", "-drm", "-peermem")],
            "updates/dkms/nvidia-current-open.ko",
        ),
        (["updates/dkms/nvidia-current-uvm.ko", "updates/dkms/nvidia-current.ko"], "updates/dkms/nvidia-current.ko"),
        (
            ["updates/dkms/nvidia-tesla-470-modeset.ko", "updates/dkms/nvidia-tesla-470.ko"],
            "updates/dkms/nvidia-tesla-470.ko",
        ),
        (["updates/dkms/nvidia-uvm.ko", "updates/dkms/nvidia.ko"], "updates/dkms/nvidia.ko"),
        (["kernel/nvidia-580srv-open/nvidia.ko"], "kernel/nvidia-580srv-open/nvidia.ko"),
        (["extra/nvidia.ko.xz"], "extra/nvidia.ko.xz"),
        (["kernel/drivers/i2c/busses/i2c-nvidia-gpu.ko", "updates/dkms/nvidia-drm.ko"], ""),
    ],
)
def test_module_file(tmp_path: Path, files: t.Sequence[str], expected: str) -> None:
    folder = tmp_path / "lib/modules/6.1.0-50-amd64"
    folder.mkdir(parents=True)
    (folder / "modules.dep").write_text("".join(f"{name}: kernel/lib/crc16.ko\n" for name in files))
    found = libraries.module_file(Runner(str(tmp_path)), "6.1.0-50-amd64")
    assert found == (f"/lib/modules/6.1.0-50-amd64/{expected}" if expected else None)
