# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about a build of torch on a host, whatever its driver."""

from __future__ import annotations

import functools
import typing as t

from . import model, version
from .cause import MATRIX, Rule, Said
from .host import Host
from .torch_wish import Wheel


def runs_on(sm: int, capability: version.Version, cuda: str, data: model.Data) -> bool:
    """Whether native code for an SM version runs on a device; PTX is not counted on."""
    row = data.sass.get(sm)
    if row is None:
        return False
    if row.only:
        return capability in row.only
    if capability in row.excepted and version.parse(cuda) < row.excepted_before_cuda:
        return False
    return row.low <= capability < row.high


def _no_wheel_for_arch(host: Host, wheel: Wheel) -> t.Iterator[Said]:
    if wheel.variant and host.arch not in wheel.variant.archs:
        has = [name for name, build in wheel.release.variants.items() if host.arch in build.archs]
        needs = f"a build for {host.arch}: of torch {wheel.release.version} {', '.join(has) or 'there is none'}"
        yield "torch", f"{wheel} for {', '.join(wheel.variant.archs)}", needs


def _no_wheel_for_python(host: Host, wheel: Wheel) -> t.Iterator[Said]:
    tags = wheel.release.wheels.get(host.arch, ())
    if host.request.python and host.request.python not in tags:
        yield "python", f"Python {host.request.python}", f"{', '.join(tags)} for torch {wheel.release.version}"


def _glibc_too_old(host: Host, wheel: Wheel) -> t.Iterator[Said]:
    glibc = wheel.variant.glibc if wheel.variant else wheel.release.glibc
    needs = glibc.get(host.arch, "")
    if host.glibc and needs and host.glibc < version.parse(needs):
        yield "glibc", f"glibc {'.'.join(map(str, host.glibc))}", f"glibc {needs} or newer for {wheel}"


def _gpu_not_in_wheel(host: Host, wheel: Wheel) -> t.Iterator[Said]:
    if not wheel.variant or host.arch not in wheel.variant.archs:
        return
    archs = wheel.variant.archs[host.arch]
    for match in host.gpus:
        if not any(runs_on(sm, match.cc, wheel.variant.cuda, host.data) for sm in archs):
            found = f"{wheel} with code for {', '.join(f'sm_{sm}' for sm in archs)}"
            needs = f"code for compute capability {match.gpu.compute_capability}"
            if not _anywhere(match.cc, host.arch, host.data):
                needs += f": no release has it for {host.arch}"
            yield match.label, found, needs


@functools.lru_cache(maxsize=256)
def _anywhere(capability: version.Version, arch: str, data: model.Data) -> bool:
    """Whether any build of any release has code for the capability on that machine architecture."""
    return any(
        runs_on(sm, capability, build.cuda, data)
        for release in data.releases.values()
        for build in release.variants.values()
        for sm in build.archs.get(arch, ())
    )


def _toolkit_dropped_gpu(host: Host, wheel: Wheel) -> t.Iterator[Said]:
    if not wheel.variant:
        return
    toolkit = host.data.toolkits[wheel.variant.cuda]
    for match in host.gpus:
        if match.cc < version.parse(toolkit.cc_min):
            found = f"CUDA {toolkit.version}, which compiles for {toolkit.cc_min} and newer"
            yield match.label, found, f"a CUDA that compiles for compute capability {match.gpu.compute_capability}"


def _cudnn_dropped_gpu(host: Host, wheel: Wheel) -> t.Iterator[Said]:
    if not wheel.variant:
        return
    for row in host.data.cudnn:
        if version.parse(wheel.variant.cudnn) < version.parse(row.version):
            continue
        for match in host.gpus:
            if match.cc < version.parse(row.cc_min):
                found = f"cuDNN {wheel.variant.cudnn} of {wheel}"
                yield match.label, found, f"cuDNN before {row.version} for {match.gpu.compute_capability}"


WHEEL_RULES = (
    Rule("no-wheel-for-arch", "A build exists for the machine architectures that it was published for.",
         "package metadata; pytorch/pytorch#168065, #160162", _no_wheel_for_arch),
    Rule("no-wheel-for-python", "A release has wheels for some Pythons: their tags count, not requires_python.",
         "package metadata", _no_wheel_for_python),
    Rule("glibc-too-old", "A manylinux wheel needs the glibc that its tag names.",
         "package metadata; pytorch/pytorch#150724", _glibc_too_old),
    Rule("toolkit-dropped-gpu", "A toolkit compiles for the GPUs in its window: CUDA 13 for 7.5 and newer.",
         MATRIX, _toolkit_dropped_gpu),
    Rule("gpu-not-in-wheel", "Native code runs on devices of its major version from its minor version on; PTX is "
         "not counted on.", "torch 2.15.0 torch/cuda/__init__.py DEVICE_REQUIREMENT", _gpu_not_in_wheel),
    Rule("cudnn-dropped-gpu", "cuDNN 9.11 and newer has no code for compute capabilities below 7.5.",
         "immich-app/immich#23110; conda-forge/cudnn-feedstock#124", _cudnn_dropped_gpu),
)  # fmt: skip
