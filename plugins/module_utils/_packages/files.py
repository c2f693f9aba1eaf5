# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files that we write below /etc: what they held before is kept, so that a change can be taken back whole."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner
from ansible_collections.gpufleet.pytorch.plugins.module_utils._state import write_atomic


class Files:
    """Writes files and remembers them; with ``remember`` off, in a scratch folder, they are only written."""

    def __init__(self, runner: Runner, remember: bool = True) -> None:
        self.runner, self.remember = runner, remember
        #: What each file held before, None where it was not there.
        self.replaced: t.Dict[str, t.Optional[bytes]] = {}
        #: What is ours, and goes with the driver.
        self.ours: t.Set[str] = set()
        #: What was ours and is not needed any more.
        self.gone: t.Set[str] = set()
        self.changed = False

    def write(self, path: str, text: str, ours: bool = True) -> bool:
        """Write a file, one of ours or one in which we have a part; False where it is so already."""
        old = self._keep(path)
        if ours:
            self.ours.add(path)
        if old == text.encode():
            return False
        write_atomic(path, text)
        self.changed = True
        return True

    def link(self, path: str, target: str) -> bool:
        """Make a symbolic link of ours; False where there is one already."""
        self.ours.add(path)
        if os.path.islink(path):
            return False
        self._keep(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)
        self.changed = True
        return True

    def remove(self, path: str) -> bool:
        """Remove one of our files; False where there is none."""
        self.ours.discard(path)
        self.gone.add(path)
        if self._keep(path) is None:
            return False
        os.unlink(path)
        self.changed = True
        return True

    def aside(self, path: str) -> None:
        """Put a file that is not ours where apt does not read it, under its name with ``.disabled``."""
        old = self._keep(path)
        if old is None:
            return
        self.changed = True
        if self.remember:
            self._keep(f"{path}.disabled")
            os.replace(path, f"{path}.disabled")
        else:
            os.unlink(path)

    def take_back(self) -> None:
        """Leave every file as it was found."""
        for path, content in self.replaced.items():
            if content is not None:
                with open(path, "wb") as stream:
                    stream.write(content)
            elif os.path.lexists(path):
                os.unlink(path)
        self.replaced.clear()
        self.changed = False

    def _keep(self, path: str) -> t.Optional[bytes]:
        old = self.runner.read_bytes(path)
        if self.remember:
            self.replaced.setdefault(path, old)
        return old
