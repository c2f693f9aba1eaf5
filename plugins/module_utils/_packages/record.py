# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this collection installed on a host: the driver of its own record is its to hold, to change and to remove."""

from __future__ import annotations

import json
import os
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import SYSTEM_DIR, StateError, write_atomic

PATH = f"{SYSTEM_DIR}/driver.json"
SCHEMA = 1


@dataclass(frozen=True)
class Record:
    """The driver's version, the names that were asked for, all that came with them, and the files that we wrote."""

    version: str
    packages: t.Tuple[str, ...]
    brought: t.Tuple[str, ...]
    files: t.Tuple[str, ...]


def read(runner: Runner) -> t.Optional[Record]:
    """The record, None where there is none. Raises StateError where it is there and is not of our form."""
    text = runner.read(PATH)
    if text is None:
        return None
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise ValueError(f"schema {data['schema']!r} where this version reads {SCHEMA}")
        return Record(str(data["version"]), tuple(data["packages"]), tuple(data["brought"]), tuple(data["files"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"{PATH} cannot be used ({error}); remove it, and the driver counts as the host's own"
        ) from None


def write(record: Record) -> None:
    """Keep the record."""
    write_atomic(PATH, json.dumps({"schema": SCHEMA, **asdict(record)}, indent=2, sort_keys=True) + "\n")


def remove() -> None:
    """Forget it."""
    if os.path.exists(PATH):
        os.unlink(PATH)
