# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer of another form, from whatever took the interpreter's place, is named and never ok."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.judge import judge
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device, damage, sound
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.together import Result, judge_together

PRODUCT = {"dtype": "float32", "m": 512, "n": 512, "k": 512}
EXACT = {"event": "exact", **PRODUCT, "state": "ok"}
RATE = {"event": "rate", **PRODUCT, "state": "ok", "tflops": 0.1}
COPY = {"event": "copy", "way": "memory", "gbs": 10.0}
AGREEMENT = {"event": "agreement", **PRODUCT, "rounds": 5, "differing": 0, "digest": "00"}
PATTERN = {"event": "pattern", "mib": 128, "wrong": 0}
SUM = {"event": "allreduce", "bytes": 1024, "right": True, "busbw_gbs": 1.0, "ranks": 2}
PEER = {"event": "peer", "source": 0, "target": 1, "gbs": 300.0, "right": True}
TRAINING = {"event": "training", "name": "fully_shard", "state": "done", "gradients_equal": True}
WHOLE = [EXACT, RATE, {**RATE, "tflops": 0.11}, COPY, AGREEMENT, PATTERN]
TOGETHER = [SUM, PEER, TRAINING]


def without(event, name):
    return {key: value for key, value in event.items() if key != name}


@pytest.mark.parametrize("event", WHOLE + TOGETHER + [{"event": "imported"}, {"event": "before", "power_w": None}])
def test_what_workers_send_is_whole(event):
    assert damage(event) == ""


@pytest.mark.parametrize(
    "event",
    [without(event, name) for event in WHOLE[:1] + WHOLE[3:] + TOGETHER for name in event
     if name not in ("event", "gradients_equal")]
    + [{**RATE, "tflops": value} for value in (float("nan"), float("inf"), -1.0, True, "0.1", None, [1])]
    + [{**COPY, "gbs": value} for value in (float("nan"), float("inf"), -1, False, "x")]
    + [{**PATTERN, "wrong": value} for value in (float("nan"), -1, None)]
    + [without(RATE, "tflops"), {**EXACT, "state": "unsupported"}, {"event": "compile", "state": "error"},
       {"event": "error"}],
)  # fmt: skip
def test_a_damaged_answer_is_named_and_never_ok(event):
    ended, events = sound("done", [*WHOLE, *TOGETHER, event])
    assert ended == "error" and damage(event) in events[-1]["message"]
    found = judge([Device("cuda", "GPU-a", "GPU", ended, events)])
    found += judge_together(Result("cuda", "2 x GPU", ended, events))
    states = {item.check: (item.state, item.evidence.get("fault")) for item in found}
    assert states["matmul-run"] == ("fail", "damaged") and states["collective-run"][0] == "fail"


def test_what_is_whole_is_left_as_it_is():
    assert sound("done", WHOLE) == ("done", WHOLE)
    assert sound("hang", [{**RATE, "tflops": None}])[0] == "hang"


def test_every_finding_names_the_gpus_place_on_pci():
    found = judge([Device("cuda", "GPU-a", "GPU", "done", WHOLE, pci_address="0000:1b:00.0")])
    assert {item.evidence.get("pci_address") for item in found} == {"0000:1b:00.0"}
