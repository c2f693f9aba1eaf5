# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host with the driver does when it starts: nouveau stays out, device nodes are there before their users."""

from __future__ import annotations

import os
import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import kernels
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import PackageFailure
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.manager import Manager
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

COMMENT = "Written by the role gpufleet.pytorch.driver"
NOUVEAU = "/etc/modprobe.d/gpufleet-nouveau.conf"
NODES = "gpufleet-device-nodes.service"
#: What makes the initramfs of every kernel anew, on Debian and on Enterprise Linux.
INITRAMFS = (("update-initramfs", "-u", "-k", "all"), ("dracut", "--force", "--regenerate-all"))
UNITS = "/etc/systemd/system"
UNIT_FOLDERS = ("/usr/lib/systemd/system", "/lib/systemd/system")
#: What a board with NVSwitches or a rack may need, by the package of the same name.
SERVICES = ("nvidia-fabricmanager.service", "nvidia-imex.service")
PERSISTENCE = "nvidia-persistenced.service"
#: nvidia-modprobe loads the module and makes the nodes; the persistence daemon then keeps the GPUs awake.
NODES_UNIT = f"""# {COMMENT}
[Unit]
Description=Device nodes of the NVIDIA GPUs
After=systemd-modules-load.service
Before=nvidia-persistenced.service slurmd.service docker.service containerd.service crio.service kubelet.service
ConditionPathExists=/usr/bin/nvidia-modprobe

[Service]
Type=oneshot
ExecStart=/usr/bin/nvidia-modprobe -c 0 -u
RemainAfterExit=yes

[Install]
WantedBy=multi-user.target
"""


def keep_nouveau_out(files: Files, apt: Manager) -> None:
    """nouveau takes the GPU before nvidia can, from the initramfs on: keep it from loading in both.

    Raises PackageFailure where the initramfs cannot be made; the next run tries again.
    """
    text = f"# {COMMENT}\nblacklist nouveau\noptions nouveau modeset=0\n"
    if not files.write(NOUVEAU, text):
        return
    makers = [argv for argv in INITRAMFS if files.runner.which(argv[0])]
    if makers and kernels.installed(files.runner):
        problem = apt.problem(files.runner.run(makers[0], limit=apt.limit))
        if problem:
            os.unlink(NOUVEAU)
            raise PackageFailure(f"{makers[0][0]}: {problem}")


def make_nodes(files: Files) -> None:
    """Nobody makes /dev/nvidia-uvm before its first use; Slurm and container runtimes look for it earlier."""
    files.write(f"{UNITS}/{NODES}", NODES_UNIT)
    files.link(f"{UNITS}/multi-user.target.wants/{NODES}", f"../{NODES}")


def start_services(files: Files, runner: Runner, packages: t.Iterable[str]) -> None:
    """Fabric manager and its kin are installed asleep; on a board that needs them no GPU computes without them."""
    names = {re.sub(r"-\d+$", "", name) for name in packages}
    for unit in SERVICES:
        there = [f"{folder}/{unit}" for folder in UNIT_FOLDERS if runner.exists(f"{folder}/{unit}")]
        if there and unit.rsplit(".", 1)[0] in names:
            files.link(f"{UNITS}/multi-user.target.wants/{unit}", there[0])
    # Distributions start it themselves; a GPU that nobody keeps awake forgets its settings between two jobs.
    wants = f"{UNITS}/multi-user.target.wants/{PERSISTENCE}"
    unit_file = next(
        (path for path in (f"{folder}/{PERSISTENCE}" for folder in UNIT_FOLDERS) if runner.exists(path)), ""
    )
    if unit_file and not os.path.lexists(wants):
        files.link(wants, unit_file)
