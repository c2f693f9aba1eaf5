# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the contract, from the best candidate; why each part was chosen and what else there was."""

from __future__ import annotations

import re
import typing as t

from . import packages, rules_driver, version
from .driver import Driver
from .host import Host, architecture, flavours
from .reasons import reasons
from .resolver import Candidate, Outcome
from .torch_wish import Wheel
from .warnings import warnings

Part = dict[str, t.Any]

#: What the subnet manager speaks to the switches through; without them fabric manager takes the path of older boards
#: and CUDA answers 802 (NVIDIA/gpu-operator#2781).
NVLSM_MODULES = ("ib_umad", "mlx5_ib")


def plan(outcome: Outcome) -> Part:
    """The plan of an outcome that has a best candidate: JSON values only."""
    host, best = outcome.host, outcome.chosen
    found: Part = {"status": "ok", "accelerator": "cpu" if host.cpu else "cuda", "torch": torch_part(host, best.wheel)}
    if best.driver is not None:
        found["driver"] = driver_part(host, best)
        found["cuda"] = cuda_part(host, best)
        found |= library_parts(host, best.wheel)
        found["fabric_manager"] = fabric_part(host, best.driver)
        found["repository"] = packages.repository(host)
    found["reasons"] = reasons(outcome)
    found["warnings"] = warnings(outcome)
    return found


def torch_part(host: Host, wheel: Wheel) -> Part:
    """What pip installs, from one index."""
    release = wheel.release
    label = f"+{wheel.label}"
    since = version.parse(host.data.cpu.aarch64_label_since)
    if wheel.variant is None and host.arch == "aarch64" and version.parse(release.version) < since:
        label = ""
    return {
        "version": release.version,
        "variant": wheel.label,
        "requirement": f"torch=={release.version}{label}",
        "index_url": host.data.index_url.format(variant=wheel.label),
        "torchvision": release.torchvision,
        "torchaudio": release.torchaudio,
        "triton": release.triton if wheel.variant else "",
        "python_packages": {"numpy": release.numpy} if release.numpy else {},
    }


def minimum_driver(host: Host, best: Candidate) -> str:
    """The oldest driver for this build on these GPUs; with forward compatibility the oldest that carries it."""
    cuda = best.wheel.build.cuda
    floors = [host.data.majors[version.major(cuda)].driver]
    if best.forward:
        base = rules_driver.forward_base(host, cuda)
        floors = [host.data.branches[base].first]
    known = [architecture(match.gpu.compute_capability, host.data) for match in host.gpus]
    floors += [host.data.branches[row.first_driver].first for row in known if row and row.first_driver]
    floors += [match.gpu.driver_min for match in host.gpus if match.gpu.driver_min]
    return max(floors, key=version.parse)


def driver_part(host: Host, best: Candidate) -> Part:
    """The driver: what is there and stays, or what is to be installed."""
    driver = best.base
    row = packages.driver_row(host, driver)
    flavour = driver.flavour
    if not flavour and not host.windows:
        possible = set.intersection(*(set(flavours(match, host.data)) for match in host.gpus))
        flavour = possible.pop() if len(possible) == 1 else "unknown"
    return {
        "branch": str(driver.branch),
        "minimum": minimum_driver(host, best),
        "version": driver.version,
        "kernel_module": flavour,
        "source": "" if driver.stays else "nvidia" if driver.origin == "nvidia" else "os",
        "build": driver.build,
        "signed": driver.signed,
        "action": driver.action,
        "packages": packages.driver_packages(host, driver, row),
        "stream": row.stream.format(branch=driver.branch) if row else "",
        "lock": row.lock.format(branch=driver.branch) if row else "",
    }


def cuda_part(host: Host, best: Candidate) -> Part:
    """CUDA: what the wheel carries, and the toolkit for those who compile against it."""
    cuda = best.wheel.build.cuda
    toolkit = compiling_toolkit(host, cuda)
    row = packages.library_row(host)
    (major, minor), (_same, to_compile) = cuda.split("."), toolkit.split(".")
    compat = packages.fill(row.lists["compat"], major=major, minor=minor) if row and best.forward else []
    names = packages.fill(row.lists["toolkit"], major=major, minor=to_compile) if row else []
    return {
        "runtime": cuda,
        "toolkit": toolkit,
        "packages": names + compat,
        "wheels": packages.toolkit_wheels(toolkit),
        "forward_compat": best.forward,
    }


def compiling_toolkit(host: Host, cuda: str) -> str:
    """The toolkit of the wheel's CUDA, or the next of its major that compiles for the GPUs, where there is one."""
    for toolkit in host.data.toolkits.values():
        number = version.parse(toolkit.version)
        newer = number >= version.parse(cuda) and number[0] == version.major(cuda) and toolkit.published
        if newer and all(
            match.cc <= version.parse(toolkit.cc_max) and match.gpu.compute_capability not in toolkit.lacks
            for match in host.gpus
        ):
            return toolkit.version
    return cuda


def library_parts(host: Host, wheel: Wheel) -> Part:
    """cuDNN and NCCL: the wheel's versions, and packages of the same for those who compile."""
    row = packages.library_row(host)
    build = wheel.build
    cuda_major = version.major(build.cuda)
    found: Part = {}
    for name, number in (("cudnn", build.cudnn), ("nccl", build.nccl)):
        listed = "cudnn8" if name == "cudnn" and version.major(number) == 8 else name
        names = packages.fill(row.lists[listed], major=cuda_major, version=number) if row else []
        found[name] = {"version": number, "packages": names}
    return found


def fabric_part(host: Host, driver: Driver) -> Part:
    """Fabric manager, the subnet manager of the fifth NVLink, and IMEX: all in the driver's own version."""
    required, basis = rules_driver.fabric_required(host)
    nvlsm, imex = required and host.fabric == "nvlink5", host.fabric == "rack"
    row = packages.fabric_row(host, driver)
    names: list[str] = []
    if row and not host.external:
        if required:
            names += packages.exact(host, packages.fill(row.lists["fabric_manager"], branch=driver.branch), driver)
        if nvlsm:
            names += packages.exact(host, packages.fill(row.lists["nvsdm"], branch=driver.branch), driver)
            names += packages.fill(row.lists["nvlsm"], branch=driver.branch)
            # The image of a cloud's kernel leaves these modules to a package of its own.
            if host.request.os_id == "ubuntu" and re.search(r"-(aws|azure|gcp|gke|oracle)", host.request.kernel):
                names.append(f"linux-modules-extra-{host.request.kernel}")
        if imex:
            names += packages.exact(host, packages.fill(row.lists["imex"], branch=driver.branch), driver)
    return {
        "required": required,
        "basis": basis,
        "version": driver.version if required or imex else "",
        "packages": names,
        "nvlsm": nvlsm,
        "imex": imex,
        "kernel_modules": list(NVLSM_MODULES) if nvlsm else [],
    }
