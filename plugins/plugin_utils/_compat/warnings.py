# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person should know beside a plan: deduced cells, limits of compatibility, ended branches, known faults."""

from __future__ import annotations

import dataclasses
import re

from . import model, packages, rules_driver, version
from .host import Host, flavours
from .resolver import Candidate, Outcome, resolve
from .torch_wish import Wheel, read


def warnings(outcome: Outcome) -> list[str]:
    """The warnings of an outcome that has a best candidate."""
    host, best = outcome.host, outcome.chosen
    found = _not_the_newest(outcome)
    if host.assumed:
        found.append("assumed, because not given: " + ", ".join(host.assumed))
    if best.driver is not None:
        found += _driver(host, best) + _ptx(host, best) + _nccl(host, best.wheel) + _compiler(host, best.wheel)
        found += packages.repository_warnings(host)
        if host.request.os_id and host.system is None:
            found.append(f"{host.os_label}: its packages are not known, so the plan names none")
        found += _gpus(host)
        found += [f"{match.label} drives a display and is left out" for match in host.displays]
    if deduced := _deduced(host, best):
        found.append("deduced, not read: " + "; ".join(deduced))
    return found


def _not_the_newest(outcome: Outcome) -> list[str]:
    host, best = outcome.host, outcome.chosen
    newest = host.torch.releases[0]
    if not host.torch.newest_first or best.wheel.release is newest:
        return []
    if outcome.held_back:
        return [f"for the sake of hosts that share jobs with it, this host does not run {outcome.held_back}"]
    there = resolve(_with_torch(host, newest.version))
    why = "; ".join(f"{cause.rule}: {cause.found}" for cause in there.causes)
    return [f"torch {newest.version} is newer, and does not work here ({why})"]


def _with_torch(host: Host, text: str) -> Host:
    return dataclasses.replace(host, torch=read(text, host.data))


def _driver(host: Host, best: Candidate) -> list[str]:
    driver = best.base
    found = []
    row = driver.row
    if row is None:
        found.append(f"driver branch {driver.branch} is not in the data: nothing is known of its window and its end")
    elif not row.supported:
        ended = f" (ended {row.eol})" if row.eol != "ended" else ""
        found.append(f"driver branch {driver.branch} gets no more fixes{ended}")
    if not driver.flavour and not host.windows:
        needing = [match.label for match in host.gpus if len(flavours(match, host.data)) == 1]
        if needing:
            kind = flavours(next(m for m in host.gpus if len(flavours(m, host.data)) == 1), host.data)[0]
            found.append(f"which kernel module is installed is not known; {', '.join(needing)} needs the {kind} one")
    if driver.build == "dkms" and host.request.secure_boot is None:
        found.append("whether Secure Boot is on is not known: it refuses a module that is built here and not signed")
    if driver.action == "downgrade":
        found.append(f"{driver} is older than the installed {host.request.driver}: a downgrade, as wished")
    return found


def _gpus(host: Host) -> list[str]:
    """What is not known of the products."""
    found = [
        f"{match.label}: a product in no list, of which only the stated compute capability is known; "
        "the oldest driver that knows it is not"
        for match in host.gpus
        if match.how == "given"
    ]
    if rules_driver.fabric_required(host)[1] == "unknown":
        names = ", ".join(match.label for match in host.gpus if match.gpu.fabric == "unknown")
        found.append(
            f"whether {names} sits on an NVSwitch board is not known from the name, so no fabric manager is planned; "
            "say how many switches there are (nvswitch)"
        )
    return found


def _ptx(host: Host, best: Candidate) -> list[str]:
    """Minor version compatibility does not cover PTX that is newer than the driver."""
    driver, variant = best.base, best.wheel.build
    if driver.row is None or best.forward or version.parse(variant.cuda) <= version.parse(driver.row.cuda):
        return []
    return [
        f"PTX compiled with CUDA {variant.cuda} fails on driver branch {driver.branch}, which knows {driver.row.cuda} "
        "(cudaErrorUnsupportedPtxVersion); native code, and so torch's own, runs"
    ]


def _compiler(host: Host, wheel: Wheel) -> list[str]:
    """The toolkit refuses a host compiler that is newer than it knows."""
    toolkit = host.data.toolkits[wheel.build.cuda]
    gcc = re.search(r"gcc\D*(\d+)", host.request.compiler, re.IGNORECASE)
    if not gcc or not toolkit.gcc_max or int(gcc[1]) <= version.major(toolkit.gcc_max):
        return []
    return [f"CUDA toolkit {toolkit.version} compiles with GCC up to {toolkit.gcc_max}; found {host.request.compiler}"]


def _nccl(host: Host, wheel: Wheel) -> list[str]:
    number = version.parse(wheel.build.nccl)
    return [
        f"NCCL {wheel.build.nccl} of {wheel} {row.says} (good from {row.high} on; {row.source})"
        for row in host.data.nccl
        if version.parse(row.low) <= number < version.parse(row.high) and row.arch in ("", host.arch)
    ]


def _deduced(host: Host, best: Candidate) -> list[str]:
    """The cells that the plan leans on and that were not read."""
    found: list[str] = []
    wheel = best.wheel
    variant = wheel.variant
    if variant is not None:
        cells = ["published", "cudnn", "nccl", host.arch]
        found += _cells(variant, str(wheel), cells)
    for match in host.gpus:
        if not match.stated and match.gpu.is_inferred("compute_capability"):
            found.append(f"compute capability {match.gpu.compute_capability} of {match.label}")
    if best.driver is not None and best.driver.row is not None and not best.driver.stays:
        found += _cells(
            best.driver.row, f"driver branch {best.driver.branch}", ["kind", "cuda", "cc_min", "cc_max", "eol"]
        )
        row = packages.driver_row(host, best.driver)
        if row is not None:
            found += _cells(row, "driver packages", ["packages"] + (["prebuilt"] if best.driver.signed else []))
        if best.driver.origin == "nvidia" and host.system and host.system.repository:
            repository = host.data.repositories[host.system.repository]
            found += _cells(repository, f"repository {repository.name}", ["key", "branch_min"])
    return found


_WORDS = {
    "published": "that it is on the index",
    "branch_min": "that it carries the branch",
    "aarch64": "the code for aarch64",
    "x86_64": "the code for x86_64",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "cuda": "CUDA",
    "cc_min": "the oldest GPUs",
    "cc_max": "the newest GPUs",
    "eol": "the end",
    "prebuilt": "the names of signed modules",
}


def _cells(record: model.Record, name: str, cells: list[str]) -> list[str]:
    guessed = [_WORDS.get(cell, cell.replace("_", " ")) for cell in cells if record.is_inferred(cell)]
    return [f"{', '.join(guessed)} of {name}"] if guessed else []
