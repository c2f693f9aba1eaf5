# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's libraries on disk and its kernel module, loaded and on disk: paths and versions, by reading alone."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

NAMES = ("libnvidia-ml.so.1", "libcuda.so.1")
WSL_FOLDER = "/usr/lib/wsl/lib"
#: Where the GPU Operator's driver container shows its files to the host.
OPERATOR_FOLDER = "/run/nvidia/driver"
#: The loader's own folders on the systems that we know, after what ld.so.cache names.
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    WSL_FOLDER,
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
    f"{OPERATOR_FOLDER}/usr/lib/x86_64-linux-gnu",
    f"{OPERATOR_FOLDER}/usr/lib/aarch64-linux-gnu",
    f"{OPERATOR_FOLDER}/usr/lib64",
)

_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")


def libraries(runner: Runner) -> t.List[t.Dict[str, t.Any]]:
    """``{name, path, real, version}`` of each copy, in the order in which the loader would take them.

    ``version`` is "" where the file's name does not say it (WSL).
    """
    folders = [folder for folder in runner.env.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")]
    cache = runner.read_bytes("/etc/ld.so.cache") or b""
    found: t.List[t.Dict[str, t.Any]] = []
    seen = set()
    for name in NAMES:
        cached = re.findall(rb"/[^\0]*/" + re.escape(name.encode()) + rb"(?=\0)", cache)
        paths = [f"{folder}/{name}" for folder in folders] + [path.decode("utf-8", "replace") for path in cached]
        for path in paths + [f"{folder}/{name}" for folder in FOLDERS]:
            if not runner.exists(path):
                continue
            real = runner.realpath(path)
            # 32-bit copies lie beside the others and are no second driver.
            if real in seen or "/i386-linux-gnu/" in path or "/lib32/" in path:
                continue
            seen.add(real)
            match = _VERSION.search(real)
            found.append({"name": name, "path": path, "real": real, "version": match.group(1) if match else ""})
    return found


def loaded_module(runner: Runner) -> t.Dict[str, str]:
    """``{version, flavour}`` of the loaded kernel module, both "" where none is loaded."""
    text = runner.read("/proc/driver/nvidia/version") or ""
    version, flavour = parse_module_version(text)
    return {"version": version or runner.read("/sys/module/nvidia/version") or "", "flavour": flavour}


def parse_module_version(text: str) -> t.Tuple[str, str]:
    """Version, and ``open`` or ``proprietary``, of /proc/driver/nvidia/version."""
    match = re.search(r"^NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\b", text, re.MULTILINE)
    if match is None:
        return "", ""
    return match.group(1), "open" if "Open Kernel Module" in match.group(0) else "proprietary"


def module_file(runner: Runner, kernel: str) -> t.Optional[str]:
    """The file that holds the nvidia module for this kernel, None where there is none."""
    folder = f"/lib/modules/{kernel}"
    dependencies = runner.read(f"{folder}/modules.dep") or ""
    # Debian names it nvidia-current or nvidia-current-open; a compressed one ends in .xz, .zst or .gz.
    match = re.search(
        r"^(\S*/nvidia(?:-current|-tesla(?:-\d+)?|-legacy-\d+xx)?(?:-open)?\.ko(?:\.\w+)?):", dependencies, re.MULTILINE
    )
    if match is None:
        return None
    return match.group(1) if match.group(1).startswith("/") else f"{folder}/{match.group(1)}"


def dkms_source(runner: Runner, kernel: str) -> t.Optional[str]:
    """The ``dkms.conf`` from which DKMS built nvidia's module for this kernel, None where it built none."""
    for name in runner.listdir("/var/lib/dkms"):
        if not name.startswith("nvidia"):
            continue
        for version in runner.listdir(f"/var/lib/dkms/{name}"):
            if runner.exists(f"/var/lib/dkms/{name}/{version}/{kernel}"):
                return runner.realpath(f"/usr/src/{name}-{version}/dkms.conf")
    return None
