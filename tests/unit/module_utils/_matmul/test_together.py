# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What devices did together, judged."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.together import Result, judge_together

H100S = "8 x NVIDIA H100 80GB HBM3"
DDP, SHARD = "training-ddp-bfloat16", "training-fully-shard"


def total(size=1 << 30, right=True, busbw=450.0, ranks=8):
    return {"event": "allreduce", "bytes": size, "right": right, "busbw_gbs": busbw, "ranks": ranks}


def ddp(last=0.1, agree=True):
    losses = {"first_loss": 1.0, "last_loss": last}
    return {"event": "training", "name": "ddp bfloat16", "state": "done", **losses, "gradients_agree": agree}


def shard(equal):
    return {"event": "training", "name": "fully_shard", "state": "done", "gradients_equal": equal}


def peer(source, target, gbs=390.0, right=True):
    return {"event": "peer", "source": source, "target": target, "gbs": gbs, "right": right, "access": True}


def found(*events, ended="done", name=H100S):
    return {item.check: item for item in judge_together(Result("cuda", name, ended, events))}


def test_well_together():
    items = found(
        total(1024, busbw=0.1),
        total(),
        peer(0, 1),
        peer(1, 0, 380.0),
        ddp(),
        shard(True),
        {"event": "training", "name": "ddp float16", "state": "unsupported", "reason": "no GradScaler"},
    )
    assert {item.state for item in items.values()} == {"ok"}
    assert set(items) == {"collective-run", "allreduce", "peer-copy", DDP, SHARD}
    assert items["allreduce"].found == "450 GB/s bus bandwidth over 8 ranks at 1024 MiB"


@pytest.mark.parametrize(
    "event, check, state, fault",
    [
        (total(right=False), "allreduce", "fail", "mismatch"),
        (total(busbw=60.0), "allreduce", "fail", "slow"),
        (peer(0, 1, right=False), "peer-copy", "fail", "mismatch"),
        (peer(0, 1, gbs=20.0), "peer-copy", "warn", "slow"),
        (ddp(0.9), DDP, "fail", "training"),
        (ddp(float("nan")), DDP, "fail", "training"),
        (ddp(agree=False), DDP, "fail", "training"),
        (shard(False), SHARD, "fail", "training"),
    ],
)
def test_each_fault_by_its_name(event, check, state, fault):
    others = [peer(1, 0), peer(2, 0), peer(2, 1)] if event["event"] == "peer" else []
    item = found(event, *others)[check]
    assert (item.state, item.evidence["fault"]) == (state, fault)


def test_a_model_without_published_rates_has_no_floor():
    assert found(total(busbw=5.0), name="8 x NVIDIA A10")["allreduce"].state == "ok"
    assert found(total(busbw=5.0, ranks=4))["allreduce"].state == "ok"


def test_a_build_without_torchrun_is_a_warning():
    """As Debian builds torch."""
    message = "use_libuv was requested but PyTorch was build without libuv support"
    item = found(
        {"event": "error", "kind": "unsupported", "type": "RendezvousConnectionError", "message": message},
        ended="error",
    )["collective-run"]
    assert item.state == "warn" and message in item.found


@pytest.mark.parametrize(
    "ended, events, fault, says",
    [
        ("hang", [], "hang", "no answer"),
        (
            "error",
            [
                {
                    "event": "rank_error",
                    "rank": "3",
                    "kind": "cuda_error",
                    "type": "DistError",
                    "message": "NCCL\nmore",
                },
                {"event": "error", "kind": "rank", "type": "ChildFailedError", "message": "\n====\nfailed"},
            ],
            "cuda_error",
            "rank 3: DistError: NCCL",
        ),
        ("error", [{"event": "error", "kind": "rank", "type": "ChildFailedError", "message": "x"}], "crash", "x"),
        ("crash", [], "crash", "torchrun died"),
    ],
)
def test_a_run_without_an_end(ended, events, fault, says):
    item = found(*events, ended=ended)["collective-run"]
    assert (item.state, item.evidence["fault"]) == ("fail", fault) and says in item.found


def test_a_full_disk_is_no_fault_of_a_device():
    message = "[Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp']"
    event = {"event": "error", "kind": "scratch", "type": "FileNotFoundError", "message": message, "codes": {}}
    item = found(event, ended="error")["collective-run"]
    assert (item.state, item.action) == ("unknown", "fix configuration") and message in item.found


def test_cpu_processes_that_are_slow_together_are_not_proved():
    slow = Result("cpu", "2 x CPU process", "hang", [])
    item = {finding.check: finding for finding in judge_together(slow)}["collective-run"]
    assert (item.state, item.policy) == ("unknown", "block") and "verify_timeout" in item.expected
