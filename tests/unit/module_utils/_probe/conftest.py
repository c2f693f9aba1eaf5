# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine laid out under a folder: the files of /sys, /proc, /dev and /usr that a probe reads."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root

    def file(self, path: str, text: t.Union[str, bytes] = "") -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    def command(self, name: str, script: str) -> None:
        self.file(f"/usr/bin/{name}", "#!/bin/sh\n" + script)
        (self.root / "usr/bin" / name).chmod(0o755)

    def pci(self, line: str, driver: str = "", numa: str = "", virtual: bool = False) -> None:
        """One device by a line as of ``lspci -Dn``: ``0000:1b:00.0 0302 10de:2330 [10de:16c1]``."""
        address, klass, ids, *subsystem = line.split()
        folder = f"/sys/bus/pci/devices/{address}"
        vendor, device = ids.split(":")
        self.file(f"{folder}/class", f"0x{klass}00\n")
        self.file(f"{folder}/vendor", f"0x{vendor}\n")
        self.file(f"{folder}/device", f"0x{device}\n")
        if subsystem:
            for name, value in zip(("vendor", "device"), subsystem[0].split(":")):
                self.file(f"{folder}/subsystem_{name}", f"0x{value}\n")
        if driver:
            self.link(f"{folder}/driver", f"../../../bus/pci/drivers/{driver}")
        if numa:
            self.file(f"{folder}/numa_node", numa + "\n")
        if virtual:
            self.file(f"{folder}/physfn/vendor", "")

    def library(self, version: str, folder: str = "/usr/lib/x86_64-linux-gnu") -> None:
        """The two libraries of a driver, as packages and installers leave them."""
        for name in ("libnvidia-ml", "libcuda"):
            self.file(f"{folder}/{name}.so.{version}", b"\x7fELF")
            if not os.path.lexists(str(self.root / f"{folder}/{name}.so.1".lstrip("/"))):
                self.link(f"{folder}/{name}.so.1", f"{name}.so.{version}")

    def module(self, version: str, flavour: str = "open") -> None:
        """The loaded kernel module as it shows itself."""
        kind = "Open Kernel Module for x86_64" if flavour == "open" else "x86_64 Kernel Module"
        self.file(
            "/proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX {kind}  {version}  Release Build  (root@host)\n"
            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
        )
        self.file("/sys/module/nvidia/version", version + "\n")

    def debian_package(self, name: str, version: str, *paths: str) -> None:
        self.file(f"/var/lib/dpkg/info/{name}.list", "/.\n" + "".join(path + "\n" for path in paths))
        status = self.root / "var/lib/dpkg/status"
        text = status.read_text() if status.exists() else ""
        name = name.partition(":")[0]
        self.file(
            "/var/lib/dpkg/status",
            f"{text}Package: {name}\nStatus: install ok installed\nPriority: optional\nVersion: {version}\n\n",
        )

    def runner(self, **env: str) -> Runner:
        return Runner(str(self.root), env)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
