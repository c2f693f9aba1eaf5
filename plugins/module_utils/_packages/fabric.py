# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabric manager and its kin beside a driver: in its very version where the board needs them, absent where not."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.apt import Package
from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages.files import Files

Part = t.Mapping[str, t.Any]

MODULES = "/etc/modules-load.d/gpufleet-fabric.conf"
#: Packages that nobody needs without an NVSwitch or a rack.
_KIN = re.compile(r"^(nvidia-fabric-?manager|nvidia-imex|libnvsdm|nvlsm)(-\d+)?(:\w+)?$")
#: It counts versions of its own, and fits the fabric manager beside which it was published.
FOLLOWS = ("nvlsm",)


def wanted(part: Part, version: str) -> t.List[str]:
    """The plan's packages, ``name`` or ``name=PATTERN``, where it may have decided the driver's branch only."""
    names = [str(name) for name in part.get("packages") or ()]
    return [f"{name.split('=')[0]}={version}-*" if "=" in name else name for name in names]


def missing(part: Part, packages: t.Mapping[str, Package]) -> t.List[str]:
    """The plan's packages that are not there."""
    there = {name.split(":")[0] for name in packages}
    return [name for name in (item.split("=")[0] for item in part.get("packages") or ()) if name not in there]


def check(
    part: Part, version: str, packages: t.Mapping[str, Package], loaded: t.Callable[[str], bool]
) -> t.List[Finding]:
    """What is there against what the board needs. ``loaded``: whether a kernel module is, or is built in."""
    kin = {name: package for name, package in packages.items() if _KIN.match(name)}
    needed = bool(part.get("packages"))
    if not kin and not needed:
        return []
    told = ", ".join(f"{name} {package.version}" for name, package in sorted(kin.items())) or "none of them"
    if not needed:
        return [
            Finding(
                "fabric-packages",
                "warn",
                found=told,
                expected="none: this board has no NVSwitch that the host looks after",
                action="fix configuration",
                reason="they do no harm, and the service that fails at each start is no fault of the host",
            )
        ]
    lacking = missing(part, packages)
    other = [name for name, item in kin.items() if not name.startswith(FOLLOWS) and item.upstream != version]
    asleep = [name for name in part.get("kernel_modules") or () if not loaded(str(name))]
    wrong = bool(lacking or other)
    return [
        Finding(
            "fabric-packages",
            "fail" if wrong else "warn" if asleep else "ok",
            found=told + (f"; not loaded: {', '.join(asleep)}" if asleep else ""),
            expected=f"{', '.join(item.split('=')[0] for item in part['packages'])} in the driver's version {version}",
            action="fix configuration" if wrong or asleep else "none",
            reason="without them, or beside another version, CUDA answers 802, system not yet initialized"
            if wrong
            else "",
            evidence={"missing": lacking, "other_version": other, "modules": asleep},
        )
    ]


def load_modules(files: Files, part: Part, now: bool, comment: str) -> t.List[str]:
    """Load what the subnet manager speaks to the switches through at each start, and ``now``; returns what is loaded.

    Where the board needs none of them, our file goes.
    """
    names = [str(name) for name in part.get("kernel_modules") or ()]
    if not names:
        files.remove(MODULES)
        return []
    files.write(MODULES, f"# {comment}\n" + "".join(f"{name}\n" for name in names))
    if not now:
        return names
    for name in names:
        # A kernel that has it built in says nothing, one that lacks it is told by what is loaded afterwards.
        files.runner.run(["modprobe", name], limit=60)
    return [name for name in names if files.runner.exists(f"/sys/module/{name}")]
