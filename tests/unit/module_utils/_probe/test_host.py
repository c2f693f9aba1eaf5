# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host


@pytest.mark.parametrize(
    ("version", "compiler"),
    [
        (
            "Linux version 6.1.0-50-amd64 (debian-kernel@lists.debian.org) (gcc-12 (Debian 12.2.0-14+deb12u1) 12.2.0, "
            "GNU ld (GNU Binutils for Debian) 2.40) #1 SMP PREEMPT_DYNAMIC Debian 6.1.170-1",
            "gcc 12.2.0",
        ),
        (
            "Linux version 6.8.0-60-generic (buildd@lcy02-amd64-098) (x86_64-linux-gnu-gcc-13 (Ubuntu "
            "13.3.0-6ubuntu2~24.04) 13.3.0, GNU ld (GNU Binutils for Ubuntu) 2.42) #63-Ubuntu SMP",
            "gcc 13.3.0",
        ),
        (
            "Linux version 5.14.0-687.el9.x86_64 (mockbuild@host) (gcc (GCC) 11.5.0 20240719 (Red Hat 11.5.0-5), "
            "GNU ld version 2.35.2-63.el9) #1 SMP PREEMPT_DYNAMIC",
            "gcc 11.5.0",
        ),
        (
            "Linux version 4.18.0-553.el8.x86_64 (mockbuild@host) (gcc version 8.5.0 20210514 (Red Hat 8.5.0-22) "
            "(GCC)) #1 SMP",
            "gcc 8.5.0",
        ),
        ("Linux version 6.12.8 (builder@host) (Ubuntu clang version 18.1.3, Ubuntu LLD 18.1.3) #1", "clang 18.1.3"),
        ("Linux version 6.6.0 (nobody@nowhere) #1 SMP", None),
    ],
)
def test_compiler_of_the_kernel(version: str, compiler: t.Optional[str]) -> None:
    assert host.parse_compiler(version) == compiler


def test_os_release() -> None:
    text = (
        '# a comment\nID="rocky"\nVERSION_ID="9.8"\nPRETTY_NAME="Rocky Linux 9.8 (Blue Onyx)"\nID_LIKE="rhel centos"\n'
    )
    assert host.parse_os_release(text) == {
        "id": "rocky",
        "version": "9.8",
        "name": "Rocky Linux 9.8 (Blue Onyx)",
        "like": ["rhel", "centos"],
        "variant": "",
    }


@pytest.mark.parametrize(
    ("files", "env", "found"),
    [
        ({"/sys/class/dmi/id/sys_vendor": "Supermicro", "/sys/class/dmi/id/product_name": "SYS-821GE"}, {}, "none"),
        ({"/sys/class/dmi/id/sys_vendor": "QEMU", "/proc/cpuinfo": "flags : fpu hypervisor\n"}, {}, "qemu"),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2", "/sys/class/dmi/id/product_name": "p5.48xlarge"}, {}, "amazon"),
        ({"/sys/class/dmi/id/sys_vendor": "Amazon EC2", "/sys/class/dmi/id/product_name": "g5g.metal"}, {}, "none"),
        (
            {
                "/sys/class/dmi/id/sys_vendor": "Microsoft Corporation",
                "/sys/class/dmi/id/product_name": "Virtual Machine",
            },
            {},
            "microsoft",
        ),
        ({"/proc/cpuinfo": "processor : 0\nflags\t\t: fpu vme hypervisor lahf_lm\n"}, {}, "vm-other"),
        ({"/.dockerenv": "", "/sys/class/dmi/id/sys_vendor": "QEMU"}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
        ({"/proc/1/environ": "A=b\0container=lxc\0"}, {}, "lxc"),
        ({}, {"container": "oci"}, "oci"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"/dev/dxg": ""}, {}, "wsl"),
        ({"/proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2\n"}, {}, "wsl"),
    ],
)
def test_virtualization(machine: t.Any, files: t.Dict[str, str], env: t.Dict[str, str], found: str) -> None:
    for path, text in files.items():
        machine.file(path, text)
    assert host.probe(machine.runner(**env))["virtualization"] == found


@pytest.mark.parametrize(
    ("files", "state"),
    [
        ({host.SECURE_BOOT: b"\x06\0\0\0\x01"}, "enabled"),
        ({host.SECURE_BOOT: b"\x06\0\0\0\x00"}, "disabled"),
        ({"/sys/firmware/efi/fw_platform_size": b"64"}, "unknown"),
        ({"/sys/firmware/acpi/x": b""}, "not_applicable"),
        ({}, "unknown"),  # a container that shows no firmware
    ],
)
def test_secure_boot(machine: t.Any, files: t.Dict[str, bytes], state: str) -> None:
    for path, data in files.items():
        machine.file(path, data)
    assert host.probe(machine.runner())["secure_boot"] == state
