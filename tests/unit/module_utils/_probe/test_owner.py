# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts laid out as their installers leave them, and who owns the driver there."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host, image, libraries, owner

LIB = "/usr/lib/x86_64-linux-gnu"
KERNEL = "6.1.0-50-amd64"


def kernel(machine: t.Any, module: str = "") -> None:
    machine.file("/proc/sys/kernel/osrelease", KERNEL + "\n")
    machine.file("/etc/os-release", 'ID=debian\nVERSION_ID="12"\n')
    if module:
        machine.file(f"/lib/modules/{KERNEL}/modules.dep", f"kernel/fs/ext4.ko: kernel/lib/crc16.ko\n{module}:\n")
        machine.file(f"/lib/modules/{KERNEL}/{module}", b"\x7fELF")


def dkms(machine: t.Any, name: str, version: str) -> str:
    """A module that DKMS built for the running kernel."""
    machine.file(f"/var/lib/dkms/{name}/{version}/{KERNEL}/x86_64/log/make.log", "")
    machine.file(f"/usr/src/{name}-{version}/dkms.conf", "")
    return f"/usr/src/{name}-{version}/dkms.conf"


def nobody(machine: t.Any) -> None:
    kernel(machine)
    machine.file("/var/log/nvidia-installer.log", "a log alone, after nvidia-uninstall")


def debian(machine: t.Any) -> None:
    kernel(machine, "updates/dkms/nvidia-current.ko")
    machine.module("535.261.03")
    source = dkms(machine, "nvidia-current", "535.261.03")
    machine.debian_package("nvidia-kernel-dkms", "535.261.03-1~deb12u1", source)
    folder = f"{LIB}/nvidia/current"
    machine.library("535.261.03", folder)
    for name in ("libnvidia-ml", "libcuda"):
        machine.link(f"{LIB}/{name}.so.1", f"/etc/alternatives/nvidia--{name}.so.1-x86_64-linux-gnu")
        machine.link(f"/etc/alternatives/nvidia--{name}.so.1-x86_64-linux-gnu", f"{folder}/{name}.so.1")
    machine.debian_package("libnvidia-ml1:amd64", "535.261.03-1~deb12u1", f"{folder}/libnvidia-ml.so.535.261.03")
    machine.debian_package("libcuda1:amd64", "535.261.03-1~deb12u1", f"{folder}/libcuda.so.535.261.03")


def ubuntu_signed(machine: t.Any) -> None:
    module = "kernel/nvidia-570srv-open/nvidia.ko.zst"
    kernel(machine, module)
    machine.module("570.158.01")
    machine.library("570.158.01")
    machine.debian_package(
        "libnvidia-compute-570-server:amd64",
        "570.158.01-0ubuntu0.24.04.1",
        f"{LIB}/libnvidia-ml.so.570.158.01",
        f"{LIB}/libcuda.so.570.158.01",
    )
    machine.debian_package(f"linux-modules-nvidia-570-server-open-{KERNEL}", "1.0", f"/lib/modules/{KERNEL}/{module}")


def runfile(machine: t.Any) -> None:
    kernel(machine, "updates/dkms/nvidia.ko")
    dkms(machine, "nvidia", "570.86.15")
    machine.module("570.86.15", "proprietary")
    machine.library("570.86.15")
    machine.file("/usr/bin/nvidia-uninstall", "")
    machine.file("/var/lib/dpkg/status", "Package: bash\nVersion: 5.2\n\n")


def runfile_over_package(machine: t.Any) -> None:
    ubuntu_signed(machine)
    machine.file("/usr/bin/nvidia-uninstall", "")
    machine.library("580.65.06", "/usr/lib64")


def dgx(machine: t.Any) -> None:
    ubuntu_signed(machine)
    machine.file("/etc/dgx-release", 'DGX_NAME="DGX Server"\n')


def dgx_with_runfile(machine: t.Any) -> None:
    runfile(machine)
    machine.file("/etc/dgx-release", 'DGX_NAME="DGX Server"\n')


def bright(machine: t.Any) -> None:
    kernel(machine)
    machine.module("535.261.03")
    machine.library("535.261.03", "/cm/local/apps/cuda-driver/libs/535.261.03/lib64")
    for name in ("libnvidia-ml", "libcuda"):
        machine.link(f"/usr/lib64/{name}.so.1", f"/cm/local/apps/cuda-driver/libs/535.261.03/lib64/{name}.so.1")


def gpu_operator(machine: t.Any) -> None:
    kernel(machine)
    machine.module("570.158.01")
    machine.file("/run/nvidia/driver/usr/bin/nvidia-smi", "")
    machine.library("570.158.01", f"/run/nvidia/driver{LIB}")


def gpu_operator_beside_package(machine: t.Any) -> None:
    ubuntu_signed(machine)
    machine.file("/run/nvidia/driver/usr/bin/nvidia-smi", "")


def gpu_operator_that_uses_the_hosts(machine: t.Any) -> None:
    ubuntu_signed(machine)
    machine.file("/run/nvidia/validations/host-driver-ready", "")


def container(machine: t.Any) -> None:
    kernel(machine)
    machine.module("570.158.01")
    machine.library("570.158.01")
    machine.file(
        "/proc/self/mountinfo",
        "1 0 0:1 / / rw - overlay overlay rw\n"
        + "".join(
            f"{number} 1 8:1 {LIB}/{name}.so.570.158.01 {LIB}/{name}.so.570.158.01 ro - ext4 /dev/sda1 ro\n"
            for number, name in ((7, "libnvidia-ml"), (8, "libcuda"))
        ),
    )


def wsl(machine: t.Any) -> None:
    machine.file("/proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
    machine.file("/etc/os-release", "ID=ubuntu\n")
    machine.file("/dev/dxg", "")
    for name in libraries.NAMES:
        machine.file(f"{libraries.WSL_FOLDER}/{name}", b"\x7fELF")


def wsl_with_linux_packages(machine: t.Any) -> None:
    wsl(machine)
    machine.library("535.309.01")
    machine.debian_package(
        "libnvidia-compute-535:amd64",
        "535.309.01-0ubuntu1",
        f"{LIB}/libnvidia-ml.so.535.309.01",
        f"{LIB}/libcuda.so.535.309.01",
    )


def talos(machine: t.Any) -> None:
    machine.file("/etc/os-release", 'ID=talos\nPRETTY_NAME="Talos (v1.11)"\n')


def coreos(machine: t.Any) -> None:
    machine.file("/etc/os-release", "ID=fedora\nVARIANT_ID=coreos\n")
    machine.file("/run/ostree-booted", "")


def vgpu(machine: t.Any) -> None:
    runfile(machine)
    machine.file("/usr/bin/nvidia-gridd", "")


def azure_hpc_image(machine: t.Any) -> None:
    runfile(machine)
    machine.file("/opt/azurehpc/component_versions.txt", "{}")


def copied_by_hand(machine: t.Any) -> None:
    kernel(machine)
    machine.module("570.86.15")
    machine.library("570.86.15")


def module_alone(machine: t.Any) -> None:
    kernel(machine, "updates/dkms/nvidia.ko")


def module_alone_of_a_package(machine: t.Any) -> None:
    kernel(machine, "updates/dkms/nvidia.ko")
    machine.debian_package("nvidia-dkms-570-open", "570.158.01-1", dkms(machine, "nvidia", "570.158.01"))


def two_libraries_of_one_package_kind(machine: t.Any) -> None:
    """NVIDIA's packages over Ubuntu's: one owner, two versions (driver-libraries says so)."""
    ubuntu_signed(machine)
    machine.library("580.65.06", "/usr/lib64")
    machine.debian_package(
        "libnvidia-compute:amd64",
        "580.65.06-1",
        "/usr/lib64/libcuda.so.580.65.06",
        "/usr/lib64/libnvidia-ml.so.580.65.06",
    )


HOSTS: t.List[t.Tuple[t.Callable[[t.Any], None], str, t.List[str]]] = [
    (nobody, "nobody", []),
    (debian, "package", ["libcuda1 535.261.03-1~deb12u1", "libnvidia-ml1", "nvidia-kernel-dkms"]),
    (ubuntu_signed, "package", ["libnvidia-compute-570-server", "linux-modules-nvidia-570"]),
    (runfile, "runfile", ["/usr/bin/nvidia-uninstall"]),
    (runfile_over_package, "multiple", ["/usr/bin/nvidia-uninstall", "libnvidia-compute-570-server"]),
    (dgx, "dgx_os", ["/etc/dgx-release"]),
    (dgx_with_runfile, "multiple", ["/etc/dgx-release", "/usr/bin/nvidia-uninstall"]),
    (bright, "bcm", ["/cm/local/apps"]),
    (gpu_operator, "gpu_operator", ["/run/nvidia/driver"]),
    (gpu_operator_beside_package, "multiple", ["/run/nvidia/driver", "libnvidia-compute-570-server"]),
    (gpu_operator_that_uses_the_hosts, "package", []),
    (container, "container_guest", ["mounted from outside"]),
    (wsl, "wsl", ["/dev/dxg"]),
    (wsl_with_linux_packages, "multiple", ["libnvidia-compute-535 535.309.01", "/dev/dxg"]),
    (talos, "image_os", ["Talos (v1.11)"]),
    (coreos, "image_os", ["coreos"]),
    (vgpu, "vgpu_guest", ["nvidia-gridd"]),
    (azure_hpc_image, "cloud_image", ["/opt/azurehpc"]),
    (copied_by_hand, "unknown", ["no package's"]),
    (module_alone, "unknown", ["updates/dkms/nvidia.ko"]),
    (module_alone_of_a_package, "package", ["nvidia-dkms-570-open 570.158.01-1", "dkms.conf"]),
    (two_libraries_of_one_package_kind, "package", ["libnvidia-compute-570-server", "libnvidia-compute 580.65.06"]),
]


@pytest.mark.parametrize(("lay_out", "who", "evidence"), HOSTS, ids=[row[0].__name__ for row in HOSTS])
def test_owner(machine: t.Any, lay_out: t.Callable[[t.Any], None], who: str, evidence: t.List[str]) -> None:
    lay_out(machine)
    runner = machine.runner()
    found = owner.probe(runner, host.probe(runner))
    assert found["owner"] == who, found["owners"]
    said = " ".join(claim["evidence"] for claim in found["owners"])
    assert [text for text in evidence if text not in said] == []


def test_versions_of_module_and_library(machine: t.Any) -> None:
    """The three-part versions of both, so that 580.173.02 beside 580.178 is seen."""
    kernel(machine)
    machine.module("580.173.02", "open")
    machine.library("580.178")
    runner = machine.runner()
    found = owner.probe(runner, host.probe(runner))
    assert (found["version"], found["library_version"], found["kernel_module"]) == ("580.173.02", "580.178", "open")


def test_the_loaders_order_decides_which_library_counts(machine: t.Any) -> None:
    kernel(machine)
    machine.library("535.309.01")
    machine.library("570.86.15", "/opt/cuda/compat")
    machine.file("/etc/ld.so.cache", f"glibc-ld.so.cache1.1\0libcuda.so.1\0{LIB}/libcuda.so.1\0".encode())
    plain, shadowed = machine.runner(), machine.runner(LD_LIBRARY_PATH="/opt/cuda/compat")
    assert owner.probe(plain, host.probe(plain))["library_version"] == "535.309.01"
    assert owner.probe(shadowed, host.probe(shadowed))["library_version"] == "570.86.15"


@pytest.mark.parametrize(
    ("text", "version", "flavour"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs@host)  Thu Jan 23",
            "570.86.15",
            "open",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Tue Jul  1", "535.261.03", "proprietary"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build", "580.65.06", "open"),
        ("NVRM version: NVIDIA UNIX aarch64 Kernel Module  580.178  Release Build", "580.178", "proprietary"),
        ("", "", ""),
        ("garbage", "", ""),
    ],
)
def test_module_version(text: str, version: str, flavour: str) -> None:
    assert libraries.parse_module_version(text) == (version, flavour)


def test_rpm_is_asked_once_for_all_files(machine: t.Any) -> None:
    kernel(machine)
    machine.module("570.158.01")
    machine.library("570.158.01", "/usr/lib64")
    machine.command(
        "rpm",
        'shift 3\nfor path in "$@"; do case $path in\n'
        "*libcuda*) echo nvidia-driver-cuda-libs 570.158.01-1.el9;;\n"
        '*) echo "file $path is not owned by any package"; rc=1;;\nesac; done\nexit $rc\n',
    )
    runner = machine.runner()
    found = owner.probe(runner, host.probe(runner))
    assert found["owner"] == "multiple"
    assert "nvidia-driver-cuda-libs 570.158.01-1.el9 owns /usr/lib64/libcuda.so.570.158.01" in [
        claim["evidence"] for claim in found["owners"]
    ]


def test_a_database_that_does_not_answer_is_no_answer(machine: t.Any) -> None:
    kernel(machine)
    machine.library("570.158.01", "/usr/lib64")
    machine.command("rpm", "echo 'error: rpmdb: damaged header' >&2; exit 1\n")
    runner = machine.runner()
    with pytest.raises(OSError, match="rpmdb: damaged header"):
        owner.probe(runner, host.probe(runner))


def test_an_image_is_looked_at_without_the_machine_that_builds_it(machine: t.Any) -> None:
    """Built in a container on a GPU host: its kernel, its loaded module and its devices are not the image's."""
    kernel(machine)
    machine.module("570.158.01")
    machine.file("/dev/dxg", "")
    machine.pci("0000:1b:00.0 0302 10de:2330", driver="nvidia")
    seen = image.observe(machine.runner())
    assert (seen["driver"]["owner"], seen["driver"]["version"], seen["host"]["kernel"]) == ("nobody", "", "")
    assert (seen["pci"], seen["gpus"], seen["host"]["virtualization"], seen["errors"]) == ([], [], "none", {})
    machine.file("/boot/vmlinuz-6.8.0-50-generic", "")
    machine.file("/lib/modules/6.8.0-50-generic/modules.dep", "updates/dkms/nvidia.ko:\n")
    machine.library("580.95.05")
    seen = image.observe(machine.runner())
    assert seen["host"]["kernel"] == "6.8.0-50-generic"
    assert seen["driver"]["module_file"] == "/lib/modules/6.8.0-50-generic/updates/dkms/nvidia.ko"
    assert seen["driver"]["owner"] == "unknown"  # nobody's libraries, also in an image
