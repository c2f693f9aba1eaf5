# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What workers sent, judged: did each device finish, is every product right, is none slow? Pure."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field
from statistics import median

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.environment import died
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject

Event = t.Mapping[str, t.Any]

#: A device is slow that lies this much under its siblings' median, and this many of their median deviations.
SLOW_SHARE = 0.08
SLOW_DEVIATIONS = 4.0
_SIGKILL = -9


@dataclass(frozen=True)
class Device:
    """One device and what came of its worker (as supervise.Outcome has it)."""

    kind: str
    key: str  # UUID of a GPU, number of a CPU process
    name: str
    ended: str
    events: t.Sequence[Event] = field(default_factory=tuple)
    code: t.Optional[int] = None
    stderr: str = ""
    problem: str = ""
    seconds: float = 0.0

    @property
    def subject(self) -> Subject:
        """A GPU by its UUID; CPU processes are parts of the host."""
        return Subject("gpu", self.key) if self.kind == "cuda" else Subject("host", f"cpu{self.key}")

    def named(self, name: str) -> t.List[Event]:
        """Its events of that name."""
        return [event for event in self.events if event["event"] == name]


def judge(devices: t.Sequence[Device]) -> t.List[Finding]:
    """All Findings of all devices: ``matmul-run``, ``matmul-exact`` and ``matmul-rate`` for each."""
    found = []
    for device in devices:
        siblings = [other for other in devices if other is not device and other.name == device.name]
        found.append(_run(device))
        found.append(_exact(device, siblings))
        found.append(_rate(device, siblings))
    return found


def _during(device: Device) -> str:
    done = [event for event in device.events if event["event"] in ("imported", "exact", "ready", "rate")]
    if not done:
        return "before torch was imported"
    last = done[-1]
    step = f"{last['dtype']} {last['m']}x{last['n']}x{last['k']}" if "dtype" in last else last["event"]
    return f"after {step}"


def _run(device: Device) -> Finding:
    """Did the worker reach its end?"""
    subject = device.subject
    if device.ended == "done":
        return Finding("matmul-run", "ok", subject, found=f"done in {device.seconds:.0f} s")
    fault, action, found = "crash", "drain and inspect", f"the worker died: {died(device.code)}"
    if device.ended == "error":
        error = device.events[-1]
        fault = error.get("kind", "error")
        found = f"{error['type']}: {str(error['message']).splitlines()[0] if error['message'] else ''}"
        action = {"cuda_error": "reset GPU", "out_of_memory": "restart job"}.get(fault, "drain and inspect")
    elif device.ended in ("hang", "stuck"):
        fault, found = "hang", f"no answer within its time limit, killed after {device.seconds:.0f} s"
        if device.ended == "stuck":
            found, action = f"{found}; the process ignores SIGKILL (it sits in the kernel)", "reboot"
    elif device.ended == "not_started":
        fault, action, found = "not_started", "fix configuration", device.problem
    elif device.code == _SIGKILL:
        fault, action = "killed", "restart job"
        found = "the worker was killed by SIGKILL from outside, as the kernel's out-of-memory killer does"
    if device.kind == "cpu" and action == "reset GPU":
        action = "drain and inspect"
    return Finding(
        "matmul-run",
        "fail",
        subject,
        found=f"{found}, {_during(device)}",
        expected="the proof's end",
        action=action,
        evidence={"fault": fault, "stderr": device.stderr[-2000:], "code": device.code},
    )


def _product(event: Event) -> str:
    into = f" to {event['output']}" if event.get("output") not in (None, event["dtype"]) else ""
    return f"{event['dtype']}{into} {event['m']}x{event['n']}x{event['k']}"


def _wrong(event: Event) -> str:
    """One wrong product for a person: where, and the bits of the first wrong element."""
    rows, columns = event.get("rows") or [], event.get("columns") or []
    where = f" in rows {rows[0]} to {rows[1]}" if rows else ""
    where += f", columns {columns[0]} to {columns[1]}" if columns else ""
    elements = event.get("elements") or []
    bits = ""
    if elements:
        first = elements[0]
        bits = (
            f": element ({first['row']}, {first['column']}) is {first['found']} ({first['found_bits']}),"
            f" not {first['expected']} ({first['expected_bits']})"
        )
    return f"{_product(event)} is wrong{where}{bits}"


def _exact(device: Device, siblings: t.Sequence[Device]) -> Finding:
    """Is every product right to the last bit?

    Wrong in one shape is a warning. Wrong in another shape too is a failure: of
    this device where a sibling is clean, of what they share where none is.
    """
    events = device.named("exact")
    bad = [event for event in events if event["state"] in ("mismatch", "not_finite")]
    good = [event for event in events if event["state"] == "ok"]
    subject = device.subject
    if not bad:
        if not good:
            return Finding(
                "matmul-exact",
                "unknown",
                subject,
                found="no product was computed",
                expected="exact products",
                action="drain and inspect",
            )
        if device.ended != "done":
            return Finding(
                "matmul-exact",
                "unknown",
                subject,
                found=f"{len(good)} products exact, then no more",
                expected="all of them",
                action="drain and inspect",
            )
        types = sorted({event["dtype"] for event in good})
        return Finding(
            "matmul-exact", "ok", subject, found=f"{len(good)} products exact to the last bit ({', '.join(types)})"
        )
    fault = "not_finite" if any(event["state"] == "not_finite" for event in bad) else "mismatch"
    evidence = {"fault": fault, "products": [dict(event) for event in bad[:10]], "wrong": len(bad), "right": len(good)}
    state, action, reason = "warn", "none", "in one shape only, not in another: prove this host again"
    if len({(event["m"], event["n"], event["k"]) for event in bad}) > 1:
        state = "fail"
        dirty = {_product(event) for event in bad}
        clean = [other for other in siblings if _clean(other, dirty)]
        if clean:
            action, reason = "replace", f"repeated; the same products are right on {', '.join(o.key for o in clean)}"
        elif siblings:
            action, reason = (
                "fix configuration",
                "repeated, and wrong on every sibling: suspect the library, not the device",
            )
        else:
            action, reason = "drain and inspect", "repeated; there is no sibling to compare with"
    return Finding(
        "matmul-exact",
        state,
        subject,
        found=_wrong(bad[0]),
        expected="the exact product",
        action=action,
        reason=reason,
        evidence=evidence,
    )


def _clean(device: Device, products: t.Set[str]) -> bool:
    """Whether it computed these products, all right."""
    states: t.Dict[str, t.Set[str]] = {}
    for event in device.named("exact"):
        states.setdefault(_product(event), set()).add(event["state"])
    return all(states.get(product) == {"ok"} for product in products)


def _by_product(device: Device) -> t.Dict[str, t.List[float]]:
    """TFLOPS of each round by product."""
    measured: t.Dict[str, t.List[float]] = {}
    for event in device.named("rate"):
        if event["state"] == "ok":
            measured.setdefault(_product(event), []).append(event["tflops"])
    return measured


def short_of(own: float, others: t.Sequence[float]) -> float:
    """By which share ``own`` lies under the median of ``others`` where that is remarkable, else 0."""
    middle = median(others)
    deviation = median([abs(value - middle) for value in others])
    short = middle - own
    if short > SLOW_SHARE * middle and short > SLOW_DEVIATIONS * deviation:
        return short / middle
    return 0.0


def _rate(device: Device, siblings: t.Sequence[Device]) -> Finding:
    """Is it as fast as its siblings, in at least one of two rounds, for every product?"""
    subject, own = device.subject, _by_product(device)
    if not own or not all(value > 0 for values in own.values() for value in values):
        return Finding(
            "matmul-rate", "unknown", subject, found="nothing was timed", expected="a rate", action="drain and inspect"
        )
    best = max(own, key=lambda product: max(own[product]))
    found = f"{max(own[best]):.4g} TFLOPS ({best})"
    others = [_by_product(other) for other in siblings]
    slow = {}
    for product, rounds in own.items():
        beside = [measured[product] for measured in others if len(measured.get(product, ())) == len(rounds)]
        if len(beside) < 2 or len(rounds) < 2:
            continue  # with one sibling nobody knows which of the two is off
        shorts = [short_of(value, [rounds_of[turn] for rounds_of in beside]) for turn, value in enumerate(rounds)]
        if all(shorts):
            slow[product] = min(shorts)
    if not slow:
        return Finding("matmul-rate", "ok", subject, found=found)
    worst = max(slow, key=lambda product: slow[product])
    on_cpu = device.kind == "cpu"
    return Finding(
        "matmul-rate",
        "warn" if on_cpu else "fail",
        subject,
        found=f"{slow[worst]:.0%} under its siblings in every round ({worst}, {median(own[worst]):.4g} TFLOPS)",
        expected=f"at most {SLOW_SHARE:.0%} under them",
        action="none" if on_cpu else "drain and inspect",
        policy="report" if on_cpu else "block",
        reason="other load on the CPU cannot be told from a slow one" if on_cpu else "",
        evidence={"fault": "slow", "short": slow},
    )
