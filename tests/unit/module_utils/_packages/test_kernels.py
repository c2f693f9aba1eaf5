# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels, headers and what DKMS says, on trees laid out as real hosts have them, with real output."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import packages
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


KERNEL = "6.1.0-50-amd64"
# As of Debian's nvidia-open-kernel-dkms 535.261.03, and of NVIDIA's own packages.
DEBIAN_CONF = """PACKAGE_NAME="nvidia-current-open"
PACKAGE_VERSION="535.261.03"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_NAME[0]="$PACKAGE_NAME"
DEST_MODULE_LOCATION[0]="/updates/dkms"
BUILT_MODULE_NAME[3]="nvidia-uvm"
DEST_MODULE_NAME[3]="$PACKAGE_NAME-uvm"
"""
NVIDIA_CONF = 'PACKAGE_NAME="nvidia"\nBUILT_MODULE_NAME[0]="nvidia"\nBUILT_MODULE_NAME[1]="${name}"\n'


@pytest.mark.parametrize(
    ("conf", "names"),
    [(DEBIAN_CONF, ["nvidia-current-open", "nvidia-current-open-uvm"]), (NVIDIA_CONF, ["nvidia"]), ("", [])],
)
def test_the_modules_that_dkms_builds(conf: str, names: t.List[str]) -> None:
    assert kernels.dkms_names(conf) == names


@pytest.mark.parametrize(
    ("modinfo", "modules", "compiler", "words"),
    [
        (f"version: 535.261.03\nvermagic: {KERNEL} SMP", ["", "-uvm"], "12.2.0", None),
        # The distribution rebuilt its compiler: the same major.
        (f"version: 535.261.03\nvermagic: {KERNEL} SMP", ["", "-uvm"], "12.3.0", None),
        (f"version: 535.261.03\nvermagic: {KERNEL} SMP", [""], "12.2.0", "without nvidia-current-open-uvm"),
        (
            f"version: 535.261.03\nvermagic: {KERNEL} SMP",
            ["", "-uvm"],
            "11.4.0",
            "built by gcc 11.4.0, and the kernel by gcc 12.2.0",
        ),
        ("version: 535.261.03\nvermagic: 6.1.0-9-amd64 SMP", ["", "-uvm"], "12.2.0", "is for kernel 6.1.0-9-amd64"),
        (f"version: 535.247.01\nvermagic: {KERNEL} SMP", ["", "-uvm"], "12.2.0", "is version 535.247.01"),
        ("", [], "", "none was built"),
    ],
)
def test_a_module_that_a_restart_would_not_load(
    tmp_path: Path, modinfo: str, modules: t.List[str], compiler: str, words: t.Optional[str]
) -> None:
    runner = layout(tmp_path, [KERNEL], [KERNEL])
    (tmp_path / f"boot/config-{KERNEL}").write_text('CONFIG_CC_VERSION_TEXT="gcc-12 (Debian 12.2.0-14) 12.2.0"\n')
    folder = tmp_path / f"lib/modules/{KERNEL}/updates/dkms"
    folder.mkdir(parents=True)
    names = [f"nvidia-current-open{part}.ko" for part in modules]
    for name in names:
        (folder / name).write_bytes(f"\x7fELF\0GCC: (Debian) {compiler}\0".encode())
    (tmp_path / f"lib/modules/{KERNEL}/modules.dep").write_text("".join(f"updates/dkms/{name}:\n" for name in names))
    source = tmp_path / "usr/src/nvidia-current-open-535.261.03"
    source.mkdir(parents=True)
    (source / "dkms.conf").write_text(DEBIAN_CONF)
    (tmp_path / f"var/lib/dkms/nvidia-current-open/535.261.03/{KERNEL}").mkdir(parents=True)
    command = tmp_path / "usr/bin/modinfo"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\nprintf '%b\\n' '{modinfo}'\n".replace("\\n", "\\n"))
    command.chmod(0o755)
    found = packages.module(KERNEL, "535.261.03", kernels.module(runner, KERNEL), "", "")
    assert (found.check, found.state) == (("driver-module", "ok") if words is None else ("dkms-not-built", "fail"))
    assert words is None or words in found.found
