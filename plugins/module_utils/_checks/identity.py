# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is, in few words: those in which hosts of one kind should be alike."""

from __future__ import annotations

import collections
import typing as t

Facts = t.Mapping[str, t.Any]


def of(observed: Facts, environment: Facts) -> t.Dict[str, str]:
    """Name to value. ``observed``: an Observation; ``environment``: as _probe.environment gives it.

    ``gpus`` is the kind, of which hosts can be compared. What is not known is left out.
    """
    host, driver, gpus = observed.get("host", {}), observed.get("driver", {}), observed.get("gpus", [])
    system = host.get("os", {})
    values = {
        "gpus": _counted(gpu.get("name") for gpu in gpus) or "none",
        "os": " ".join(str(system[key]) for key in ("id", "version") if system.get(key)),
        "kernel": host.get("kernel"),
        "driver": driver.get("version"),
        "kernel module": driver.get("kernel_module"),
        "torch": environment.get("torch_version"),
        "python": environment.get("python_version"),
        "VBIOS": _counted(gpu.get("vbios") for gpu in gpus),
        "power limit W": _counted((gpu.get("power") or {}).get("limit_w") for gpu in gpus),
    }
    return {name: str(value) for name, value in values.items() if value}


def _counted(values: t.Iterable[t.Any]) -> str:
    counts = collections.Counter(str(value) for value in values if value not in (None, "not_supported"))
    return ", ".join(f"{count} x {value}" for value, count in sorted(counts.items()))
