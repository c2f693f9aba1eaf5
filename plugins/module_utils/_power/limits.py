# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power limit, persistence and clocks of GPUs as a site wants them: what differs, and how it is set. Pure.

They are gone with the driver's module, so a unit sets them again at boot. Locked clocks cannot be asked of a driver:
what was locked since boot is remembered in RECORD.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

RECORD = "/run/gpufleet/gpu_limits.json"
UNIT = "/etc/systemd/system/gpufleet-gpu-limits.service"
#: Watts. A driver rounds what was set.
TOLERANCE_W = 1.0

Gpu = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class Wish:
    """What is wanted of every GPU of the host; 0, None and () leave a setting alone. Clocks are (lowest, highest)."""

    power_w: float = 0.0
    persistence: t.Optional[bool] = None
    clocks_mhz: t.Tuple[int, ...] = ()

    @property
    def any(self) -> bool:
        """Whether anything is wanted."""
        return bool(self.power_w or self.persistence is not None or self.clocks_mhz)


@dataclass(frozen=True)
class Change:
    """One setting that differs on some GPUs: ``uuids``, and the setting as text before and after."""

    setting: str
    option: str
    value: str
    uuids: t.Tuple[str, ...]
    before: t.Tuple[str, ...]
    after: str

    def arguments(self) -> t.List[str]:
        """Arguments of nvidia-smi."""
        return ["-i", ",".join(self.uuids), self.option, self.value]


class Refused(ValueError):
    """A wish that cannot be; the text says of which GPU and why. Nothing was set."""


def changes(gpus: t.Sequence[Gpu], wish: Wish, locked: t.Mapping[str, t.Any]) -> t.List[Change]:
    """What is to be set, in its order. ``locked``: clocks that were locked since boot, by UUID. Raises Refused."""
    silent = [str(gpu.get("index")) for gpu in gpus if gpu["state"] != "ok" or not gpu.get("uuid")]
    if silent:
        raise Refused(f"GPU {', '.join(silent)} does not answer; nothing was set")
    found = []
    if wish.persistence is not None:
        is_now = {str(gpu["uuid"]): _on(gpu.get("persistence")) for gpu in gpus}
        found.append(_change("persistence", "-pm", "1" if wish.persistence else "0", is_now, _on(wish.persistence)))
    if wish.power_w:
        for gpu in gpus:
            _within_range(gpu, wish.power_w)
        is_now = {}
        for gpu in gpus:
            watts = _requested(gpu)
            near = watts is not None and abs(watts - wish.power_w) <= TOLERANCE_W
            is_now[str(gpu["uuid"])] = _watts(wish.power_w if near else watts)
        found.append(_change("power limit", "-pl", f"{wish.power_w:g}", is_now, _watts(wish.power_w)))
    if wish.clocks_mhz:
        low, high = wish.clocks_mhz
        after = f"{low} to {high} MHz"
        for gpu in gpus:
            most = (gpu.get("clocks") or {}).get("sm_max_mhz")
            if isinstance(most, (int, float)) and high > most:
                raise Refused(f"{_name(gpu)} has {most:g} MHz at most, and {high} are wanted; nothing was set")
        is_now = {str(gpu["uuid"]): _clocks(locked.get(str(gpu["uuid"]))) for gpu in gpus}
        found.append(_change("clocks", "-lgc", f"{low},{high}", is_now, after))
    return [change for change in found if change.uuids]


def _change(setting: str, option: str, value: str, is_now: t.Mapping[str, str], after: str) -> Change:
    other = [(uuid, text) for uuid, text in is_now.items() if text != after]
    return Change(setting, option, value, tuple(one[0] for one in other), tuple(one[1] for one in other), after)


def _within_range(gpu: Gpu, watts: float) -> None:
    power = gpu.get("power") or {}
    low, high = power.get("min_w"), power.get("max_w")
    if _requested(gpu) is None:
        raise Refused(f"{_name(gpu)} has no power limit that can be set; nothing was set")
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and not low <= watts <= high:
        raise Refused(f"{_name(gpu)} takes {low:g} to {high:g} W, and {watts:g} W is wanted; nothing was set")


def _requested(gpu: Gpu) -> t.Optional[float]:
    """What was asked of it: less may be in force, which is the platform's doing."""
    power = gpu.get("power") or {}
    for key in ("requested_w", "limit_w"):
        if isinstance(power.get(key), (int, float)):
            return float(power[key])
    return None


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.get('index')} ({gpu.get('name')})"


def _on(value: t.Any) -> str:
    return {True: "on", False: "off"}.get(value, "unknown")


def _watts(value: t.Optional[float]) -> str:
    return "unknown" if value is None else f"{value:g} W"


def _clocks(pair: t.Any) -> str:
    return f"{pair[0]} to {pair[1]} MHz" if isinstance(pair, (list, tuple)) and len(pair) == 2 else "not locked by us"


def read_record(text: t.Optional[str], boot_id: str) -> t.Dict[str, t.Any]:
    """Clocks that were locked since boot, by UUID; none where the record is of another boot or no record."""
    try:
        data = json.loads(text or "")
        return dict(data["clocks"]) if data["boot_id"] == boot_id and boot_id else {}
    except (ValueError, KeyError, TypeError):
        return {}


def unit(program: str, wish: Wish) -> str:
    """The unit that sets it all again at boot, before anybody computes."""
    lines = []
    if wish.persistence is not None:
        lines.append(f"-pm {int(wish.persistence)}")
    if wish.power_w:
        lines.append(f"-pl {wish.power_w:g}")
    if wish.clocks_mhz:
        lines.append(f"-lgc {wish.clocks_mhz[0]},{wish.clocks_mhz[1]}")
    starts = "\n".join(f"ExecStart={program} {line}" for line in lines)
    return (
        "# Written by gpufleet.pytorch.gpu_limits\n"
        "[Unit]\n"
        "Description=Power limits, persistence and clocks of GPUs\n"
        "After=gpufleet-device-nodes.service nvidia-persistenced.service\n"
        "Before=slurmd.service docker.service containerd.service kubelet.service\n"
        "[Service]\n"
        "Type=oneshot\n"
        "TimeoutStartSec=120\n"
        f"{starts}\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )
