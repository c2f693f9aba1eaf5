# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""At most so many at once, over all processes of this user: locked files, which a killed process lets go."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import time
import typing as t

#: Seconds between two looks for a free place.
POLL = 0.5


def folder() -> str:
    """This user's folder of places, made where it is not there. Raises OSError where somebody else has the name."""
    path = os.path.join(tempfile.gettempdir(), f"gpufleet-turns-{os.geteuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{path} is not a folder of this user; remove it")
    return path


@contextlib.contextmanager
def turn(where: str, group: str, at_once: int, waiting: t.Callable[[], None]) -> t.Iterator[None]:
    """Hold one of ``at_once`` places of ``group`` in the folder ``where``; call ``waiting`` once if none is free."""
    told = False
    while True:
        for place in range(at_once):
            name = f"{hashlib.sha256(group.encode()).hexdigest()[:16]}.{place}"
            handle = os.open(os.path.join(where, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                continue
            try:
                yield
            finally:
                os.close(handle)
            return
        if not told:
            waiting()
            told = True
        time.sleep(POLL)
