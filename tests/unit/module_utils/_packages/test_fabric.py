# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabric manager and its kin against the board: there in the driver's version, or not there."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import fabric
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import Package
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

VERSION = "580.105.08"
HGX = {"packages": ["nvidia-fabricmanager-580=580.*"], "kernel_modules": []}
B200 = {
    "packages": ["nvidia-fabricmanager-580=580.105.08*", "libnvsdm-580=580.105.08*", "nvlsm", "infiniband-diags"],
    "kernel_modules": ["ib_umad", "mlx5_ib"],
}
PCIE: t.Dict[str, t.Any] = {"packages": [], "kernel_modules": []}
WHOLE = {"nvidia-fabricmanager-580": "580.105.08-1", "libnvsdm-580": "580.105.08-1", "nvlsm": "2025.06.5-1"}


def packages(versions: t.Mapping[str, str]) -> t.Dict[str, Package]:
    return {name: Package(name, version, True) for name, version in versions.items()}


@pytest.mark.parametrize(
    ("part", "installed", "loaded", "state", "words"),
    [
        (HGX, {"nvidia-fabricmanager-580": "580.105.08-1"}, [], "ok", []),
        # NVIDIA/gpu-operator#544: 530.30.02 beside driver 530.41.03.
        (
            HGX,
            {"nvidia-fabricmanager-580": "580.95.05-1"},
            [],
            "fail",
            ["nvidia-fabricmanager-580 580.95.05-1", "driver's version 580.105.08", "802"],
        ),
        # A deep learning image without it, on a board that computes nothing before it runs.
        (HGX, {}, [], "fail", ["none of them", "nvidia-fabricmanager-580"]),
        # NVIDIA/gpu-operator#356, #610: it fails on a board without NVSwitches, and that is no fault.
        (PCIE, {"nvidia-fabricmanager-580": "580.105.08-1"}, [], "warn", ["no NVSwitch"]),
        (PCIE, {"libcuda1:amd64": "580.105.08-1"}, [], None, []),
        (B200, {**WHOLE, "infiniband-diags": "44.0-2"}, ["ib_umad", "mlx5_ib"], "ok", []),
        (B200, {**WHOLE, "infiniband-diags": "44.0-2"}, ["mlx5_ib"], "warn", ["not loaded: ib_umad"]),
        (B200, {**WHOLE, "libnvsdm-580": "580.95.05-1"}, ["ib_umad", "mlx5_ib"], "fail", ["libnvsdm-580 580.95.05-1"]),
        (B200, {"nvidia-fabricmanager-580": "580.105.08-1"}, [], "fail", ["libnvsdm-580, nvlsm"]),
    ],
)
def test_what_is_there_and_what_the_board_needs(
    part: t.Mapping[str, t.Any],
    installed: t.Mapping[str, str],
    loaded: t.Sequence[str],
    state: t.Optional[str],
    words: t.Sequence[str],
) -> None:
    found = fabric.check(part, VERSION, packages(installed), lambda name: name in loaded)
    assert [item.state for item in found] == ([] if state is None else [state])
    said = " ".join(f"{item.found} {item.expected} {item.reason}" for item in found)
    assert [word for word in words if word not in said] == []


def test_the_plans_packages_in_the_drivers_own_version() -> None:
    assert fabric.wanted(B200, VERSION) == [
        "nvidia-fabricmanager-580=580.105.08-*",
        "libnvsdm-580=580.105.08-*",
        "nvlsm",
        "infiniband-diags",
    ]
    assert fabric.missing(B200, packages({"libnvsdm-580:amd64": "580.105.08-1"})) == [
        "nvidia-fabricmanager-580",
        "nvlsm",
        "infiniband-diags",
    ]


def test_kernel_modules_at_each_start_and_gone_with_the_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "MODULES", str(tmp_path / "etc/modules-load.d/gpufleet-fabric.conf"))
    files = Files(Runner())
    assert fabric.load_modules(files, B200, now=False, comment="ours") == ["ib_umad", "mlx5_ib"]
    assert Path(fabric.MODULES).read_text() == "# ours\nib_umad\nmlx5_ib\n"
    assert files.ours == {fabric.MODULES} and files.changed
    again = Files(Runner())
    fabric.load_modules(again, B200, now=False, comment="ours")
    assert not again.changed
    fabric.load_modules(again, PCIE, now=False, comment="ours")
    assert again.changed and again.gone == {fabric.MODULES} and not Path(fabric.MODULES).exists()
