# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels, headers and what DKMS says, on trees laid out as real hosts have them, with real output."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import kernels
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

# DKMS 3.0 of Debian 12, 3.2 of Debian 13, 2.8 of Ubuntu 22.04, and what they say beside it.
STATUS = """nvidia-current-open/535.261.03, 6.1.0-50-amd64, x86_64: installed
nvidia/580.95.05: added
nvidia, 470.256.02, 5.15.0-126-generic, x86_64: installed (WARNING! Diff between built and installed module!)
zfs/2.1.11, 6.1.0-50-amd64, x86_64: installed
Deprecated feature: REMAKE_INITRD (/var/lib/dkms/nvidia/580.95.05/source/dkms.conf)
"""
# Debian 13, 550.163.01 on 6.12.117.
LOG_13 = """DKMS (dkms-3.2.2) make.log for nvidia-current-open/550.163.01 for kernel 6.12.117+deb13-amd64 (x86_64)
  CC [M]  nvidia/nv-pci.o
nvidia/nv-pci.c: In function 'nv_resize_pcie_bars':
nvidia/nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'
  237 |     r = pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size);
make[3]: *** [/usr/src/linux-headers-6.12.117+deb13-common/scripts/Makefile.build:229: nvidia/nv-pci.o] Error 1
"""
# pop-os/pop#3117: another compiler than the kernel's.
LOG_COMPILER = """DKMS make.log for nvidia-535.98 for kernel 6.4.6-76060406-generic (x86_64)
warning: the compiler differs from the one used to build the kernel
  The kernel was built by: x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0
  You are using:           cc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0
cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'
make[2]: *** [scripts/Makefile.build:251: nvidia/nv-pci.o] Error 1
"""


def layout(root: Path, boot: t.Iterable[str] = (), headers: t.Iterable[str] = ()) -> Runner:
    for kernel in boot:
        (root / "boot").mkdir(exist_ok=True)
        (root / "boot" / f"vmlinuz-{kernel}").touch()
        (root / "lib/modules" / kernel).mkdir(parents=True, exist_ok=True)
    for kernel in headers:
        source = root / f"usr/src/linux-headers-{kernel}"
        source.mkdir(parents=True)
        (source / "Makefile").touch()
        (root / "lib/modules" / kernel).mkdir(parents=True, exist_ok=True)
        (root / "lib/modules" / kernel / "build").symlink_to(f"/usr/src/linux-headers-{kernel}")
    return Runner(str(root))


def test_dkms_status_in_all_its_forms() -> None:
    assert kernels.parse_dkms_status(STATUS) == [
        kernels.Build("nvidia-current-open", "535.261.03", "6.1.0-50-amd64", "installed"),
        kernels.Build("nvidia", "580.95.05", "", "added"),
        kernels.Build(
            "nvidia",
            "470.256.02",
            "5.15.0-126-generic",
            "installed",
            "WARNING! Diff between built and installed module!",
        ),
        kernels.Build("zfs", "2.1.11", "6.1.0-50-amd64", "installed"),
    ]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (LOG_13, "nvidia/nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'"),
        (LOG_COMPILER, "cc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'"),
        (
            "make: Entering\n/var/lib/dkms/nvidia/580.95.05/build/nvidia/os.c:9:10: fatal error: x.h: No such",
            "nvidia/os.c:9:10: fatal error: x.h: No such",
        ),
        ("all is well\n", ""),
    ],
)
def test_first_error(log: str, expected: str) -> None:
    assert kernels.first_error(log) == expected


@pytest.mark.parametrize(
    ("boot", "headers", "image", "expected"),
    [
        # A host: the running kernel and the one that starts next.
        (["6.1.0-9-amd64", "6.1.0-50-amd64"], [], False, ["6.1.0-9-amd64", "6.1.0-50-amd64"]),
        (["6.1.0-9-amd64"], [], False, ["6.1.0-9-amd64"]),
        # The running kernel was removed under way: it still counts.
        (["6.1.0-50-amd64"], [], False, ["6.1.0-9-amd64", "6.1.0-50-amd64"]),
        # An image: its newest kernel, whatever runs here; else what it has headers of.
        (["6.1.0-9-amd64", "6.1.0-50-amd64"], ["6.1.0-9-amd64"], True, ["6.1.0-50-amd64"]),
        ([], ["6.1.0-50-amd64"], True, ["6.1.0-50-amd64"]),
        ([], [], True, []),
    ],
)
def test_targets(tmp_path: Path, boot: list[str], headers: list[str], image: bool, expected: list[str]) -> None:
    assert kernels.targets(layout(tmp_path, boot, headers), "6.1.0-9-amd64", image) == expected


def test_headers_that_are_gone_do_not_count(tmp_path: Path) -> None:
    runner = layout(tmp_path, headers=["6.1.0-49-amd64", "6.1.0-50-amd64"])
    (tmp_path / "usr/src/linux-headers-6.1.0-49-amd64/Makefile").unlink()
    assert kernels.with_headers(runner) == ["6.1.0-50-amd64"]


def test_the_log_of_the_kernel_that_failed(tmp_path: Path) -> None:
    build = tmp_path / "var/lib/dkms/nvidia-current-open/550.163.01/build"
    build.mkdir(parents=True)
    (build / "make.log").write_text(LOG_13)
    runner = Runner(str(tmp_path))
    path, text = kernels.build_log(runner, "6.12.117+deb13-amd64")
    assert path == "/var/lib/dkms/nvidia-current-open/550.163.01/build/make.log"
    assert "pci_resize_resource" in text
    # It says nothing of another kernel.
    assert kernels.build_log(runner, "6.12.90+deb13-amd64") == ("", "")
