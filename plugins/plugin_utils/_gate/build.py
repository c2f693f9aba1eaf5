# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller knows of the gate: which code it is built from, and pynvml to bring along."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import zlib
from pathlib import Path

MODULE_UTILS = Path(__file__).resolve().parents[2] / "module_utils"


def build() -> str:
    """A digest of the code that hosts run: two controllers with the same code have the same."""
    digest = hashlib.sha256()
    for path in sorted(MODULE_UTILS.glob("**/*.py")):
        digest.update(path.relative_to(MODULE_UTILS).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def pynvml() -> str:
    """The controller's pynvml, compressed for the module gate; empty where it has none."""
    found = importlib.util.find_spec("pynvml")
    path = Path(found.origin) if found and found.origin else None
    if path is None or not path.is_file():
        return ""
    return base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode("ascii")
