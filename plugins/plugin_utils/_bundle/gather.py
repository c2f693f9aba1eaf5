# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathers wheels: those at hand are linked or copied, the others downloaded, each by its hash and for its machine."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import typing as t
from pathlib import Path

from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.pip import read_lock
from ansible_collections.gpufleet.pytorch.plugins.module_utils._environment.wheel import find_in_store
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import wheels

#: The collection; a clone has beside its plugins what ./run installs.
ROOT = Path(__file__).resolve().parents[3]
REQUIREMENTS = ("ansible.txt", "pip.txt")

Download = t.Callable[[wheels.Target, str, str], None]


def of_lock(
    target: wheels.Target,
    lines: t.Sequence[str],
    into: Path,
    stores: t.Sequence[str],
    download: Download = wheels.download,
) -> int:
    """The wheels of a lock's lines, for the target; how many were not there already.

    ``stores``: folders of this machine in which wheels may lie already. Raises LockProblem with pip's own reason.
    """
    lacking = [item for item in read_lock(lines) if not find_in_store(str(into), item.name, item.sha256)]
    wanted = []
    for item in lacking:
        found = next(filter(None, (find_in_store(store, item.name, item.sha256) for store in stores)), "")
        if found:
            _take(Path(found), into)
        else:
            wanted.append(item.line)
    if wanted:
        with tempfile.NamedTemporaryFile("w", prefix="gpufleet-bundle-", suffix=".txt", encoding="utf-8") as file:
            file.write("\n".join(wanted) + "\n")
            file.flush()
            download(target, file.name, str(into))
    return len(lacking)


def of_run(pythons: t.Sequence[str], into: Path, download: Download = wheels.download) -> bool:
    """What ./run needs on a controller of this machine's kind; False where this is no clone, which has no ./run."""
    files = [ROOT / "requirements" / name for name in REQUIREMENTS]
    if not all(file.is_file() for file in files):
        return False
    for python in pythons or [".".join(map(str, sys.version_info[:2]))]:
        target = wheels.Target(str(python), platform.machine(), platform.libc_ver()[1] or "2.28", settings=True)
        for file in files:
            download(target, str(file), str(into))
    return True


def _take(path: Path, into: Path) -> None:
    """A link where the file system allows it: torch is 2 GB. A store replaces its files and never writes into them."""
    place = into / path.name
    place.unlink(missing_ok=True)
    try:
        os.link(path, place)
    except OSError:
        shutil.copyfile(path, place)
        place.chmod(0o644)
