# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as people left them and wrote about them: laid out as files, looked at by the probe, and called what they are.

Each case names the public thread that it is of. What a check must not say counts as much as what it must.
"""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import accelerator, driver
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import libraries
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.observe import observe

LIB = "/usr/lib/x86_64-linux-gnu"
KERNEL = "6.8.0-50-generic"


def host(machine: t.Any, gpus: int = 1, bound: str = "nvidia") -> None:
    machine.file("/proc/sys/kernel/osrelease", KERNEL + "\n")
    machine.file("/proc/sys/kernel/hostname", "n1\n")
    machine.file("/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
    machine.file("/sys/firmware/memmap/0/start", "")
    for number in range(1, gpus + 1):
        machine.pci(f"0000:{number:02x}:00.0 0302 10de:2330", driver=bound)


def archive(machine: t.Any, version: str, branch: str = "535", folder: str = LIB) -> None:
    """The libraries of the distribution's packages."""
    machine.library(version, folder)
    paths = [f"{folder}/{name}.so.{version}" for name in ("libnvidia-ml", "libcuda")]
    machine.debian_package(f"libnvidia-compute-{branch}:amd64", f"{version}-0ubuntu0.24.04.1", *paths)


def dkms(machine: t.Any, package: str, version: str) -> None:
    machine.file(f"/lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko:\n")
    machine.file(f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko", b"\x7fELF")
    machine.file(f"/var/lib/dkms/nvidia/{version}/{KERNEL}/x86_64/log/make.log", "")
    machine.file(f"/usr/src/nvidia-{version}/dkms.conf", 'BUILT_MODULE_NAME[0]="nvidia"\n')
    machine.debian_package(package, f"{version}-0ubuntu1", f"/usr/src/nvidia-{version}/dkms.conf")


def nodes(machine: t.Any, *names: str) -> None:
    for name in names:
        machine.file(f"/dev/{name}", "")


def upgraded_under_a_loaded_module(machine: t.Any) -> None:
    """zzzhouuu/truenas-nvidia-drivers#19: 580.173.02 is loaded beside a library 580.178."""
    host(machine)
    machine.module("580.173.02")
    archive(machine, "580.178", "580")
    nodes(machine, "nvidia0", "nvidiactl", "nvidia-uvm")


def gpus_that_nouveau_holds(machine: t.Any) -> None:
    """NVIDIA/gpu-driver-container#44 and its kind: everything is installed, and nouveau came first."""
    host(machine, bound="nouveau")
    archive(machine, "535.261.03")


def an_installed_driver_that_was_not_loaded(machine: t.Any) -> None:
    """BiBiServ/bibigrid#705: slurmd waits for /dev/nvidia0, which nobody has made yet."""
    host(machine, bound="")
    archive(machine, "535.261.03")


def no_device_node(machine: t.Any) -> None:
    """The same with the module loaded: the node comes at the first use, and slurmd starts before."""
    host(machine, gpus=2)
    machine.module("535.261.03")
    archive(machine, "535.261.03")
    nodes(machine, "nvidiactl")


def a_job_without_gres(machine: t.Any) -> None:
    """sensein/senselab#516: eight GPUs on the bus, none in the job: no reason to call it a CPU host."""
    host(machine, gpus=8)


def windows_with_a_linux_driver(machine: t.Any) -> None:
    """microsoft/WSL#40680: 535 of the distribution beside Windows' own libraries."""
    machine.file("/proc/sys/kernel/osrelease", "6.6.87.2-microsoft-standard-WSL2\n")
    machine.file("/etc/os-release", "ID=ubuntu\n")
    machine.file("/dev/dxg", "")
    for name in libraries.NAMES:
        machine.file(f"{libraries.WSL_FOLDER}/{name}", b"\x7fELF")
    archive(machine, "535.309.01")


def copied_commands(machine: t.Any) -> None:
    """The distribution's driver, then CUDA from a repository on the disk, which brings a driver of its own."""
    host(machine)
    dkms(machine, "nvidia-dkms-535", "535.261.03")
    machine.library("570.86.15")
    paths = [f"{LIB}/{name}.so.570.86.15" for name in ("libnvidia-ml", "libcuda")]
    machine.debian_package("libnvidia-compute-570:amd64", "570.86.15-0ubuntu1", *paths)
    machine.file("/etc/apt/sources.list.d/cuda-ubuntu2404-12-8-local.list", "deb file:/var/cuda-repo-ubuntu2404 /\n")


def compat_before_the_driver(machine: t.Any) -> None:
    """gpustack/gpustack#1254 (error 804): cuda-compat on the loader's path shadows the driver's own library."""
    host(machine)
    machine.module("535.261.03")
    archive(machine, "535.261.03")
    nodes(machine, "nvidia0", "nvidiactl", "nvidia-uvm")
    folder = "/usr/local/cuda-12.8/compat"
    machine.file(f"{folder}/libcuda.so.570.86.15", b"\x7fELF")
    machine.link(f"{folder}/libcuda.so.1", "libcuda.so.570.86.15")
    machine.debian_package("cuda-compat-12-8", "570.86.15-1", f"{folder}/libcuda.so.570.86.15")
    cached = f"glibc-ld.so.cache1.1\0libcuda.so.1\0{folder}/libcuda.so.1\0libcuda.so.1\0{LIB}/libcuda.so.1\0"
    machine.file("/etc/ld.so.cache", cached.encode())


def runfile_over_packages(machine: t.Any) -> None:
    """The .run installer over the distribution's packages: the next upgrade undoes one of them."""
    host(machine)
    archive(machine, "535.261.03")
    machine.library("580.95.05", "/usr/lib64")
    machine.file("/usr/bin/nvidia-uninstall", "")
    machine.module("580.95.05")
    nodes(machine, "nvidia0", "nvidiactl", "nvidia-uvm")


CASES: t.List[
    t.Tuple[t.Callable[[t.Any], None], t.Dict[str, str], t.Dict[str, t.Tuple[str, t.List[str]]], t.Set[str]]
] = [
    (
        upgraded_under_a_loaded_module,
        {},
        {"driver-library-mismatch": ("fail", ["580.173.02", "580.178"])},
        {"gpu-without-driver", "driver-libraries"},
    ),
    (gpus_that_nouveau_holds, {}, {"gpu-without-driver": ("fail", ["bound to nouveau", "not loaded"])}, set()),
    (an_installed_driver_that_was_not_loaded, {}, {"gpu-without-driver": ("fail", ["nvidia is not loaded"])}, set()),
    (no_device_node, {}, {"device-nodes": ("fail", ["0 of 2 GPUs have a device node"])}, {"gpu-without-driver"}),
    (a_job_without_gres, {"SLURM_JOB_ID": "4711"}, {"gpus-hidden": ("unknown", ["job 4711"])}, {"foreign-accelerator"}),
    (
        windows_with_a_linux_driver,
        {},
        {"driver-owners": ("fail", ["wsl", "libnvidia-compute-535 535.309.01"])},
        {"accelerator-present"},
    ),
    (
        copied_commands,
        {},
        {"driver-owners": ("fail", ["nvidia-dkms-535 535.261.03", "libnvidia-compute-570 570.86.15"])},
        {"driver-libraries"},
    ),
    (
        compat_before_the_driver,
        {},
        {"driver-libraries": ("fail", ["/usr/local/cuda-12.8/compat/libcuda.so.1 (cuda-compat-12-8", "535.261.03"])},
        set(),
    ),
    (
        runfile_over_packages,
        {},
        {"driver-owners": ("fail", ["/usr/bin/nvidia-uninstall", "libnvidia-compute-535 535.261.03"])},
        set(),
    ),
]


@pytest.mark.parametrize(("lay_out", "environment", "must", "must_not"), CASES, ids=[row[0].__name__ for row in CASES])
def test_a_host_of_the_field(
    machine: t.Any,
    lay_out: t.Callable[[t.Any], None],
    environment: t.Dict[str, str],
    must: t.Dict[str, t.Tuple[str, t.List[str]]],
    must_not: t.Set[str],
) -> None:
    lay_out(machine)
    observed = observe(machine.runner(**environment))
    decision = accelerator.decide(observed, accelerator.Policy(accelerator="auto"))
    findings = [*decision.findings, *driver.check(observed)]
    said = {finding.check: finding for finding in findings if finding.state not in ("ok", "not_applicable")}
    for check, (state, words) in must.items():
        assert check in said, sorted(said)
        assert said[check].state == state
        text = f"{said[check].found} {said[check].reason}"
        assert (
            any(word in text for word in words) if check == "device-nodes" else all(word in text for word in words)
        ), text
    assert must_not & set(said) == set()
    # Whatever is wrong with it: it has GPUs, and it is not ready.
    assert decision.accelerator != accelerator.CPU
    assert fold(findings) != "ready"
