# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about a driver on a host, and about a driver beneath a build of torch."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from . import model, packages, version
from .cause import MATRIX, Cause, Rule, Said
from .driver import Driver
from .host import FLAVOURS, Host, architecture, flavours
from .torch_wish import Wheel

KERNEL_OPEN = "NVIDIA kernel_open README 580.95.05 and 595.58.03; driver-installation-guide 620 kernel-modules.html"


def _from_archive(driver: Driver) -> bool:
    return driver.origin not in ("installed", "nvidia")


def _lacks(host: Host, driver: Driver) -> t.Iterator[Said]:
    for match in host.gpus:
        row = architecture(match.gpu.compute_capability, host.data)
        if row and row.first_driver > driver.branch:
            yield match.label, str(driver), f"branch {row.first_driver} or newer for {row.name}"
        elif match.gpu.driver_min and driver.effective < version.parse(match.gpu.driver_min):
            yield match.label, str(driver), f"driver {match.gpu.driver_min} or newer"


def _driver_lacks_gpu(host: Host, driver: Driver) -> t.Iterator[Said]:
    if not _from_archive(driver):
        yield from _lacks(host, driver)


def _driver_dropped_gpu(host: Host, driver: Driver) -> t.Iterator[Said]:
    for match in host.gpus:
        row = architecture(match.gpu.compute_capability, host.data)
        if row and row.last_driver and driver.branch > row.last_driver:
            yield match.label, str(driver), f"branch {row.last_driver} or older, the last with {row.name}"


def _wrong_module(host: Host, driver: Driver, kind: str) -> t.Iterator[Said]:
    wish = host.request.kernel_module
    # Of an installed driver whose module nobody named, the wish says what it is taken to be.
    flavour = driver.flavour or (wish if wish in FLAVOURS and not host.windows else "")
    if not flavour or flavour == kind:
        return
    for match in host.gpus:
        if flavours(match, host.data) == (kind,):
            found = str(driver) if driver.flavour else f"{driver} with the {flavour} kernel module, as wished"
            yield match.label, found, f"the {kind} kernel module"


def _open_module_required(host: Host, driver: Driver) -> t.Iterator[Said]:
    return _wrong_module(host, driver, "open")


def _proprietary_module_required(host: Host, driver: Driver) -> t.Iterator[Said]:
    return _wrong_module(host, driver, "proprietary")


def _module_not_as_wished(host: Host, driver: Driver) -> t.Iterator[Said]:
    wish = host.request.kernel_module
    if wish in FLAVOURS and driver.flavour and driver.flavour != wish:
        yield "driver", str(driver), f"the {wish} kernel module, as wished"


def kernel_rows(host: Host, driver: Driver) -> list[model.KernelRow]:
    """The rows that say that the driver does not build on the host's kernel."""
    if driver.build == "prebuilt" or not host.kernel:
        return []
    return [
        row
        for row in host.data.kernels
        if host.kernel >= version.leading(row.kernel_min)
        and row.kernel_contains in host.request.kernel
        and version.parse(row.driver_min) <= driver.effective <= version.parse(row.driver_max)
    ]


def _kernel_too_new(host: Host, driver: Driver) -> t.Iterator[Said]:
    for row in kernel_rows(host, driver):
        needs = f"driver {row.fixed} or newer" if row.fixed else f"a driver newer than {row.driver_max}"
        needs += f", or a kernel before {row.kernel_min}{row.kernel_contains}"
        yield "kernel", f"kernel {host.request.kernel}, on which {driver} does not build", needs
        return
    # Nothing was read of it; but the last release of an ended branch cannot know what came later. What is installed
    # already, or what a distribution builds and mends itself, is not judged by that.
    newest = driver.row.kernel if driver.row and driver.origin == "nvidia" else ""
    if newest and host.kernel[:2] > version.parse(newest):
        found = f"kernel {host.request.kernel}, which is newer than the last release of branch {driver.branch}"
        yield "kernel", found, f"a branch that gets fixes, or kernel {newest} or older"


def older_kernel(host: Host, driver: Driver) -> str:
    """A kernel on which the driver builds, as a step for a person."""
    rows = kernel_rows(host, driver)
    if rows:
        least = min((row.kernel_min for row in rows), key=version.leading)
        return f"a kernel before {least}, on which {driver} builds"
    newest = driver.row.kernel if driver.row else ""
    return f"kernel {newest} or older, on which {driver} builds"


#: A kernel of Ubuntu's archive: version, ABI, flavour. One that somebody else built has no ABI of that form.
_OF_UBUNTU = re.compile(r"\d+\.\d+\.\d+-[1-9]\d{0,3}-[a-z].*")
#: A kernel of Enterprise Linux's: 5.14.0-570.12.1.el9_6.x86_64. A variant's module is another one.
_OF_RHEL = re.compile(r"\d+\.\d+\.\d+-[\d.]+\.el\d+(_\d+)?\.\w+")


def _not_prebuilt(host: Host, driver: Driver) -> t.Iterator[Said]:
    kernel = host.request.kernel
    own = _OF_RHEL if packages.family(host) == "rhel" else _OF_UBUNTU
    if driver.build == "prebuilt" and kernel and not own.fullmatch(kernel):
        yield "kernel", f"kernel {kernel}", f"a kernel of the distribution's own: only for those {driver} is prebuilt"


def _kernel_too_old(host: Host, driver: Driver) -> t.Iterator[Said]:
    oldest = host.data.open_kernel_min
    if driver.build == "dkms" and driver.flavour == "open" and host.kernel and host.kernel < version.parse(oldest):
        yield "kernel", f"kernel {host.request.kernel}", f"kernel {oldest} or newer for {driver}"


def _headers_unavailable(host: Host, driver: Driver) -> t.Iterator[Said]:
    if host.request.headers == "missing" and driver.build == "dkms":
        yield "kernel", f"no headers of kernel {host.request.kernel or '(not named)'}", f"headers, to build {driver}"


def _secure_boot(host: Host, driver: Driver) -> t.Iterator[Said]:
    if host.request.secure_boot and not host.request.mok_enrolled and driver.build == "dkms" and not driver.signed:
        yield (
            "driver",
            f"{driver}, built here, under Secure Boot",
            "a signed module, or an enrolled key to sign it with",
        )


def _driver_not_offered(host: Host, driver: Driver) -> t.Iterator[Said]:
    if driver.stays or not host.request.os_id or packages.driver_row(host, driver):
        return
    found = f"{driver}, of which no package is known that holds its branch on {host.os_label}"
    yield "driver", found, "a driver that is installed already, or a system whose packages are known"


def fabric_required(host: Host) -> tuple[bool, str]:
    """Whether a fabric manager is needed, and how that is known: observed, inferred, or unknown (none is planned)."""
    if host.fabric == "rack":
        return False, "inferred"
    if host.request.nvswitch is not None and (host.request.nvswitch or host.fabric != "nvlink5"):
        return host.request.nvswitch > 0, "observed"
    # NVSwitches of the fifth NVLink are behind network devices: that none is on the PCI bus says nothing.
    if host.fabric == "unknown":
        return False, "unknown"
    return host.fabric in ("nvswitch", "nvlink5"), "inferred"


def _fabric_manager_mismatch(host: Host, driver: Driver) -> t.Iterator[Said]:
    required, _basis = fabric_required(host)
    if not required:
        return
    other = host.request.fabric_manager
    if driver.stays and host.external and other:
        # Of a driver of which only the branch was given, no more can be compared.
        known = driver.effective if driver.version else driver.effective[:1]
        if version.parse(other)[: len(known)] != known:
            needs = f"exactly {driver.version or f'branch {driver.branch}'}, the version of the driver"
            yield "fabric manager", f"fabric manager {other}", needs
    family = host.system.family if host.system else ""
    rows = [row for row in host.data.fabric_packages if row.family == family and row.origin == driver.origin]
    if family and _from_archive(driver) and not rows:
        found = f"no fabric manager of version {driver.version or driver.branch} in the archive of {host.os_label}"
        yield "fabric manager", found, "a source that carries it in the driver's version"


def _os_package_too_old(host: Host, driver: Driver) -> t.Iterator[Said]:
    if _from_archive(driver):
        for subject, _found, needs in _lacks(host, driver):
            yield subject, f"{driver} in the archive of {host.os_label}", needs


DRIVER_RULES = (
    Rule("driver-not-offered", "A driver comes from packages that hold its branch.",
         "the packages in the data", _driver_not_offered),
    Rule("driver-lacks-gpu", "A driver drives the GPUs that were out when its branch began.",
         f"{MATRIX}; MIG user guide 620", _driver_lacks_gpu),
    Rule("os-package-too-old", "A distribution's driver can be older than the GPU, or than CUDA, needs.",
         "packages.debian.org, packages.ubuntu.com", _os_package_too_old),
    Rule("driver-dropped-gpu", "Branches after 580 do not drive Maxwell, Pascal and Volta; after 470 not Kepler.",
         MATRIX, _driver_dropped_gpu),
    Rule("open-module-required", "Blackwell and Grace superchips need the open kernel modules.",
         KERNEL_OPEN, _open_module_required),
    Rule("proprietary-module-required", "GPUs before Turing have no GSP and need the proprietary kernel modules.",
         KERNEL_OPEN, _proprietary_module_required),
    Rule("module-not-as-wished", "The kernel module is of the flavour that the user wants.",
         "by design", _module_not_as_wished),
    Rule("kernel-too-new-for-driver", "A module builds on the kernels that its release knows.",
         "the kernels in the data", _kernel_too_new),
    Rule("module-not-prebuilt", "Modules are prebuilt for the distribution's own kernels.",
         "packages.ubuntu.com; NVIDIA/yum-packaging-nvidia-driver docs/guide-rhel8.md", _not_prebuilt),
    Rule("kernel-too-old-for-driver", "The open kernel modules build on Linux 4.15 and newer.",
         "NVIDIA/open-gpu-kernel-modules README 595", _kernel_too_old),
    Rule("headers-unavailable", "A module is built from the headers of the kernel that it is for.",
         "NVIDIA/open-gpu-kernel-modules README", _headers_unavailable),
    Rule("secure-boot-unsigned-module", "Under Secure Boot the kernel loads only signed modules.",
         "deduced; Ubuntu and RHEL sign the modules that they build", _secure_boot),
    Rule("fabric-manager-mismatch", "The fabric manager has the driver's own version.",
         "NVIDIA/nvtrust#55", _fabric_manager_mismatch),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Forward:
    """Whether cuda-compat carries a build over an older driver: ``why`` it does not, "" where it does."""

    why: str
    inferred: bool = False


def too_old(host: Host, wheel: Wheel, driver: Driver) -> str:
    """The driver that the build needs where this one is older, else ""."""
    if not wheel.variant:
        return ""
    floor = host.data.majors[version.major(wheel.variant.cuda)].driver
    return floor if driver.effective < version.parse(floor) else ""


def forward(host: Host, wheel: Wheel, driver: Driver) -> Forward:
    """Whether forward compatibility is supported for this build on this driver."""
    others = [match.label for match in host.gpus if match.gpu.kind != "datacenter"]
    if others:
        return Forward(f"{', '.join(others)}: only data-centre GPUs have it")
    cuda = version.parse(wheel.build.cuda)
    for row in host.data.forward_compat:
        if version.parse(row.cuda) <= cuda <= version.parse(row.cuda_to):
            why = (
                "" if driver.branch >= row.base else f"{driver}: cuda-compat {wheel.build.cuda} needs branch {row.base}"
            )
            return Forward(why, row.is_inferred("base"))
    return Forward(f"there is no cuda-compat for CUDA {wheel.build.cuda}")


def forward_base(host: Host, cuda: str) -> int:
    """The oldest branch that cuda-compat of this CUDA is supported on. LookupError where there is none."""
    for row in host.data.forward_compat:
        if version.parse(row.cuda) <= version.parse(cuda) <= version.parse(row.cuda_to):
            return row.base
    raise LookupError(f"there is no cuda-compat for CUDA {cuda}")


def _uncovered(host: Host, wheel: Wheel, driver: Driver) -> str:
    """The driver that the build needs, where neither this one nor cuda-compat serves."""
    floor = too_old(host, wheel, driver)
    return "" if floor and host.request.forward_compat and not forward(host, wheel, driver).why else floor


def _driver_too_old(host: Host, wheel: Wheel, driver: Driver) -> t.Iterator[Said]:
    if not _from_archive(driver) and (floor := _uncovered(host, wheel, driver)):
        known = f", which knows CUDA {driver.row.cuda}" if driver.row else ""
        yield "driver", f"{driver}{known}", f"driver {floor} or newer for {wheel}"


def _archive_too_old(host: Host, wheel: Wheel, driver: Driver) -> t.Iterator[Said]:
    if _from_archive(driver) and (floor := _uncovered(host, wheel, driver)):
        yield "driver", f"{driver} in the archive of {host.os_label}", f"driver {floor} or newer for {wheel}"


def _forward_compat(host: Host, wheel: Wheel, driver: Driver) -> t.Iterator[Said]:
    if host.request.forward_compat and too_old(host, wheel, driver) and (why := forward(host, wheel, driver).why):
        yield "driver", why, f"a driver for {wheel}, or a data-centre GPU on a branch that cuda-compat supports"


PAIR_RULES = (
    Rule("driver-too-old", "A build runs on any driver from the floor of its CUDA major on: 450.80.02, 525.60.13, 580.",
         "CUDA release notes table 2; pytorch/pytorch#162531", _driver_too_old),
    Rule("os-package-too-old", "A distribution's driver can be older than the GPU, or than CUDA, needs.",
         "packages.debian.org, packages.ubuntu.com", _archive_too_old),
    Rule("forward-compat-unsupported", "cuda-compat carries a newer CUDA only on data-centre GPUs and known branches.",
         "docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html", _forward_compat),
)  # fmt: skip


def causes(rules: t.Iterable[Rule], *given: t.Any) -> list[Cause]:
    """What these rules find wrong."""
    return [cause for rule in rules for cause in rule.causes(*given)]
