# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the devices did together, judged: sums right and fast, peers, trainings. Pure."""

from __future__ import annotations

import typing as t
from statistics import median

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.expected import BUS_FLOOR, bus_bandwidth
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Event

#: torchrun's own way to end the ranks that are left.
_SIGTERM = 15
_HOST = Subject("host")
#: A pair of GPUs that copies at less than this share of the median pair is named. Chips on one board differ by a tenth.
_PEER_FLOOR = 0.5


class Result(t.NamedTuple):
    """What came of the launcher, as supervise.Outcome has it, and of which devices: their kind and product name."""

    kind: str
    name: str
    ended: str
    events: t.Sequence[Event]
    stderr: str = ""
    problem: str = ""

    def named(self, name: str) -> t.List[Event]:
        """Its events of that name."""
        return [event for event in self.events if event["event"] == name]


def judge_together(result: Result) -> t.List[Finding]:
    """``collective-run``, and where it ended well or not what was measured until then."""
    found = [_run(result)]
    found += _sums(result)
    found += _peers(result)
    found += [_training(event) for event in result.named("training") if event["state"] != "unsupported"]
    return found


def _run(result: Result) -> Finding:
    if result.ended == "done":
        return Finding("collective-run", "ok", _HOST, found=f"done on {result.name}")
    if any(event.get("kind") == "unsupported" for event in result.named("error")):
        return Finding(
            "collective-run",
            "warn",
            _HOST,
            found=f"torchrun does not start: {_line(result.named('error')[-1]['message'])}",
            expected="trainings of several processes",
            reason="this build of torch cannot; nothing of what the devices do together was proved",
        )
    scratch = [event for event in result.named("error") if event.get("kind") == "scratch"]
    if scratch:
        return Finding(
            "collective-run",
            "unknown",
            _HOST,
            found=f"torchrun has no folder for its files: {scratch[0]['message']}",
            expected="a folder for temporary files that can be written",
            action="fix configuration",
            evidence={"fault": "scratch"},
        )
    errors = result.named("rank_error")
    codes = {rank: code for event in result.named("error") for rank, code in event.get("codes", {}).items()}
    killed = {rank: code for rank, code in codes.items() if code < 0 and code != -_SIGTERM}
    if result.ended in ("hang", "stuck") and result.kind == "cpu":
        # A hang cannot be told from few busy cores that are slow: not proved, and no device is to blame.
        return Finding(
            "collective-run",
            "unknown",
            _HOST,
            found=_late(result),
            expected="all-reduce and trainings to their end; a busy machine needs a longer verify_timeout",
            evidence={"fault": "hang"},
        )
    if result.ended in ("hang", "stuck"):
        fault, found = "hang", _late(result)
    elif killed:
        rank, code = min(killed.items())
        fault, found = "crash", f"rank {rank} was killed by signal {-code}"
    elif errors:
        first = errors[0]
        fault, found = first["kind"], f"rank {first['rank']}: {first['type']}: {_line(first['message'])}"
    else:
        last = result.named("error")
        fault, found = "crash", _line(last[-1]["message"]) if last else "torchrun died"
    return Finding(
        "collective-run",
        "fail",
        _HOST,
        found=found,
        expected="all-reduce and trainings to their end",
        action="drain and inspect",
        evidence={"fault": fault, "ranks": [dict(event) for event in errors], "stderr": result.stderr[-2000:]},
    )


def _late(result: Result) -> str:
    return f"{result.name} together: {result.problem or 'no answer within the time limit'}"


def _line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""


def _sums(result: Result) -> t.List[Finding]:
    events = result.named("allreduce")
    if not events:
        return []
    wrong = [event for event in events if not event["right"]]
    if wrong:
        return [
            Finding(
                "allreduce",
                "fail",
                _HOST,
                found=f"the sum of {wrong[0]['bytes']} bytes over {wrong[0]['ranks']} ranks is wrong",
                expected="the sum of whole numbers, exact",
                action="drain and inspect",
                evidence={"fault": "mismatch", "sizes": [event["bytes"] for event in wrong]},
            )
        ]
    largest = max(events, key=lambda event: int(event["bytes"]))
    rate, ranks = largest["busbw_gbs"], largest["ranks"]
    found = f"{rate:.3g} GB/s bus bandwidth over {ranks} ranks at {largest['bytes'] >> 20} MiB"
    usual = bus_bandwidth(result.name, ranks)
    if usual is None or rate >= BUS_FLOOR * usual:
        return [Finding("allreduce", "ok", _HOST, found=found)]
    return [
        Finding(
            "allreduce",
            "fail",
            _HOST,
            found=found,
            expected=f"at least {BUS_FLOOR * usual:.3g}",
            action="drain and inspect",
            reason="NVLink or its switches are not used: look at the topology and the fabric manager",
            evidence={"fault": "slow", "usual": usual},
        )
    ]


def _peers(result: Result) -> t.List[Finding]:
    events = result.named("peer")
    if not events:
        return []
    middle = median([event["gbs"] for event in events])
    wrong = [event for event in events if not event["right"]]
    slow = [event for event in events if event["gbs"] < _PEER_FLOOR * middle]
    rates = sorted(event["gbs"] for event in events)
    found = f"{len(events)} pairs, {rates[0]:.3g} to {rates[-1]:.3g} GB/s"
    if not wrong and not slow:
        return [Finding("peer-copy", "ok", _HOST, found=found)]
    bad = wrong or slow
    named = ", ".join(f"{event['source']} to {event['target']} ({event['gbs']:.3g} GB/s)" for event in bad[:5])
    return [
        Finding(
            "peer-copy",
            "fail" if wrong else "warn",
            _HOST,
            found=f"{'wrong data' if wrong else 'slow'} from GPU {named}; {found}",
            expected="every pair alike",
            action="drain and inspect",
            evidence={"fault": "mismatch" if wrong else "slow", "pairs": [dict(event) for event in bad[:20]]},
        )
    ]


def _training(event: Event) -> Finding:
    check = "training-" + event["name"].replace(" ", "-").replace("_", "-")
    if "gradients_equal" in event:
        good, found = event["gradients_equal"], "gradients equal those of the unsharded model"
        bad = "gradients differ from those of the unsharded model"
    else:
        falls = event["last_loss"] < 0.5 * event["first_loss"]
        good = falls and event["gradients_agree"]
        found = f"loss {event['first_loss']:.3g} to {event['last_loss']:.3g}, the same gradients on all ranks"
        bad = (
            "gradients differ between ranks" if falls else f"loss {event['first_loss']:.3g} to {event['last_loss']:.3g}"
        )
    if good:
        return Finding(check, "ok", _HOST, found=found)
    return Finding(
        check,
        "fail",
        _HOST,
        found=bad,
        expected="a loss that falls by half, and the right gradients",
        action="drain and inspect",
        evidence={"fault": "training", **{key: value for key, value in event.items() if key != "event"}},
    )
