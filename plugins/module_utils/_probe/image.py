# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at an image, a chroot or a build container: its files, and nothing of the machine that builds it.

The kernel that runs here, its modules, its devices and its Secure Boot are the build machine's. The kernel of an
image is the one that it starts.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import kernels
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import host, nvml, owner, visibility
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.compared import part
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.observe import SCHEMA
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner


def observe(runner: Runner) -> t.Dict[str, t.Any]:
    """The Observation of an image. ``host.kernel`` is "" where the image has no kernel and no headers of one."""
    errors: t.Dict[str, str] = {}
    machine = part(errors, "host", lambda: describe(runner), host.UNKNOWN)
    driver = part(errors, "driver", lambda: owner.probe(runner, machine, image=True), owner.UNKNOWN)
    return {
        "schema": SCHEMA,
        "observed_at": _finding.now(),
        "host": machine,
        "pci": [],
        "driver": driver,
        **nvml.answer("no_driver", error="an image: nothing is loaded"),
        "visibility": visibility.UNKNOWN,
        "errors": errors,
    }


def describe(runner: Runner) -> t.Dict[str, t.Any]:
    """The ``host`` part of an image: what would be the build machine's is not known."""
    return {
        **host.probe(runner),
        "boot_id": None,
        "kernel": next(iter(kernels.targets(runner, "", image=True)), ""),
        "compiler": None,
        "virtualization": "none",
        "secure_boot": "unknown",
        "mok": None,
        "dxg": False,
    }
