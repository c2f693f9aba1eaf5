# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of packages and of the repository, for a plan, as the host's package manager takes them."""

from __future__ import annotations

import functools
import re
import typing as t

from . import model, version
from .driver import Driver
from .host import Host


def family(host: Host) -> str:
    """The family of packages, "" where the operating system is not known."""
    return host.system.family if host.system else ""


def fill(names: t.Iterable[str], **values: t.Any) -> list[str]:
    """The names with their places filled in."""
    return [name.format(**values) for name in names]


def exact(host: Host, names: t.Iterable[str], driver: Driver) -> list[str]:
    """The names held to the driver's version, or to its branch where only that is decided."""
    sign = "-" if family(host) == "rhel" else "="
    held = driver.version or f"{driver.branch}."
    return [f"{name}{sign}{held}*" for name in names]


def driver_row(host: Host, driver: Driver) -> model.PackageRow | None:
    """The row that names the packages of a driver, None where there is none to install or name."""
    repository = host.system.repository if host.system else ""
    return _driver_row(family(host), repository, driver.origin, driver.flavour, driver.build, driver.branch, host.data)


@functools.lru_cache(maxsize=4096)
def _driver_row(
    family_: str, repository: str, origin: str, flavour: str, build: str, branch: int, data: model.Data
) -> model.PackageRow | None:
    for row in data.driver_packages:
        if row.family != family_ or row.origin != origin or row.flavour != flavour or row.build not in ("", build):
            continue
        if row.low <= branch <= row.high and (not row.repositories or repository in row.repositories):
            return row
    return None


def driver_packages(host: Host, driver: Driver, row: model.PackageRow | None) -> list[str]:
    """The packages of a driver that is to be installed."""
    if row is None:
        return []
    names = row.lists["packages"] + (row.lists.get("prebuilt", ()) if driver.signed else ())
    return fill(names, branch=driver.branch, kernel_flavour=kernel_flavour(host))


def kernel_flavour(host: Host) -> str:
    """How Ubuntu's packages of modules call the kernel: ``generic-hwe-24.04`` of 6.14.0-24-generic on 24.04.

    A cloud's packages follow the cloud's own kernel; only those of the distribution tell its first from newer ones.
    """
    match = re.fullmatch(r"\d+\.\d+\.\d+-\d+-(.+)", host.request.kernel)
    flavour = match[1] if match else "generic"
    first = host.system.kernel if host.system else ""
    if flavour in ("generic", "generic-64k", "lowlatency") and first and host.kernel[:2] > version.parse(first):
        return f"{flavour}-hwe-{host.request.os_version}"
    return flavour


def fabric_row(host: Host, driver: Driver) -> model.PackageRow | None:
    """The row that names fabric manager and its kin."""
    origin = "nvidia" if driver.stays else driver.origin
    for row in host.data.fabric_packages:
        if row.family == family(host) and row.origin == origin and row.low <= driver.branch <= row.high:
            return row
    return None


def library_row(host: Host) -> model.PackageRow | None:
    """The row that names toolkit, cuDNN and NCCL; they come from NVIDIA's repository."""
    if not host.system or not host.system.repository:
        return None
    return next((row for row in host.data.library_packages if row.family == family(host)), None)


def toolkit_wheels(toolkit: str) -> list[str]:
    """Wheels with nvcc and what it needs beside the runtime that torch requires, as requirements.

    None for CUDA 12 and older, whose nvcc wheel holds ptxas alone (nvidia-cuda-nvcc-cu12 12.8.93; nvidia-cuda-nvcc
    13.0.88 holds nvcc, and requires nvidia-nvvm and nvidia-cuda-crt).
    """
    if version.major(toolkit) < 13:
        return []
    return [
        f"{name}=={toolkit}.*" for name in ("nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-cuda-nvcc", "nvidia-nvvm")
    ]


def repository(host: Host) -> dict[str, t.Any]:
    """NVIDIA's repository for the host with its key, {} where there is none."""
    if not host.system or not host.system.repository:
        return {}
    row = host.data.repositories[host.system.repository]
    key = host.data.keys[row.key]
    url = host.data.repository_url.format(name=row.name, arch=host.data.repository_arches[host.arch])
    return {"name": row.name, "url": url, "key": {"id": key.id, "url": url + key.file, "fingerprint": key.fingerprint}}


def repository_warnings(host: Host) -> list[str]:
    """What to know of the key before the repository is written."""
    if not host.system or not host.system.repository:
        return []
    key = host.data.keys[host.data.repositories[host.system.repository].key]
    found = []
    if not key.fingerprint:
        found.append(
            f"key {key.id} of repository {host.system.repository}: its fingerprint is not known, compare it once"
        )
    if key.refused_from and (host.system.id, host.system.version) in host.data.sqv_systems:
        found.append(f"key {key.id} is refused since {key.refused_from} by {key.refused_by}")
    return found
