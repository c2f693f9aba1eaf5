# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power supplies of a host, or of the shelf that feeds it: input, faults, and whether those left carry the load. Pure.

What could not be told is ``unknown`` and only reported: a BMC that is slow or silent takes no host out of service.
"""

from __future__ import annotations

import calendar
import time
import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import HOST, Finding, Subject

Reading = t.Mapping[str, t.Any]
Supply = t.Mapping[str, t.Any]

REDUNDANCIES = ("n", "n+1", "2n", "shelf")
#: A measured base load is taken as that of a training host where its GPUs drew at least this share of their limits.
#: At rest processors, memory and fans draw far less, so that it can only prove that the load does not fit.
LOADED = 0.5
#: Days in which a loss of input that is over is still told of.
RECENT_DAYS = 7


class Load(t.NamedTuple):
    """What the supplies have to carry, in watts; None is unknown.

    Draw is of the moment of the reading, ``base_w`` is configured, ``measured_w`` was seen while the GPUs worked.
    """

    gpu_limits_w: t.Optional[float] = None
    gpu_draw_w: t.Optional[float] = None
    base_w: t.Optional[float] = None
    measured_w: t.Optional[float] = None


@dataclass(frozen=True)
class Policy:
    """What the site wants. ``supply_w``: what one supply gives at this site's input, 0 to take the BMC's word."""

    redundancy: str = "n+1"
    supply_w: float = 0.0
    expected: int = 0
    #: How many hosts alike the shelf feeds, with ``redundancy: shelf``.
    shelf_hosts: int = 0


def load_of(observed: t.Mapping[str, t.Any], base_w: t.Optional[float], limit_w: float = 0.0) -> Load:
    """The load of an Observation's GPUs. One that the driver does not show, or without a limit, makes it unknown.

    ``limit_w``: what was set on each of them after they were observed, 0 for nothing.
    """
    gpus = observed.get("gpus") or []
    there = sum(device.get("role") == "gpu" for device in observed.get("pci") or [])
    if not observed or "pci" in observed.get("errors", {}) or there > len(gpus):
        return Load(None, None, base_w)
    powers = [gpu.get("power") or {} for gpu in gpus]
    return Load(limit_w * len(gpus) or _sum(powers, "limit_w"), _sum(powers, "draw_w"), base_w)


def _sum(powers: t.Sequence[t.Mapping[str, t.Any]], key: str) -> t.Optional[float]:
    values = [power.get(key) for power in powers]
    numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    return sum(numbers) if len(numbers) == len(values) else None


def check(reading: Reading, load: Load, policy: Policy) -> t.List[Finding]:
    """The Findings of a reading that was made; none where none was (then bmc-answers speaks)."""
    if reading["state"] != "ok":
        return []
    supplies = reading["supplies"]
    here = [one for one in supplies if one["present"] is not False]
    if not here:
        return [*(_count(here, policy) if supplies else []), _none_shown(reading)]
    return [
        *_count(here, policy),
        *_input(here),
        *_faults(here),
        *_redundancy(reading, policy),
        _capacity(reading, here, load, policy),
        *_events(reading),
    ]


def _none_shown(reading: Reading) -> Finding:
    broken = [where for where in reading["errors"] if "power" in where.lower()]
    if broken:
        return _unknown("psu-input", f"power supplies cannot be read: {reading['errors'][broken[0]]}", "power supplies")
    why = "its BMC shows no power supply; where a shelf feeds it, judge the shelf's own BMC with redundancy: shelf"
    return Finding("psu-input", "not_applicable", reason=why, policy="report")


def _unknown(check_name: str, found: str, expected: str, subject: Subject = HOST, reason: str = "") -> Finding:
    return Finding(check_name, "unknown", subject, found, expected, "ask facility", policy="report", reason=reason)


def subject(one: Supply) -> Subject:
    """By serial, else by the name that the BMC gives it."""
    return Subject("psu", str(one.get("serial") or one["name"]))


def _count(here: t.Sequence[Supply], policy: Policy) -> t.List[Finding]:
    if not policy.expected:
        return []
    found, expected = f"{len(here)} power supplies", f"{policy.expected}"
    state, action = ("ok", "none") if len(here) >= policy.expected else ("warn", "ask facility")
    return [Finding("psu-count", state, found=found, expected=expected, action=action)]


def _input(here: t.Sequence[Supply]) -> t.List[Finding]:
    """Input, one Finding a supply that has none. Whether the host may go on, psu-capacity says."""
    found = [
        Finding(
            "psu-ac-lost",
            "warn",
            subject(one),
            f"{one['name']} has no input: {one['text']}",
            "input at every supply",
            "ask facility",
            evidence=dict(one),
        )
        for one in here
        if one["input_lost"]
    ]
    blank = [one["name"] for one in here if one["input_lost"] is None]
    if blank:
        found.append(
            _unknown("psu-ac-lost", f"the BMC does not tell the input of {_names(blank)}", "whether each has input")
        )
    return found or [Finding("psu-ac-lost", "ok", found=f"{len(here)} supplies have input")]


def _faults(here: t.Sequence[Supply]) -> t.List[Finding]:
    found = []
    for one in here:
        if one["failed"]:
            found.append((one, "warn", "has failed", "replace"))
        elif one["predicted"]:
            found.append((one, "warn", "is about to fail or out of its limits", "replace"))
    made = [
        Finding(
            "psu-failed",
            state,
            subject(one),
            f"{one['name']} {says}: {one['text']}",
            "supplies without a fault",
            action,
            evidence=dict(one),
        )
        for one, state, says, action in found
    ]
    blank = [one["name"] for one in here if one["failed"] is None and not one["input_lost"]]
    if blank:
        made.append(_unknown("psu-failed", f"the BMC does not tell the health of {_names(blank)}", "a health of each"))
    return made or [Finding("psu-failed", "ok", found=f"{len(here)} supplies without a fault")]


def _redundancy(reading: Reading, policy: Policy) -> t.List[Finding]:
    """What the BMC itself says of redundancy, against what the site wants of it."""
    made = []
    for group in reading["redundancy"]:
        found = f"{group['name']}: {group['text']}"
        if group["state"] == "full":
            continue
        if group["state"] is None:
            made.append(_unknown("psu-redundancy", found, "full redundancy"))
        elif policy.redundancy == "n":
            made.append(Finding("psu-redundancy", "ok", found=found, expected="none, as power_cooling_redundancy is n"))
        else:
            made.append(Finding("psu-redundancy", "warn", found=found, expected="full", action="ask facility"))
    if not made and reading["redundancy"]:
        made = [Finding("psu-redundancy", "ok", found="the BMC says full")]
    return made[:1] if all(one.state == "ok" for one in made) else [_worst(made)] if made else []


def _worst(findings: t.Sequence[Finding]) -> Finding:
    return max(findings, key=lambda one: ("ok", "unknown", "warn", "fail").index(one.state))


def working(here: t.Sequence[Supply]) -> t.List[Supply]:
    """The supplies that give power: present, with input, not failed."""
    return [one for one in here if not one["input_lost"] and not one["failed"]]


def spare(policy: str, installed: int, left: int) -> int:
    """How many more supplies may go in the worst case that the policy names.

    ``2n``: one of two feeds, each with half the supplies; those that are gone already are taken to be of the other.
    """
    if policy == "2n":
        return min(left, (installed + 1) // 2)
    return 0 if policy == "n" else min(left, 1)


def _capacity(reading: Reading, here: t.Sequence[Supply], load: Load, policy: Policy) -> Finding:
    """Whether what is left carries the GPUs at their limits and the rest of the host, with the policy's reserve."""
    good = working(here)
    watts = sorted(policy.supply_w or one["capacity_w"] or 0.0 for one in good)
    needed, basis, certain = _needed(reading, load, policy)
    evidence = {
        "supplies": len(here),
        "working": len(good),
        "capacity_w": watts,
        "needed_w": needed,
        "base_load": basis,
        "redundancy": policy.redundancy,
    }

    def made(state: str, found: str, expected: str, action: str = "none", block: bool = True) -> Finding:
        policy_word = "block" if block else "report"
        return Finding("psu-capacity", state, HOST, found, expected, action, policy_word, evidence=evidence)

    blank = [
        one["name"] for one in here if one["input_lost"] is None or (one["failed"] is None and not one["input_lost"])
    ]
    if not good:
        return made("fail", "no supply works, as the BMC tells it", "supplies that work", "ask facility", block=False)
    if not all(watts):
        found = "what a supply gives at this input is not told"
        return made("unknown", found, "set power_cooling_supply_w", "fix configuration", block=False)
    if needed is None:
        return made("unknown", basis, "a known load", "fix configuration", block=False)
    total = sum(watts)
    lost = spare(policy.redundancy, len(here), len(good))
    reserve = sum(watts[: len(watts) - lost])
    load_text = f"{needed:.0f} W ({basis})"
    found = f"{len(good)} of {len(here)} supplies at work give {total:.0f} W"
    if total < needed:
        return made("fail", found, f"at least {load_text}", "ask facility")
    if reserve < needed:
        found += f", and {reserve:.0f} W after the loss that {policy.redundancy} allows"
        return made("warn", found, f"at least {load_text}", "ask facility")
    if blank:
        found = f"{found} if {_names(blank)} work, which the BMC does not tell"
        return made("unknown", found, f"at least {load_text}", "ask facility", block=False)
    if not certain:
        return made("unknown", basis, "a base load: power_cooling_base_load_w, or one measured under load", block=False)
    return made("ok", f"{found} for {load_text}", "")


def _needed(reading: Reading, load: Load, policy: Policy) -> t.Tuple[t.Optional[float], str, bool]:
    """Watts, where they come from, and whether they are the whole load (not only a lower bound)."""
    if load.gpu_limits_w is None:
        return None, "the power limit of a GPU is not known", False
    hosts = 1
    if policy.redundancy == "shelf":
        if not policy.shelf_hosts or load.base_w is None:
            return None, "set power_cooling_shelf_hosts and power_cooling_base_load_w for a shelf", False
        hosts = policy.shelf_hosts
    if load.base_w is not None:
        parts = f"{load.gpu_limits_w:.0f} W of GPUs and {load.base_w:.0f} W as configured"
        needed = hosts * (load.gpu_limits_w + load.base_w)
        return needed, parts if hosts == 1 else f"{hosts} hosts of {parts}", True
    base = beside_gpus(reading, load)
    if base is None and load.measured_w is None:
        return None, "the base load is neither configured (power_cooling_base_load_w) nor measured", False
    certain = at_work(load) or load.measured_w is not None
    most = max(base or 0.0, load.measured_w or 0.0)
    when = "under load" if certain else "at rest, so that it is more under load"
    return load.gpu_limits_w + most, f"{load.gpu_limits_w:.0f} W of GPUs and {most:.0f} W measured {when}", certain


def beside_gpus(reading: Reading, load: Load) -> t.Optional[float]:
    """Watts that the host draws now beside its GPUs, None where one of both is not known.

    A BMC that tells less than the GPUs draw tells of a part of the host.
    """
    consumed, drawn = reading["consumed_w"], load.gpu_draw_w
    return None if consumed is None or drawn is None or consumed <= drawn else consumed - drawn


def at_work(load: Load) -> bool:
    """Whether the GPUs draw so much that the rest of the host works too."""
    return bool(load.gpu_limits_w and load.gpu_draw_w and load.gpu_draw_w >= LOADED * load.gpu_limits_w)


def _events(reading: Reading) -> t.List[Finding]:
    """Losses of input that are over: each was told in the event log, with the later word that it came back."""
    if reading["source"] != "ipmi":
        return []
    if reading["events"] is None:
        why = reading["errors"].get("event log", "not read")
        return [_unknown("psu-events", f"the event log cannot be read: {why}", "the last entries of the log")]
    now = _seconds(str(reading.get("observed_at", "")))
    lost: t.Dict[str, int] = {}
    for event in reading["events"]:
        when = _seconds(event["at"])
        recent = when is not None and now is not None and 0 <= now - when + 86400 <= (RECENT_DAYS + 1) * 86400
        if recent and event["way"].startswith("assert") and "lost" in event["event"].lower():
            lost[event["sensor"]] = lost.get(event["sensor"], 0) + 1
    if not lost:
        return [Finding("psu-events", "ok", found=f"no loss of input in {RECENT_DAYS} days", policy="report")]
    told = ", ".join(f"{name} {count} times" for name, count in sorted(lost.items()))
    return [
        Finding(
            "psu-events",
            "warn",
            HOST,
            f"lost input within {RECENT_DAYS} days: {told}",
            "none",
            "ask facility",
            "report",
        )
    ]


def _seconds(at: str) -> t.Optional[int]:
    try:
        return calendar.timegm(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        return None


def _names(names: t.Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
