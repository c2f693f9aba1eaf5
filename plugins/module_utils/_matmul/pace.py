# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a device as fast as its siblings, its model and its PCIe link? Pure."""

from __future__ import annotations

import typing as t
from statistics import median

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.expected import (
    FLOOR,
    PEAK_FLOOR,
    achieved,
    peak_tflops,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device, Event, product

#: A device is slow that lies this much under its siblings' median, and this many of their median deviations.
SLOW_SHARE = 0.08
SLOW_DEVIATIONS = 4.0
#: Bits of nvmlClocksEventReasons that slow a GPU down (nvml.h).
REASONS = {
    0x4: "its power cap",
    0x8: "a hardware slowdown",
    0x20: "its temperature (software)",
    0x40: "its temperature (hardware)",
    0x80: "the power brake of the chassis",
}
_POWER_CAP = 0x4

Measured = t.Dict[str, t.List[float]]


def pace(device: Device, siblings: t.Sequence[Device]) -> t.List[Finding]:
    """``matmul-rate``, ``memory-rate`` and ``pcie-link`` of one device."""
    found = [_rate(device, siblings)]
    found += _copies(device, siblings)
    found += _link(device)
    return found


def short_of(own: float, others: t.Sequence[float]) -> float:
    """By which share ``own`` lies under the median of ``others`` where that is remarkable, else 0."""
    middle = median(others)
    deviation = median([abs(value - middle) for value in others])
    short = middle - own
    if short > SLOW_SHARE * middle and short > SLOW_DEVIATIONS * deviation:
        return short / middle
    return 0.0


def _tflops(device: Device) -> Measured:
    """TFLOPS of each round by product."""
    measured: Measured = {}
    for event in device.named("rate"):
        if event["state"] == "ok":
            measured.setdefault(product(event), []).append(event["tflops"])
    return measured


def _gbs(device: Device) -> Measured:
    """GB/s of each round by way."""
    measured: Measured = {}
    for event in device.named("copy"):
        measured.setdefault(event["way"], []).append(event["gbs"])
    return measured


def slow_in_every_round(own: Measured, others: t.Sequence[Measured]) -> t.Dict[str, float]:
    """What is remarkably slower than the siblings' in each of at least two rounds, and by which share at least."""
    slow = {}
    for name, rounds in own.items():
        beside = [measured[name] for measured in others if len(measured.get(name, ())) == len(rounds)]
        if len(beside) < 2 or len(rounds) < 2:
            continue  # with one sibling nobody knows which of the two is off
        shorts = [short_of(value, [each[turn] for each in beside]) for turn, value in enumerate(rounds)]
        if all(shorts):
            slow[name] = min(shorts)
    return slow


def cause(device: Device) -> str:
    """What its counters say slowed it down while it was timed, "" where they show nothing."""
    readings = [event["counters"] for event in device.named("rate") if event.get("counters")]
    bits = 0
    for reading in readings:
        bits |= reading.get("event_reasons", 0)
    named = [text for bit, text in REASONS.items() if bits & bit]
    limits = [
        f" ({reading['power_limit_w']:.0f} W, {reading['default_limit_w']:.0f} W by default)"
        for reading in readings
        if bits & _POWER_CAP and reading.get("power_limit_w", 0) < reading.get("default_limit_w", 0)
    ]
    return f"held back by {' and '.join(named)}{limits[0] if limits else ''}" if named else ""


def _untimed(device: Device) -> str:
    """Why no rate can be had of a device that finished, "" where one can."""
    if device.ended != "done":
        return ""
    timed = device.named("rate")
    computed = sorted({event["dtype"] for event in device.named("exact")})
    if device.kind == "cpu" and not timed and computed and "float32" not in computed:
        return f"on a CPU only float32 is timed, and verify_dtypes asks for {', '.join(computed)}"
    if timed and all(event["state"] == "unsupported" for event in timed):
        return f"this device or torch has no {', '.join(sorted({event['dtype'] for event in timed}))}"
    return ""


def _rate(device: Device, siblings: t.Sequence[Device]) -> Finding:
    subject, own = device.subject, _tflops(device)
    reason = _untimed(device)
    if reason:
        return Finding("matmul-rate", "not_applicable", subject, reason=reason)
    if not own or not all(value > 0 for values in own.values() for value in values):
        return Finding(
            "matmul-rate", "unknown", subject, found="nothing was timed", expected="a rate", action="drain and inspect"
        )
    best = max(own, key=lambda name: max(own[name]))
    found = f"{median(own[best]):.4g} TFLOPS ({best})"
    slow = slow_in_every_round(own, [_tflops(other) for other in siblings])
    on_cpu = device.kind == "cpu"
    if slow:
        worst = max(slow, key=lambda name: slow[name])
        return Finding(
            "matmul-rate",
            "warn" if on_cpu else "fail",
            subject,
            found=f"{slow[worst]:.0%} under its siblings in every round ({worst}, {median(own[worst]):.4g} TFLOPS)",
            expected=f"at most {SLOW_SHARE:.0%} under them",
            action="none" if on_cpu else "drain and inspect",
            policy="report" if on_cpu else "block",
            reason="other load on the CPU cannot be told from a slow one" if on_cpu else cause(device),
            evidence={"fault": "slow", "short": slow},
        )
    for dtype, usual in achieved(device.name).items():
        reached = [median(values) for name, values in own.items() if name.split(" ", maxsplit=1)[0] == dtype]
        if reached and max(reached) < FLOOR * usual:
            why = cause(device)
            return Finding(
                "matmul-rate",
                "fail",
                subject,
                found=f"{max(reached):.4g} TFLOPS in {dtype}",
                expected=f"at least {FLOOR * usual:.4g}: {FLOOR:.0%} of what this model was measured to reach",
                action="ask facility" if why else "drain and inspect",
                reason=why,
                evidence={"fault": "slow", "dtype": dtype, "usual": usual},
            )
    shares = [_of_peak(device, event) for event in device.named("rate") if event["state"] == "ok"]
    reached_share = max((share for share in shares if share is not None), default=1.0)
    if reached_share < PEAK_FLOOR:
        return Finding(
            "matmul-rate",
            "warn",
            subject,
            found=f"{reached_share:.0%} of what its tensor cores do at the clock they ran at ({found})",
            expected=f"at least {PEAK_FLOOR:.0%} in the best shape",
            action="drain and inspect",
            reason=cause(device) or "the clock is not what holds it back: suspect the library",
            evidence={"fault": "slow", "of_peak_at_clock": round(reached_share, 3)},
        )
    return Finding("matmul-rate", "ok", subject, found=found, reason=cause(device))


def _copies(device: Device, siblings: t.Sequence[Device]) -> t.List[Finding]:
    own = _gbs(device)
    if not own:
        return []
    found = ", ".join(f"{median(rounds):.4g} GB/s {way.replace('_', ' ')}" for way, rounds in own.items())
    slow = {} if device.kind == "cpu" else slow_in_every_round(own, [_gbs(other) for other in siblings])
    if not slow:
        return [Finding("memory-rate", "ok", device.subject, found=found)]
    named = ", ".join(f"{way.replace('_', ' ')} {short:.0%}" for way, short in slow.items())
    return [
        Finding(
            "memory-rate",
            "fail",
            device.subject,
            found=f"under its siblings in every round: {named} ({found})",
            expected=f"at most {SLOW_SHARE:.0%} under them",
            action="drain and inspect",
            evidence={"fault": "slow", "short": slow},
        )
    ]


def _link(device: Device) -> t.List[Finding]:
    """The PCIe link while it carried data: an idle one is slow on purpose."""
    for event in device.named("copy"):
        now = event.get("counters") or {}
        if event["way"] == "memory" or "pcie_width" not in now or "max_pcie_width" not in now:
            continue
        link = f"generation {now.get('pcie_generation')} x{now['pcie_width']}"
        best = f"generation {now.get('max_pcie_generation')} x{now['max_pcie_width']}"
        whole = link == best
        return [
            Finding(
                "pcie-link",
                "ok" if whole else "warn",
                device.subject,
                found=f"{link} under load",
                expected=best,
                action="none" if whole else "drain and inspect",
                evidence=dict(now),
            )
        ]
    return []


def rates(device: Device) -> t.List[t.Dict[str, t.Any]]:
    """For the proof: each product's median TFLOPS, its rounds, and its share of the peak at its clock."""
    rows: t.Dict[str, t.Dict[str, t.Any]] = {}
    for event in device.named("rate"):
        row = rows.setdefault(product(event), {name: event[name] for name in ("dtype", "m", "n", "k", "state")})
        if event["state"] != "ok":
            row["reason"] = event["reason"]
            continue
        row.setdefault("rounds", []).append(float(f"{event['tflops']:.5g}"))
        row["tflops"] = median(row["rounds"])
        row["counters"] = event.get("counters") or {}
        share = _of_peak(device, {**event, "tflops": row["tflops"]})
        if share is not None:
            row["of_peak_at_clock"] = round(share, 3)
    return list(rows.values())


def copies(device: Device) -> t.List[t.Dict[str, t.Any]]:
    """For the proof: each way with its median GB/s."""
    return [{"way": way, "gbs": round(median(rounds), 2)} for way, rounds in _gbs(device).items()]


def _of_peak(device: Device, event: Event) -> t.Optional[float]:
    """Share of what its tensor cores do at most at the clock it was measured at; None where one is not known."""
    clock = (event.get("counters") or {}).get("sm_mhz")
    if not clock or event["dtype"] not in ("float16", "bfloat16"):
        return None
    peak = peak_tflops(device.capability, device.multiprocessors, clock)
    return float(event["tflops"]) / peak if peak else None
