# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Effects of the topology: reading the files that may hold variables, and writing those that change.

A file of the user's keeps its owner, its mode, the link that leads to it, and every byte outside our block.
"""

from __future__ import annotations

import os
import stat
import tempfile
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import decide
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.conf import NCCL_CONF

PROFILES = "/etc/profile.d"
#: Bytes of a file that may hold variables; no such file is larger.
LIMIT = 1 << 20
#: Where the plug-in for EFA is installed, which names its own topology file to NCCL (aws-ofi-nccl, platform-aws).
PLUGINS = ("/opt/amazon/ofi-nccl", "/opt/aws-ofi-nccl")
OURS = (decide.FILE, decide.PROFILE, decide.SCRIPT, decide.UNIT)


def texts(runner: Runner, files: t.Sequence[str]) -> t.Dict[str, str]:
    """The files that may hold variables and those of ours, by path; what is not there is not in it.

    Raises ValueError for a file of the user's list that cannot be read, or is too large to be one.
    """
    paths = [decide.ENVIRONMENT, *(f"{PROFILES}/{name}" for name in runner.listdir(PROFILES) if name.endswith(".sh"))]
    found = {}
    for path in (*paths, *files, NCCL_CONF, *OURS):
        data = runner.read_bytes(runner.realpath(path), LIMIT + 1)
        if data is not None and len(data) <= LIMIT:
            found[path] = data.decode("utf-8", "surrogateescape")
        elif path in files:
            raise ValueError(f"topology_environment_files names {path}, which is not there or cannot be read")
        elif path == NCCL_CONF and (data is not None or os.path.lexists(runner.path(path))):
            what = "has more than 1 MiB" if data is not None else "cannot be read (a folder, or a link to nowhere?)"
            raise ValueError(f"{path} {what}; nothing was changed")
    return found


def plugin(runner: Runner) -> str:
    """What brings a topology of its own, "" for nothing."""
    return next((f"the NCCL plug-in in {path}" for path in PLUGINS if runner.exists(path)), "")


def write(runner: Runner, change: decide.Change) -> None:
    """Make a file as it is to be. Raises OSError with the path of the file."""
    path = runner.path(change.path if change.link else runner.realpath(change.path))
    try:
        if change.text is None:
            os.unlink(path)
            return
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        if change.link:
            os.symlink(change.text, path)
        else:
            _replace(path, change.text.encode("utf-8", "surrogateescape"))
    except OSError as error:
        raise OSError(error.errno, error.strerror, change.path) from None


def _replace(path: str, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix="." + os.path.basename(path), dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        mode = 0o644
        if os.path.exists(path):
            held = os.stat(path)
            mode = stat.S_IMODE(held.st_mode)
            if (held.st_uid, held.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(temporary, held.st_uid, held.st_gid)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
