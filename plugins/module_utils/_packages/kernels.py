# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels of a host, and what DKMS made for them: read from the files of DKMS and of the kernel, not assumed."""

from __future__ import annotations

import contextlib
import os
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import libraries
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

MODULES = "/lib/modules"
DKMS = "/var/lib/dkms"
#: Lines that say why a build ended, the most telling kind first.
_CAUSES = (
    re.compile(r":\d+(?::\d+)?: (?:fatal )?error: "),
    re.compile(r"unrecognized command[- ]line option"),
    re.compile(r"\b(?:fatal )?error: ", re.IGNORECASE),
    re.compile(r"Compiler version check failed|does not match the compiler|cc: not found|\*\*\* "),
)


@dataclass(frozen=True)
class Build:
    """What DKMS has of one version of a module for one kernel: ``added``, ``built`` or ``installed``."""

    name: str
    version: str
    kernel: str
    state: str
    warning: str = ""


@dataclass(frozen=True)
class Module:
    """The nvidia module on disk for one kernel. ``version`` and ``built_for`` are "" where the file does not say.

    ``missing``: the modules beside it that DKMS should have built and that are not there; ``compilers``: the one that
    built it and the one that built the kernel, where both are known.
    """

    path: str
    version: str
    built_for: str
    missing: t.Tuple[str, ...] = ()
    compilers: t.Tuple[str, ...] = ()


def order(release: str) -> t.List[t.Tuple[int, t.Any]]:
    """Key that puts 6.1.0-50 after 6.1.0-9."""
    return [(1, int(part)) if part.isdigit() else (0, part) for part in re.findall(r"\d+|[a-z]+", release)]


def installed(runner: Runner) -> t.List[str]:
    """Kernels that this host can start, oldest first: those whose image is in /boot or beside their modules."""
    images = set(runner.listdir("/boot"))
    found = [
        name
        for name in runner.listdir(MODULES)
        if f"vmlinuz-{name}" in images or runner.exists(f"{MODULES}/{name}/vmlinuz")
    ]
    return sorted(found, key=order)


def largest_initramfs(runner: Runner) -> int:
    """Bytes of the largest initramfs in /boot, 0 where there is none."""
    names = [name for name in runner.listdir("/boot") if name.startswith(("initrd.img-", "initramfs-"))]
    sizes = []
    for name in names:
        with contextlib.suppress(OSError):
            sizes.append(os.stat(runner.path(f"/boot/{name}")).st_size)
    return max(sizes, default=0)


def free(runner: Runner, folder: str) -> int:
    """Bytes that root may still write there."""
    found = os.statvfs(runner.path(folder))
    return found.f_bavail * found.f_frsize


def with_headers(runner: Runner) -> t.List[str]:
    """Kernels whose headers lie here, oldest first. A link to headers that are gone does not count."""
    found = [name for name in runner.listdir(MODULES) if runner.exists(f"{MODULES}/{name}/build/Makefile")]
    return sorted(found, key=order)


def targets(runner: Runner, running: str, image: bool) -> t.List[str]:
    """The kernels for which the driver must be there, oldest first.

    On a host the running one and the newest installed one, which starts next. In an image the running kernel is the
    build machine's and says nothing: there it is the newest installed one, else the newest with headers; none where
    the image has neither.
    """
    there = installed(runner)
    if image:
        return (there or with_headers(runner))[-1:]
    return sorted({running, *there[-1:]}, key=order)


def parse_dkms_status(text: str) -> t.List[Build]:
    """The lines of ``dkms status``: ``nvidia, 470.1, KERNEL, ARCH: STATE`` (DKMS 2), ``nvidia/470.1, ...`` (DKMS 3)."""
    found = []
    for line in text.splitlines():
        match = re.match(r"^([\w.+-]+)(?:/|, )([^,:\s]+)(?:, ([^,]+), [^:]+)?: (\w+)\s*(.*)$", line.strip())
        if match:
            found.append(Build(match[1], match[2], match[3] or "", match[4], match[5].strip("() ")))
    return found


def dkms_status(runner: Runner) -> t.List[Build]:
    """What DKMS has of NVIDIA's modules; nothing where there is no DKMS."""
    result = runner.run(["dkms", "status"], limit=30)
    return [build for build in parse_dkms_status(result.out) if build.name.startswith("nvidia")]


def module(runner: Runner, kernel: str) -> t.Optional[Module]:
    """The nvidia module for a kernel, None where modules.dep of that kernel names none."""
    path = libraries.module_file(runner, kernel)
    if path is None:
        return None
    said = runner.run(["modinfo", path], limit=30).out
    fields = dict(re.findall(r"^(version|vermagic):\s+(\S+)", said, re.MULTILINE))
    source = libraries.dkms_source(runner, kernel)
    lacking: t.Tuple[str, ...] = ()
    compilers: t.Tuple[str, ...] = ()
    if source is not None:
        there = set(re.findall(r"([\w-]+)\.ko(?:\.\w+)?:", runner.read(f"{MODULES}/{kernel}/modules.dep") or ""))
        names = dkms_names(runner.read(source) or "")
        lacking = tuple(
            name for name in names if name.replace("_", "-") not in {item.replace("_", "-") for item in there}
        )
        compilers = tuple(filter(None, (compiler_of(runner, path), kernel_compiler(runner, kernel))))
    return Module(
        path,
        fields.get("version", ""),
        fields.get("vermagic", ""),
        lacking,
        compilers if len(compilers) == 2 else (),
    )


def dkms_names(conf: str) -> t.List[str]:
    """The modules of a ``dkms.conf`` under the names that they are installed by."""
    package = re.search(r"^PACKAGE_NAME=\"?([\w-]+)", conf, re.MULTILINE)
    lines = re.findall(r"^(BUILT|DEST)_MODULE_NAME\[(\d+)\]=\"?([^\"\s]+)", conf, re.MULTILINE)
    names = {number: name for kind, number, name in lines if kind == "BUILT"}
    names.update({number: name for kind, number, name in lines if kind == "DEST"})
    told = [re.sub(r"\$\{?PACKAGE_NAME\}?", package[1] if package else "", name) for name in names.values()]
    return [name for name in told if "$" not in name]


def compiler_of(runner: Runner, path: str) -> str:
    """``gcc 12.2.0`` of a module that is not compressed, from what the compiler left in it, else ""."""
    match = re.search(rb"GCC: \([^)\0]*\) (\d+(?:\.\d+)+)", runner.read_bytes(path) or b"")
    return f"gcc {match[1].decode()}" if match else ""


def kernel_compiler(runner: Runner, kernel: str) -> str:
    """``gcc 12.2.0`` that built a kernel, from its configuration, "" where it was another or is not said."""
    for path in (f"/boot/config-{kernel}", f"{MODULES}/{kernel}/build/.config"):
        text = runner.read(path) or ""
        match = re.search(r'^CONFIG_CC_VERSION_TEXT="\S*gcc\S* \([^)]*\) (\d+(?:\.\d+)+)', text, re.MULTILINE)
        if match:
            return f"gcc {match[1]}"
    return ""


def build_log(runner: Runner, kernel: str) -> t.Tuple[str, str]:
    """``(path, text)`` of the newest log of a build for this kernel that DKMS left, both "" where there is none."""
    found = []
    for name in runner.listdir(DKMS):
        for version in runner.listdir(f"{DKMS}/{name}") if name.startswith("nvidia") else []:
            folder = f"{DKMS}/{name}/{version}"
            kept = [f"{folder}/{kernel}/{arch}/log/make.log" for arch in runner.listdir(f"{folder}/{kernel}")]
            for path in [f"{folder}/build/make.log", *kept]:
                text = runner.read(path)
                # The folder "build" is of the last kernel that was tried, which the log's first line names.
                if text and (path in kept or kernel in text.split("\n", 1)[0]):
                    found.append((path, text))
    return found[0] if found else ("", "")


def first_error(log: str) -> str:
    """The line of a build's log that says what was wrong first, "" where none does."""
    lines = [line.strip() for line in log.splitlines()]
    for cause in _CAUSES:
        for line in lines:
            if cause.search(line):
                return re.sub(r"^/var/lib/dkms/[^/]+/[^/]+/build/", "", line)
    return ""
