# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of before, where nothing in it has changed: a thousand looks at times instead of sixteen thousand
at sizes, and no start of its interpreter.

A file that is replaced, added or removed changes its folder's time; every
shared object, which a broken disk or copy may cut in place, is looked at by
itself. What this does not see, a source file written in place, is seen once a
day, after each boot, and by every look through the module.
"""

from __future__ import annotations

import contextlib
import json
import os
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import verdict
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.environment import environment as look
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import (
    RUN_DIR,
    read_json,
    write_atomic,
)

FILE = "environment.json"
SCHEMA = 1
#: Seconds for which nothing but times is looked at.
VALID_FOR = 24 * 3600.0

Marks = t.Dict[str, t.Tuple[int, int]]


def environment(runner: Runner, python: str, folder: str = RUN_DIR) -> t.Dict[str, t.Any]:
    """As _probe.environment.environment gives it. Only root remembers, where only root writes."""
    if runner.uid() != 0 or not os.path.isfile(_settings(python)):
        return look(runner, python)
    path = os.path.join(folder, FILE)
    uptime = verdict.now().uptime
    told = _still(path, python, uptime)
    if told is not None:
        return told
    marks = _marks(_places(python))
    told = look(runner, python)
    if not told.get("error") and not told.get("missing"):
        content = {"schema": SCHEMA, "python": python, "uptime": uptime, "marks": marks, "told": told}
        with contextlib.suppress(OSError):  # else it is looked at in full again
            write_atomic(path, json.dumps(content))
    return told


def _still(path: str, python: str, uptime: float) -> t.Optional[t.Dict[str, t.Any]]:
    try:
        data = read_json(path)
        if data["schema"] != SCHEMA or data["python"] != python or not 0 <= uptime - data["uptime"] <= VALID_FOR:
            return None
        # The shared objects of a folder are listed where its time is the same.
        same = all(_mark(place) == (time, size) for place, (time, size) in data["marks"].items())
        return dict(data["told"]) if same else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _settings(python: str) -> str:
    """A virtual environment's own file: another interpreter's packages can lie anywhere."""
    return os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg")


def _places(python: str) -> t.Iterator[str]:
    """The interpreter and its settings, every folder of packages, every shared object."""
    yield _settings(python)
    yield os.path.realpath(python)
    for folder, names, files in os.walk(os.path.join(os.path.dirname(_settings(python)), "lib")):
        names[:] = [name for name in names if name != "__pycache__"]
        yield folder
        for name in files:
            if ".so" in name or name == "version.py" or folder.endswith(".dist-info"):
                yield os.path.join(folder, name)


def _marks(places: t.Iterable[str]) -> Marks:
    return {place: _mark(place) for place in places}


def _mark(place: str) -> t.Tuple[int, int]:
    """Time in nanoseconds, and size."""
    try:
        found = os.stat(place)
    except OSError:
        return 0, -1
    return found.st_mtime_ns, found.st_size
