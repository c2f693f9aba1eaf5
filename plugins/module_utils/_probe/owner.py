# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who owns the driver of this host, each answer with the evidence for it.

A driver that is not ours is never touched, so the question is put before
anything else: to the platform (its markers), to what lies on disk, and to the
package database. Nothing is guessed: a library that nobody claims makes the
owner ``unknown``.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import libraries, packages
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Operating systems whose packages cannot be changed in place, by ID of os-release.
IMAGE_BASED = ("talos", "flatcar", "rhcos", "cos", "bottlerocket", "nixos", "sle-micro", "steamos", "endless")
#: VARIANT_ID of os-release, likewise.
IMAGE_VARIANTS = ("coreos", "silverblue", "kinoite", "iot", "microos")

#: Files that only one owner leaves, found with nothing but a look.
#: Sources: azhpc-images (component_versions.txt), AWS's and Google's deep learning images (their message of the day and
#: notebooks name the folders), DGX OS user guide, Bright's module files (/cm/local/apps).
MARKERS = (
    ("dgx_os", "/etc/dgx-release"),
    ("bcm", "/cm/local/apps"),
    ("image_os", "/run/ostree-booted"),
    ("vgpu_guest", "/usr/bin/nvidia-gridd"),
    ("cloud_image", "/opt/azurehpc/component_versions.txt"),
    ("cloud_image", "/opt/deeplearning/metadata"),
    ("cloud_image", "/opt/aws/dlami"),
)
#: Folders all of whose files have one owner.
FOLDERS = (
    ("wsl", libraries.WSL_FOLDER + "/", "comes from Windows"),
    ("gpu_operator", libraries.OPERATOR_FOLDER + "/", "lies in the driver container"),
    ("bcm", "/cm/local/apps/", "is of Base Command Manager"),
)
#: The .run installer leaves its own uninstaller; its log alone stays behind after a removal and proves nothing.
RUNFILE_MARKERS = ("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer")

#: Platforms that own the driver also before it is there; the others own what lies on disk.
ALWAYS = ("image_os", "gpu_operator", "dgx_os", "bcm", "wsl")

#: Who ships the driver as the others' packages or installer: not a second owner.
SHIPS_WITH = {
    "dgx_os": {"package"},
    "bcm": {"package"},
    "image_os": {"package"},
    "vgpu_guest": {"package", "runfile", "cloud_image"},
    "cloud_image": {"package", "runfile"},
}


def probe(runner: Runner, host: t.Mapping[str, t.Any], image: bool = False) -> t.Dict[str, t.Any]:
    """The ``driver`` part of an Observation; of an ``image``, where a loaded module is the build machine's.

    Raises OSError where the package database did not answer.
    """
    loaded = {"version": "", "flavour": ""} if image else libraries.loaded_module(runner)
    copies = libraries.libraries(runner)
    module = libraries.module_file(runner, str(host["kernel"]))
    # A module that DKMS built here is no package's; its source is somebody's.
    source = libraries.dkms_source(runner, str(host["kernel"])) if module else None
    files = [(copy["path"], copy["real"]) for copy in copies]
    if module:
        files.append((source, source) if source else (module, runner.realpath(module)))
    by_package = packages.owners(runner, [real for _path, real in files])
    claims = _platform(runner, host) + _files(runner, files, by_package)
    driver_there = bool(copies or module or loaded["version"] or host["dxg"])
    standing = [claim for claim in claims if driver_there or claim["owner"] in ALWAYS]
    first = next((copy for copy in copies if copy["version"]), {"version": ""})
    return {
        "owner": decide([claim["owner"] for claim in standing], driver_there),
        "owners": standing,
        "version": loaded["version"],
        "library_version": first["version"],
        "kernel_module": loaded["flavour"],
        "libraries": [
            {
                "name": copy["name"],
                "path": copy["path"],
                "version": copy["version"],
                "package": by_package.get(copy["real"]),
            }
            for copy in copies
        ],
        "module_file": module,
    }


def decide(owners: t.Sequence[str], driver_there: bool) -> str:
    """One word for all the claims: the only owner, ``multiple``, ``nobody``, or ``unknown``."""
    names = set(owners)
    for owner, shipped in SHIPS_WITH.items():
        if owner in names:
            names -= shipped
    if len(names) > 1:
        # Also where one of them is "unknown": something unclaimed is a second owner whom we cannot name.
        return "multiple"
    if names:
        return names.pop()
    return "unknown" if driver_there else "nobody"


def _claim(owner: str, evidence: str) -> t.Dict[str, str]:
    return {"owner": owner, "evidence": evidence}


def _platform(runner: Runner, host: t.Mapping[str, t.Any]) -> t.List[t.Dict[str, str]]:
    claims = []
    if host["virtualization"] == "wsl":
        claims.append(_claim("wsl", f"kernel {host['kernel']}, /dev/dxg {'there' if host['dxg'] else 'absent'}"))
    system = host["os"]
    if system["id"] in IMAGE_BASED:
        claims.append(_claim("image_os", f"operating system {system['name'] or system['id']}"))
    elif system["variant"] in IMAGE_VARIANTS:
        claims.append(_claim("image_os", f"operating system variant {system['variant']}"))
    claims += [_claim(owner, f"{path} is there") for owner, path in MARKERS if runner.exists(path)]
    smi = f"{libraries.OPERATOR_FOLDER}/usr/bin/nvidia-smi"
    if runner.exists(smi):
        claims.append(_claim("gpu_operator", f"{smi} is there"))
    return claims


def _files(
    runner: Runner, files: t.Sequence[t.Tuple[str, str]], by_package: t.Mapping[str, str]
) -> t.List[t.Dict[str, str]]:
    mounts = mount_points(runner.read("/proc/self/mountinfo") or "")
    runfile = next((path for path in RUNFILE_MARKERS if runner.exists(path)), None)
    if runfile and packages.owners(runner, [runner.realpath(runfile)]):
        runfile = None
    claims = []
    for path, real in files:
        folder = next((entry for entry in FOLDERS if real.startswith(entry[1])), None)
        if real in by_package:
            claims.append(_claim("package", f"{by_package[real]} owns {real}"))
        elif folder:
            claims.append(_claim(folder[0], f"{real} {folder[2]}"))
        elif path in mounts or real in mounts:
            claims.append(_claim("container_guest", f"{real} is mounted from outside"))
        elif runfile:
            claims.append(_claim("runfile", f"{real} is no package's and {runfile} is there"))
        else:
            claims.append(_claim("unknown", f"{real} is no package's"))
    return claims


def mount_points(mountinfo: str) -> t.Set[str]:
    """The mount points of a mountinfo file (proc(5): the fifth field, blanks as octal)."""
    points = set()
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) > 4:
            points.add(fields[4].replace("\\040", " "))
    return points


#: Of a look that failed.
UNKNOWN: t.Dict[str, t.Any] = {
    "owner": "unknown",
    "owners": [],
    "version": "",
    "library_version": "",
    "kernel_module": "",
    "libraries": [],
    "module_file": None,
}
