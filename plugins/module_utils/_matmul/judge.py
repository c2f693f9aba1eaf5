# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What workers sent, judged: did each device finish, is every product right, is none slow? Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.environment import died
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, replace
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.pace import pace
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device, Event, product

_SIGKILL = -9


def judge(devices: t.Sequence[Device]) -> t.List[Finding]:
    """All Findings of all devices: did each finish, is every product right, is its memory, is it fast?"""
    found = []
    for device in devices:
        if device.named("busy"):
            found.append(_busy(device))
            continue
        siblings = [other for other in devices if other is not device and other.name == device.name]
        found.append(_run(device))
        found.append(_exact(device, siblings))
        found += _agreement(device, siblings)
        found += _pattern(device)
        found += _compiled(device)
        found += pace(device, siblings)
    places = {device.subject: device.pci_address for device in devices if device.pci_address}
    return [_placed(item, places.get(item.subject, "")) for item in found]


def _placed(finding: Finding, address: str) -> Finding:
    return replace(finding, evidence={**finding.evidence, "pci_address": address}) if address else finding


def _busy(device: Device) -> Finding:
    """Somebody computes on it: nothing was run, and so nothing is known."""
    users = device.named("busy")[0]
    pids = ", ".join(str(pid) for pid in users.get("pids", []))
    return Finding(
        "matmul-run",
        "unknown",
        device.subject,
        found=f"in use by process {pids}" if pids else f"{users.get('used_mib')} MiB of its memory are in use",
        expected="an idle GPU",
        reason="drain the host first, or let the proof share the GPU",
        evidence={"fault": "busy", **{key: value for key, value in users.items() if key != "event"}},
    )


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
        late = device.problem or "no answer within its time limit"
        fault, found = "hang", f"{late}, killed after {device.seconds:.0f} s"
        if device.ended == "stuck":
            found, action = late, "reboot"
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


def _compiled(device: Device) -> t.List[Finding]:
    """Can users compile their models, and is what comes of it right?"""
    found = []
    for event in device.named("compile"):
        state = event["state"]
        if state == "unsupported":
            found.append(
                Finding("torch-compile", "not_applicable", device.subject, reason=event["reason"], policy="report")
            )
        elif state == "error":
            found.append(
                Finding(
                    "torch-compile",
                    "warn",
                    device.subject,
                    found=f"{event['type']}: {event['message']}",
                    expected="torch.compile makes a kernel",
                    action="fix configuration",
                    policy="report",
                    reason="it needs a C compiler and Python's headers on the host, and a triton of this torch",
                )
            )
        else:
            right = state == "ok"
            found.append(
                Finding(
                    "torch-compile",
                    "ok" if right else "fail",
                    device.subject,
                    found="a compiled kernel is right to the last bit" if right else "a compiled kernel computes wrong",
                    expected="what the same work gives on the CPU",
                    action="none" if right else "drain and inspect",
                )
            )
    return found


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
    return f"{product(event)} is wrong{where}{bits}"


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
        lacking = {product(event): event["reason"] for event in events if event["state"] == "unsupported"}
        if lacking and len(lacking) == len({product(event) for event in events}) and device.ended == "done":
            return Finding(
                "matmul-exact",
                "unknown",
                subject,
                found=f"this device or torch has no {', '.join(sorted({event['dtype'] for event in events}))}",
                expected="exact products",
                action="fix configuration",
                reason="verify_dtypes asks for no type that it has",
                evidence={"unsupported": lacking},
            )
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
        count = sum(event.get("rounds", 1) for event in good)
        without = sorted({event["dtype"] for event in events} - set(types))
        return Finding(
            "matmul-exact",
            "ok",
            subject,
            found=f"{count} products exact to the last bit ({', '.join(types)})"
            + (f"; this device or torch has no {', '.join(without)}" if without else ""),
            evidence={"unsupported": lacking} if lacking else {},
        )
    fault = "not_finite" if any(event["state"] == "not_finite" for event in bad) else "mismatch"
    evidence = {"fault": fault, "products": [dict(event) for event in bad[:10]], "wrong": len(bad), "right": len(good)}
    state, action, reason = "warn", "none", "in one shape only, not in another: prove this host again"
    if len({(event["m"], event["n"], event["k"]) for event in bad}) > 1:
        state = "fail"
        dirty = {product(event) for event in bad}
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
        states.setdefault(product(event), set()).add(event["state"])
    return all(states.get(product) == {"ok"} for product in products)


def _agreement(device: Device, siblings: t.Sequence[Device]) -> t.List[Finding]:
    """Does it give the same bits in every round, and the same as its siblings?"""
    events = device.named("agreement")
    if not events:
        return []
    unsteady = [event for event in events if event["differing"]]
    if unsteady:
        first = unsteady[0]
        return [
            Finding(
                "matmul-agreement",
                "fail",
                device.subject,
                found=f"{product(first)} differed from itself in {first['differing']} of {first['rounds']} rounds",
                expected="the same bits in every round",
                action="drain and inspect",
                evidence={"fault": "unsteady", "products": [dict(event) for event in unsteady[:10]]},
            )
        ]
    own = {product(event): event["digest"] for event in events}
    for name, digest in own.items():
        others = [event["digest"] for other in siblings for event in other.named("agreement") if product(event) == name]
        common = max(set(others), key=others.count) if others else digest
        if digest != common and others.count(common) > len(others) / 2 and len(others) > 1:
            return [
                Finding(
                    "matmul-agreement",
                    "fail",
                    device.subject,
                    found=f"{name} differs from what {others.count(common)} of {len(others)} siblings give",
                    expected="the same bits on GPUs of one kind",
                    action="drain and inspect",
                    evidence={"fault": "disagrees", "digest": digest, "common": common},
                )
            ]
    return [Finding("matmul-agreement", "ok", device.subject, found=f"the same bits in {events[0]['rounds']} rounds")]


def _pattern(device: Device) -> t.List[Finding]:
    """Did its memory keep what was written?"""
    events = device.named("pattern")
    if not events:
        return []
    wrong, mib = sum(event["wrong"] for event in events), events[0]["mib"]
    if not wrong:
        return [Finding("memory-pattern", "ok", device.subject, found=f"{mib} MiB kept what was written")]
    return [
        Finding(
            "memory-pattern",
            "fail",
            device.subject,
            found=f"{wrong} of {mib << 17} words were not read back as written",
            expected="every word",
            action="replace",
            evidence={"fault": "memory", "wrong": wrong},
        )
    ]
