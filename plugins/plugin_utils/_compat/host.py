# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host as the rules see it: the request beside what the data knows of its GPUs and operating system."""

from __future__ import annotations

import dataclasses
import functools
import re

from . import gpu, model, torch_wish, version
from .request import Request

#: Owners whose driver we may replace: nobody, or the packages that we install ourselves. "" is "not said".
OURS = ("", "nobody", "package")
CONTAINERS = ("docker", "podman", "lxc", "lxc-libvirt", "container", "containerd", "systemd-nspawn", "kubernetes")
FLAVOURS = ("open", "proprietary")
NEWEST = 10**6


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Host:
    """``gpus`` are unlike ones only; what is not known is empty or None."""

    request: Request
    data: model.Data
    torch: torch_wish.TorchWish
    cpu: bool
    gpus: tuple[gpu.Match, ...]
    unknown_gpus: tuple[gpu.Unknown, ...]
    displays: tuple[gpu.Match, ...]
    system: model.System | None
    arch: str
    glibc: version.Version
    kernel: version.Version
    owner: str
    installed: version.Version
    installed_branch: model.Branch | None
    fabric: str
    assumed: tuple[str, ...]

    @property
    def fixed_driver(self) -> bool:
        """Whether the driver may not be touched: it is not ours, or the user says so."""
        return self.owner not in OURS or self.request.driver_policy in ("keep", "external")

    @property
    def external(self) -> bool:
        """Whether somebody else looks after the driver."""
        return self.owner not in OURS or self.request.driver_policy == "external"

    @property
    def windows(self) -> bool:
        """Whether the driver is that of Windows, which has numbers of its own and no kernel module."""
        return self.owner == "wsl"

    @property
    def board(self) -> bool:
        """Whether the driver is a part of an embedded board's own software (Jetson, L4T)."""
        return _is_board(self.request)

    @property
    def os_label(self) -> str:
        """The operating system for a person."""
        return f"{self.request.os_id} {self.request.os_version}".strip() or "an operating system that was not named"


def host(request: Request, data: model.Data) -> Host:
    """The host of a request. Nothing is refused here: rules do that."""
    found = [gpu.find(wish, data) for wish in dict.fromkeys(request.gpus)]
    matches = [match for match in found if isinstance(match, gpu.Match)]
    gpus = tuple(match for match in matches if match.gpu.kind != "display")
    system = find_system(request.os_id, request.os_version, data)
    assumed = []
    arch = request.arch
    if not arch:
        arch = "aarch64" if any(match.gpu.grace for match in gpus) else "x86_64"
        assumed.append(f"machine architecture {arch}")
    driver = request.driver
    if not driver and not request.driver_owner and request.accelerator != "cpu":
        assumed.append("that no driver is installed")
    if driver.isdigit() and (branch := data.branches.get(int(driver))):
        driver = branch.first or driver
        assumed.append(f"driver {driver}, the first known of branch {request.driver}")
    installed = version.parse(driver) if driver else ()
    owner = _owner(request, gpus)
    if owner == "wsl" and installed:
        # Windows counts 581 and 582 where Linux stays at 580: the branch is the newest that is not newer.
        branches = [number for number in data.branches if number <= installed[0]]
        installed = (branches[-1] if branches else installed[0], NEWEST)
    glibc = request.glibc or (system.glibc if system else "")
    return Host(
        request=request,
        data=data,
        torch=torch_wish.read(request.torch, data),
        cpu=request.accelerator == "cpu",
        gpus=gpus,
        unknown_gpus=tuple(match for match in found if isinstance(match, gpu.Unknown)),
        displays=tuple(match for match in matches if match.gpu.kind == "display"),
        system=system,
        arch=arch,
        glibc=version.parse(glibc) if glibc else (),
        kernel=version.leading(request.kernel),
        owner=owner,
        installed=installed,
        installed_branch=data.branches.get(installed[0]) if installed else None,
        fabric=_fabric(gpus),
        assumed=tuple(assumed),
    )


@functools.lru_cache(maxsize=256)
def find_system(os_id: str, os_version: str, data: model.Data) -> model.System | None:
    """The system of os-release's id and version; rebuilds by the one whose packages they take."""
    for name in dict.fromkeys((os_id, data.same_as.get(os_id, ""))):
        for system in data.systems:
            if system.id == name and (os_version == system.version or os_version.startswith(system.version + ".")):
                return system
    return None


_BOARDS = re.compile(r"\bnvgpu\b|\b(jetson|tegra|xavier|orin)\b", re.IGNORECASE)


def _is_board(request: Request) -> bool:
    return request.kernel.endswith("-tegra") or any(_BOARDS.search(wish.name) for wish in request.gpus)


def _owner(request: Request, gpus: tuple[gpu.Match, ...]) -> str:
    if request.driver_owner and request.driver_owner not in ("nobody", "package"):
        return request.driver_owner
    if _is_board(request):
        return "board"
    if any(match.vgpu for match in gpus):
        return "vgpu_guest"
    if request.virtualization == "wsl" or re.search("microsoft", request.kernel, re.IGNORECASE):
        return "wsl"
    if request.virtualization in CONTAINERS:
        return "container_guest"
    return request.driver_owner


def _fabric(gpus: tuple[gpu.Match, ...]) -> str:
    kinds = {match.gpu.fabric for match in gpus if not match.vgpu}
    return next((kind for kind in ("rack", "nvlink5", "nvswitch", "unknown") if kind in kinds), "none")


@functools.lru_cache(maxsize=256)
def architecture(capability: str, data: model.Data) -> model.Architecture | None:
    """The architecture of a compute capability, None where the data has none."""
    number = version.parse(capability)
    return next((row for row in data.architectures if row.low <= number < row.high), None)


def flavours(match: gpu.Match, data: model.Data) -> tuple[str, ...]:
    """Which kernel modules drive the GPU: a Grace superchip's only the open one."""
    row = architecture(match.gpu.compute_capability, data)
    if match.gpu.grace:
        return ("open",)
    return row.flavours if row else FLAVOURS
