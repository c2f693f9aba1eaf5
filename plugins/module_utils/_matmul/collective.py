# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the devices of a host do together, through torchrun: all-reduce, copies between peers, short trainings.

Runs in the environment's interpreter: ``launch`` in the worker, ``main`` in
each rank that torchrun starts there.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import statistics
import sys
import tempfile
import time
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.device import NOT_SUPPORTED
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import (
    Wire,
    error_kind,
    import_torch,
    tie_life,
)

_STEPS = 20  # of a training


def launch(job: t.Mapping[str, t.Any]) -> None:
    """Be torchrun: start ``ranks`` processes with the code of ``rank_code``, wait for them, clean up after it."""
    tie_life(job["parent"], job["alarm_s"])
    wire = Wire()
    import_torch(wire)
    run = importlib.import_module("torch.distributed.run")
    os.dup2(wire.descriptor, 1)  # the ranks write their events where we do
    first = json.dumps({**job["rank"], "alarm_s": job["alarm_s"]})
    options = ["--standalone", "--nnodes=1", f"--nproc-per-node={job['ranks']}", "--local-addr=127.0.0.1"]
    try:
        made = tempfile.TemporaryDirectory(prefix="gpufleet-")  # torchrun leaves its logs behind
    except OSError as error:  # full, or not to be written
        wire.emit("error", kind="scratch", type=type(error).__name__, message=str(error), codes={})
        raise SystemExit(1) from error
    with made as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        try:
            run.main([*options, "--no-python", sys.executable, "-I", "-c", f"first = {first!r}\n{job['rank_code']}"])
        except BaseException as error:  # pylint: disable=broad-except # ChildFailedError, SignalException, SystemExit
            # Ranks that lost a peer speak of that; only torchrun knows which one died first.
            failures = getattr(error, "failures", {})
            codes = {str(rank): failure.exitcode for rank, failure in failures.items()}
            texts = [str(cause) for cause in _causes(error)]
            started = bool(codes)
            kind = "unsupported" if not started and any("without libuv" in text for text in texts) else "rank"
            wire.emit(
                "error", kind=kind, type=type(error).__name__, message=texts[0 if started else -1][:2000], codes=codes
            )
            raise SystemExit(1) from error
    wire.emit("done")
    os._exit(0)


def _causes(error: t.Optional[BaseException]) -> t.Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


class Group:
    """This rank, its device, and the group of all."""

    def __init__(self, torch: t.Any, backend: str, limit: float) -> None:
        self.torch = torch
        self.dist = importlib.import_module("torch.distributed")
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.cuda = backend == "nccl"
        self.kind = "cuda" if self.cuda else "cpu"
        self.name = f"cuda:{self.rank}" if self.cuda else "cpu"
        if self.cuda:
            torch.cuda.set_device(self.rank)
        self.dist.init_process_group(backend, timeout=datetime.timedelta(seconds=limit))

    def wait(self) -> None:
        """Until the device has done what it was asked."""
        if self.cuda:
            self.torch.cuda.synchronize()

    def all_true(self, value: bool) -> bool:
        """Whether it is true on every rank."""
        flag = self.torch.tensor([int(value)], device=self.name)
        self.dist.all_reduce(flag, op=self.dist.ReduceOp.MIN)
        return bool(flag.item())

    def same_everywhere(self, values: t.Sequence[t.Any]) -> bool:
        """Whether tensors hold the same bits on every rank."""
        mine = self.torch.cat([value.detach().flatten().float() for value in values])
        first = mine.clone()
        self.dist.broadcast(first, src=0)
        return self.all_true(self.torch.equal(mine.view(self.torch.int32), first.view(self.torch.int32)))


def all_reduce(group: Group, job: t.Mapping[str, t.Any], wire: Wire) -> None:
    """Sums of whole numbers over all ranks, of each size: right, and how fast. Events ``allreduce`` from rank 0.

    Bus bandwidth as nccl-tests define it: size / time * 2 (n - 1) / n.
    """
    torch, dist = group.torch, group.dist
    for size in job["sizes"]:
        count = size // 4
        whole = torch.arange(256, dtype=torch.float32, device=group.name).repeat(count // 256)
        mine, want = whole * (group.rank + 1), whole * (group.size * (group.size + 1) // 2)
        total = mine.clone()
        dist.all_reduce(total)
        right = group.all_true(bool(torch.equal(total, want)))
        taken = []
        for turn in range(job["warmup"] + job["iterations"]):
            dist.barrier()
            group.wait()
            begin = time.perf_counter()
            dist.all_reduce(total)
            group.wait()
            if turn >= job["warmup"]:
                taken.append(time.perf_counter() - begin)
            total.copy_(mine)
        median = statistics.median(taken)
        bandwidth = size / median * 2 * (group.size - 1) / group.size / 1e9
        if group.rank == 0:
            wire.emit("allreduce", bytes=size, right=right, seconds=median, busbw_gbs=bandwidth, ranks=group.size)


def peers(group: Group, job: t.Mapping[str, t.Any], wire: Wire) -> None:
    """GB/s from each GPU to each other, alone on the wire. Events ``peer`` from rank 0."""
    torch = group.torch
    if group.cuda and group.rank == 0:
        size = job["peer_bytes"]
        for source in range(group.size):
            data = torch.ones(size, dtype=torch.int8, device=f"cuda:{source}")
            for target in range(group.size):
                if source == target:
                    continue
                there = torch.empty(size, dtype=torch.int8, device=f"cuda:{target}")
                taken = []
                for _turn in range(6):
                    torch.cuda.synchronize(source)
                    torch.cuda.synchronize(target)
                    begin = time.perf_counter()
                    there.copy_(data)
                    torch.cuda.synchronize(source)
                    torch.cuda.synchronize(target)
                    taken.append(time.perf_counter() - begin)
                wire.emit(
                    "peer",
                    source=source,
                    target=target,
                    access=bool(torch.cuda.can_device_access_peer(target, source)),
                    gbs=size / statistics.median(taken[1:]) / 1e9,
                    right=bool((there == 1).all()),
                )
    group.dist.barrier()


def _model(group: Group) -> t.Any:
    nn = group.torch.nn
    group.torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(group.name)


def _batch(group: Group, step: int) -> t.Tuple[t.Any, t.Any]:
    """Of this rank and step: normal inputs, and what a fixed linear map makes of them."""
    torch = group.torch
    truth = torch.randn((64, 64), generator=torch.Generator().manual_seed(2)) / 8
    x = torch.randn((128, 64), generator=torch.Generator().manual_seed(1000 * step + group.rank))
    return x.to(group.name), (x @ truth).to(group.name)


def train(group: Group, dtype: str) -> t.Dict[str, t.Any]:
    """A short DistributedDataParallel training in ``dtype``: does its loss fall, do all gradients agree?"""
    torch = group.torch
    model = torch.nn.parallel.DistributedDataParallel(_model(group), device_ids=[group.rank] if group.cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler(group.kind, enabled=dtype == "float16")
    losses, agree = [], True
    for step in range(_STEPS):
        x, y = _batch(group, step)
        with torch.autocast(group.kind, dtype=getattr(torch, dtype)):
            out = model(x)
        loss = torch.nn.functional.mse_loss(out.float(), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        agree = group.same_everywhere([item.grad for item in model.parameters()]) and agree
        scaler.step(optimizer)
        scaler.update()
        group.dist.all_reduce(loss)
        losses.append(loss.item() / group.size)
    return {"first_loss": losses[0], "last_loss": losses[-1], "gradients_agree": agree}


def shard(group: Group) -> t.Dict[str, t.Any]:
    """One fully sharded step: are its gradients those of the unsharded model?"""
    try:
        fully_shard = importlib.import_module("torch.distributed.fsdp").fully_shard
    except AttributeError:  # before torch 2.6
        fully_shard = importlib.import_module("torch.distributed._composable.fsdp").fully_shard
    torch = group.torch
    mesh = importlib.import_module("torch.distributed.device_mesh").init_device_mesh(group.kind, (group.size,))
    whole, sharded = _model(group), _model(group)
    for layer in (sharded[0], sharded[2], sharded):
        fully_shard(layer, mesh=mesh)
    x, y = _batch(group, 0)
    for model in (whole, sharded):
        torch.nn.functional.mse_loss(model(x), y).backward()
    equal = True
    for mine, theirs in zip(whole.parameters(), sharded.parameters()):
        group.dist.all_reduce(mine.grad)
        grad = theirs.grad.full_tensor()
        equal = equal and bool(torch.allclose(grad, mine.grad / group.size, rtol=1e-4, atol=1e-6))
    return {"gradients_equal": group.all_true(equal)}


def main(job: t.Mapping[str, t.Any]) -> None:
    """Entry point of one rank."""
    tie_life(os.getppid(), job["alarm_s"])
    wire = Wire()
    try:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        group = Group(torch, "nccl" if job["gpus"] else "gloo", job["limit"])
        all_reduce(group, job, wire)
        peers(group, job, wire)
        for name, work in _trainings(group):
            _emit_training(group, name, work, wire)
        group.dist.barrier()
        group.dist.destroy_process_group()
    except Exception as error:  # pylint: disable=broad-except # whatever it is, the module must hear of it
        rank = os.environ.get("RANK", "?")
        kind = error_kind(error)
        wire.emit("rank_error", rank=rank, kind=kind, type=type(error).__name__, message=str(error)[:1500])
        os._exit(1)
    os._exit(0)


def _trainings(group: Group) -> t.Sequence[t.Tuple[str, t.Callable[[], t.Dict[str, t.Any]]]]:
    return (
        ("ddp bfloat16", lambda: train(group, "bfloat16")),
        ("ddp float16", lambda: train(group, "float16")),
        ("fully_shard", lambda: shard(group)),
    )


def _emit_training(group: Group, name: str, work: t.Callable[[], t.Dict[str, t.Any]], wire: Wire) -> None:
    """Event ``training`` from rank 0; what this torch or backend does not have is ``unsupported``."""
    try:
        found = {"state": "done", **work()}
    except (AttributeError, ImportError, NotImplementedError) as error:
        found = {"state": "unsupported", "reason": str(error)[:300]}
    except RuntimeError as error:
        if not NOT_SUPPORTED.search(str(error)):
            raise
        found = {"state": "unsupported", "reason": str(error)[:300]}
    if group.rank == 0:
        wire.emit("training", name=name, **found)
