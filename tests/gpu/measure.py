# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures of the proof beside a hand-written loop, and faults on the device itself. Prints a table last; see run.sh.

measure.py PYTHON FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import typing as t
from pathlib import Path

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import jobs, prove
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.supervise import Source, Supervisor, Worker

LOOP = Path(__file__).with_name("loop.py")
#: The share of the loop's best that the proof has to reach.
SHARE = 0.98
FAULTS = 100
#: After the worker's own code: flip one bit of one element of each product, and see whether the checks name it.
FLIPS = """
import random
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.products import (
    operands, suspicious_rows, wrong_elements)
def flips(torch, job, wire):
    device, source = Device(torch, job["device"]), random.Random(1)
    for spec in job["exact"]:
        try:
            device.supports(spec["dtype"])
            a, b = operands(torch, spec)
            right = device.cast(b, spec["dtype"], right=True)
            c = device.multiply(device.cast(a, spec["dtype"]), right, spec["dtype"], spec["output"])
        except Exception as error:
            wire.emit("flips", **spec, skipped=str(error)[:100])
            continue
        near, far, most = a.to(device.name), b.to(device.name), spec["terms"] * spec["p"] * spec["q"]
        alarms, found, width = bool(suspicious_rows(torch, near, far, c, most, 0)), 0, 8 * c.element_size()
        bits = c.view({16: torch.int16, 32: torch.int32}[width])
        for turn in range(job["faults"]):
            row, column, bit = source.randrange(spec["m"]), source.randrange(spec["n"]), source.randrange(width)
            mask = -(1 << bit) if bit == width - 1 else 1 << bit
            bits[row, column] ^= mask
            rows = suspicious_rows(torch, near, far, c, most, turn)
            wrong = wrong_elements(torch, a, b, c, rows)
            found += rows == [row] and [(item["row"], item["column"]) for item in wrong] == [(row, column)]
            bits[row, column] ^= mask
        wire.emit("flips", **spec, found=found, alarms=alarms)
def main(job):
    serve(flips, job)
"""


def flips(python: str, kind: str) -> list[dict[str, t.Any]]:
    """What the checks made of flipped bits on the device."""
    source = list(prove.worker_source())
    changed: Source = [*source[:-1], (source[-1][0], source[-1][1] + FLIPS)]
    job = jobs.job(kind, "quick", 60)
    if kind == "cuda":  # small, so that a hundred trials of each take seconds; still tiles for every multiprocessor
        job["exact"] = [spec for spec in job["exact"] if spec["m"] == 2048]
    work = {**job, "device": "cuda:0" if kind == "cuda" else "cpu", "faults": FAULTS}
    (outcome,) = Supervisor(python, changed, before=200).run([Worker("flips", work)])
    if outcome.ended != "done":
        print(outcome.ended, outcome.events[-1:], outcome.stderr, file=sys.stderr)
    return outcome.named("flips")


def loop(python: str, kind: str, dtype: str, shapes: t.Iterable[str]) -> dict[str, float]:
    """TFLOPS by shape of the hand-written loop, empty where this device has no such product."""
    done = subprocess.run([python, str(LOOP), kind, dtype, *shapes], capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-500:], file=sys.stderr)
        return {}
    return dict(json.loads(done.stdout))


def main() -> int:
    """0 where every figure holds."""
    python, folder = sys.argv[1], Path(sys.argv[2])
    begun = time.monotonic()
    proof, findings = prove.prove(prove.Settings(python=python, owned=False, memory_percent=50))
    seconds = time.monotonic() - begun
    rows: list[tuple[str, str, str, bool]] = []
    state = fold(findings)
    rows.append(("proof, level quick", f"{state}, {seconds:.0f} s with import", "ready", state == "ready"))
    for finding in findings:
        if finding.state not in ("ok", "not_applicable"):
            rows.append((finding.id, f"{finding.state}: {finding.found}", finding.expected, False))
    for device in proof["devices"][:1]:
        kind = device["kind"]
        own: dict[str, dict[str, float]] = {}
        for row in device["rates"]:
            if row["state"] == "ok":
                own.setdefault(row["dtype"], {})[f"{row['m']}x{row['n']}x{row['k']}"] = row["tflops"]
        for dtype in ("bfloat16", "float8_e4m3fn") if kind == "cuda" else ("float32",):
            mine, theirs = own.get(dtype, {}), loop(python, kind, dtype, own.get(dtype, {}))
            if mine and theirs:
                best, by_hand = max(mine.values()), max(theirs.values())
                # On a CPU that others use the comparison shows only that it works.
                good = best >= SHARE * by_hand or kind == "cpu"
                rows.append((f"{dtype}, best shape", f"{best:.4g} TFLOPS", f"{by_hand:.4g} by hand", good))
        for event in flips(python, kind):
            name = f"flips, {event['dtype']} to {event['output']}"
            if "skipped" in event:
                rows.append((name, f"skipped: {event['skipped']}", "", True))
            else:
                good = event["found"] == FAULTS and not event["alarms"]
                rows.append((name, f"{event['found']} of {FAULTS} found", f"{FAULTS}", good))
    (folder / "result.json").write_text(
        json.dumps({"proof": proof, "findings": [finding.to_dict() for finding in findings], "rows": rows}, indent=2)
    )
    for device in proof["devices"]:
        print(f"{device['kind']} {device['key']} {device['name']}, torch {proof['environment']['torch_version']}")
        for row in device["rates"]:
            print("  ", {name: row[name] for name in row if name not in ("state", "rounds")})
        print("  ", device["copies"])
    width = max(len(row[0]) for row in rows)
    for name, found, expected, good in rows:
        print(
            f"{'ok  ' if good else 'FAIL'} {name:<{width}}  {found}  ({expected})"
            if expected
            else f"ok   {name}  {found}"
        )
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
