# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What limits the programs of a host, and what somebody left in their environment: the ``limits`` part."""

from __future__ import annotations

import os
import re
import resource
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Variables of these begin so; of others a value may be a secret, and is not read.
OURS = re.compile(
    r"^(?:NCCL|TORCH|PYTORCH|CUDA|CUBLAS|CUDNN|COMPUTE|OPENCL|NVIDIA|NSIGHT|GLOO|UCX|OMP|KMP|MKL)_[A-Z0-9_]+$"
)
#: Files that every login, or every program with NCCL, reads.
FILES = ("/etc/environment", "/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/nccl.conf")
FOLDERS = (("/etc/profile.d", ".sh"), ("/etc/environment.d", ".conf"))
#: Bytes of such a file, and characters of a value, that are looked at.
FILE_MOST, VALUE_MOST = 1 << 18, 200

LIMITS = "/etc/security/limits.conf"
LIMITS_FOLDER = "/etc/security/limits.d"

_ASSIGNMENT = re.compile(r"^\s*(?:export\s+|declare\s+-x\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*(?P<value>.*?)\s*$")


def probe(runner: Runner) -> t.Dict[str, t.Any]:
    """The ``limits`` part of an Observation."""
    return {
        # Of this very process: bytes or a number, "unlimited" for no limit.
        "memlock": _own(resource.RLIMIT_MEMLOCK),
        "open_files": _own(resource.RLIMIT_NOFILE),
        "configured": _configured(runner),
        "shared_memory": _shared_memory(runner),
        "files": _pair(runner.read("/proc/sys/fs/file-nr"), (0, 2)),
        "tasks": _tasks(runner),
        "variables": variables(runner),
    }


def _own(which: int) -> t.Union[str, int]:
    hard = resource.getrlimit(which)[1]
    return "unlimited" if hard == resource.RLIM_INFINITY else hard


def _configured(runner: Runner) -> t.List[t.Dict[str, str]]:
    """Lines of limits.conf on locked memory and open files; later ones win."""
    texts = [runner.read(LIMITS, FILE_MOST)]
    texts += [runner.read(f"{LIMITS_FOLDER}/{name}", FILE_MOST) for name in runner.listdir(LIMITS_FOLDER)]
    found = []
    for text in texts:
        for line in (text or "").splitlines():
            words = line.split("#", 1)[0].split()
            if len(words) == 4 and words[2] in ("memlock", "nofile"):
                found.append(dict(zip(("domain", "type", "item", "value"), words)))
    return found


def _shared_memory(runner: Runner) -> t.Optional[int]:
    """Bytes of /dev/shm."""
    try:
        found = os.statvfs(runner.path("/dev/shm"))
    except OSError:
        return None
    return found.f_frsize * found.f_blocks


def _pair(text: t.Optional[str], places: t.Tuple[int, int]) -> t.Optional[t.Dict[str, int]]:
    words = (text or "").split()
    if len(words) <= max(places) or not all(words[place].isdigit() for place in places):
        return None
    return {"used": int(words[places[0]]), "most": int(words[places[1]])}


def _tasks(runner: Runner) -> t.Optional[t.Dict[str, int]]:
    """Tasks of the machine (``0.20 0.18 0.12 1/531 11206``), and how many there may be."""
    running = re.search(r"/(\d+) ", runner.read("/proc/loadavg") or "")
    most = [runner.read(f"/proc/sys/kernel/{name}") or "" for name in ("pid_max", "threads-max")]
    if running is None or not all(text.isdigit() for text in most):
        return None
    return {"used": int(running.group(1)), "most": min(int(text) for text in most)}


def variables(runner: Runner) -> t.List[t.Dict[str, str]]:
    """Variables of CUDA, NCCL and PyTorch that are set for everybody, in the order of the files."""
    paths = [*FILES]
    for folder, ending in FOLDERS:
        paths += [f"{folder}/{name}" for name in runner.listdir(folder) if name.endswith(ending)]
    found = []
    for path in paths:
        for line in (runner.read(path, FILE_MOST) or "").splitlines():
            match = _ASSIGNMENT.match(line[:4096])
            if match and OURS.match(match.group("name")):
                value = match.group("value").split(" #", 1)[0].strip().strip("\"'")
                found.append({"file": path, "name": match.group("name"), "value": value[:VALUE_MOST]})
    return found
