# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof of one host, from its survey to its Findings: starts the workers and hands what they send to the judges."""

from __future__ import annotations

import os
import typing as t
from dataclasses import dataclass

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import environment, shadows
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject, replace
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import (
    choose,
    collective,
    compiled,
    compute,
    container,
    counters,
    jobs,
    judge,
    pace,
    products,
    speed,
    survey,
    together,
    wire,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul import device as device_module
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.results import Device, sound
from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.supervise import (
    RANK_BOOT,
    Outcome,
    Source,
    Supervisor,
    Worker,
    sources,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import shadows as shadows_probe
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

#: Seconds between the starts of two GPUs' load: a step of 700 W, not of 5,600 W.
RAMP_S = 0.5
#: Seconds that the survey may take in any case: verify_timeout is about devices, and this about the environment.
SURVEY_S = 30.0


@dataclass(frozen=True)
class Settings:
    """What was asked, as gpu_matmul's options have it."""

    python: str
    plan: t.Optional[t.Mapping[str, t.Any]] = None
    owned: bool = True
    level: str = "quick"
    device: str = "auto"
    cpu_workers: int = 2
    timeout: float = 60.0
    import_timeout: float = 300.0
    dtypes: t.Sequence[str] = ()
    share: bool = False
    memory_percent: int = 0
    image: str = ""
    engine: str = "podman"

    @property
    def where(self) -> t.Union[container.Host, container.Image]:
        """Where the workers' interpreter is."""
        if not self.image:
            return container.Host(self.python)
        gpus = self.accelerator == "cuda" if self.accelerator else os.path.exists("/dev/nvidiactl")
        return container.Image(self.engine, self.image, self.python, gpus)

    @property
    def accelerator(self) -> t.Optional[str]:
        """cuda or cpu as planned, None without a plan."""
        value = (self.plan or {}).get("accelerator")
        return str(value) if value else None


def worker_source() -> Source:
    """All that a worker runs."""
    parts = (wire, survey, device_module, counters, products, speed, compiled, compute)
    return sources([part.__name__ for part in parts])


def prove(settings: Settings, source: t.Optional[Source] = None) -> t.Tuple[t.Dict[str, t.Any], t.List[Finding]]:
    """The proof (see docs/architecture.md) and its Findings. ``source``: other code of the workers."""
    source = source or worker_source()
    looked = _supervisor(settings, source[:2], least=SURVEY_S).run([Worker("survey", {}, call="survey")])[0]
    report = _report(looked)
    found = environment.judge(report, settings.where.name, settings.plan, settings.owned)
    if not settings.image and "prefix" in report:
        found += shadows.doubled(shadows_probe.doubled(Runner(), str(report["prefix"])), settings.where.name)
    proof: t.Dict[str, t.Any] = {
        "level": settings.level,
        "environment": _environment(report, settings),
        "devices": [],
    }
    if "cuda" not in report:
        return proof, _explained(found, settings)
    choice = choose.choose(report, settings.device, settings.accelerator, settings.cpu_workers)
    found.append(choice.finding)
    found += environment.architectures(report["arch_list"], report["cuda"]["devices"], settings.where.name)
    if not choice.kind:
        return proof, found
    said = choose.dtypes(choice.kind, settings.dtypes)
    found += said
    if any(item.state == "unknown" for item in said):
        return proof, found
    places = _places(settings, choice.kind, report)
    job = jobs.job(
        choice.kind,
        settings.level,
        settings.timeout,
        settings.dtypes,
        share=settings.share,
        memory_percent=settings.memory_percent,
    )
    outcomes = _supervisor(settings, source).run(
        [Worker(place["key"], {**job, **place["job"]}, env=place["env"]) for place in places]
    )
    devices = [
        Device(
            choice.kind,
            place["key"],
            place["name"],
            *sound(outcome.ended, outcome.events),
            outcome.code,
            outcome.stderr,
            outcome.problem,
            outcome.seconds,
            place.get("capability", ""),
            place.get("multiprocessors", 0),
            place.get("pci_address", ""),
        )
        for place, outcome in zip(places, outcomes)
    ]
    found += judge.judge(devices)
    found = _explained(_with_loaded(found, proof, devices, report, settings.where.name), settings)
    proof["devices"] = [_device(device) for device in devices]
    if len(devices) > 1:
        found += _together(settings, choice.kind, devices, proof)
    return proof, found


def _together(settings: Settings, kind: str, devices: t.Sequence[Device], proof: t.Dict[str, t.Any]) -> t.List[Finding]:
    """What the devices do together, where each is well alone."""
    idle = [device for device in devices if device.ended != "done" or device.named("busy")]
    if idle:
        reason = f"{', '.join(device.subject.key for device in idle)} did not finish alone"
        return [Finding("collective-run", "not_applicable", reason=reason)]
    if any(" MIG " in f" {device.name} " for device in devices):
        return [Finding("collective-run", "not_applicable", reason="NCCL does not join MIG instances of one GPU")]
    source = sources([part.__name__ for part in (wire, device_module, collective)])
    job = {
        "ranks": len(devices),
        "rank_code": RANK_BOOT,
        "rank": {"modules": source, "call": "main", **jobs.together(kind, settings.level, settings.timeout)},
    }
    env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    if kind == "cuda":
        env["CUDA_VISIBLE_DEVICES"] = ",".join(device.key for device in devices)
    before, after = jobs.phases(settings.timeout)
    supervisor = Supervisor(
        settings.where, source, import_limit=settings.import_timeout, before=before + after, after=after
    )
    outcome = supervisor.run([Worker("together", job, call="launch", env=env)])[0]
    name = f"{len(devices)} x {devices[0].name}"
    result = together.Result(kind, name, *sound(outcome.ended, outcome.events), outcome.stderr, outcome.problem)
    proof["together"] = {
        name: [{key: value for key, value in event.items() if key != "event"} for event in result.named(name)]
        for name in ("allreduce", "peer", "training")
    }
    return together.judge_together(result)


def _supervisor(settings: Settings, source: Source, least: float = 0.0) -> Supervisor:
    before, after = jobs.phases(settings.timeout)
    return Supervisor(
        settings.where,
        source,
        import_limit=settings.import_timeout,
        before=max(before, least),
        after=after,
        ramp=RAMP_S,
    )


def _report(outcome: Outcome) -> t.Dict[str, t.Any]:
    """The survey's events as one mapping, with how it ended."""
    report: t.Dict[str, t.Any] = {}
    for event in outcome.events:
        report.update(event)
    report.update(ended=outcome.ended, code=outcome.code, stderr=outcome.stderr, problem=outcome.problem)
    return report


def _environment(report: t.Mapping[str, t.Any], settings: Settings) -> t.Dict[str, t.Any]:
    names = ("python_version", "torch_version", "torch_cuda", "arch_list", "cudnn", "nccl", "libraries")
    image = {"image": settings.image, "engine": settings.engine} if settings.image else {}
    return {"python": settings.python, **image, **{name: report.get(name) for name in names}}


def _with_loaded(
    found: t.List[Finding],
    proof: t.Dict[str, t.Any],
    devices: t.Sequence[Device],
    report: t.Mapping[str, t.Any],
    environment_name: str,
) -> t.List[Finding]:
    """The Findings with the libraries that were loaded for real work, in place of those that the import alone loads."""
    loaded = {
        item["path"]: item for device in devices for event in device.named("libraries") for item in event["libraries"]
    }
    if not loaded:
        return found
    proof["environment"]["libraries"] = list(loaded.values())
    subject = Subject("environment", environment_name)
    judged = environment.libraries(report["folder"], report["shipped"], list(loaded.values()), subject)
    return [finding for finding in found if finding.check != "torch-libraries"] + judged


def _explained(found: t.List[Finding], settings: Settings) -> t.List[Finding]:
    """The Findings, where torch got another library than its own with the lines of this host that bring it."""

    def told(finding: Finding) -> bool:
        return finding.state in ("fail", "warn") and (
            finding.check == "torch-libraries" or (finding.check == "torch-import" and "library" in finding.evidence)
        )

    if settings.image or not any(told(finding) for finding in found):
        return found
    facts, inherited = shadows_probe.probe(Runner()), os.environ.get("LD_LIBRARY_PATH", "")
    lines = {finding.id: shadows.explained(finding, facts, inherited) for finding in found if told(finding)}
    return [
        replace(finding, reason=f"{finding.reason}; {lines[finding.id]}") if lines.get(finding.id) else finding
        for finding in found
    ]


def _places(settings: Settings, kind: str, report: t.Mapping[str, t.Any]) -> t.List[t.Dict[str, t.Any]]:
    """Each device: its key, its name, its part of the job and the variables of its worker."""
    if kind == "cpu":
        return [
            {
                "key": str(index),
                "name": "CPU process",
                "job": {"device": "cpu", "threads": 1},
                "env": {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
            }
            for index in range(settings.cpu_workers)
        ]
    threads = max(1, (os.cpu_count() or 1) // len(report["cuda"]["devices"]))
    visible = [name.strip() for name in str(report["cuda"]["hidden_by"].get("CUDA_VISIBLE_DEVICES", "")).split(",")]
    return [
        {
            "key": _named(device, visible),
            "name": device["name"],
            "capability": device["compute_capability"],
            "multiprocessors": device["multiprocessors"],
            "pci_address": device["pci_address"],
            "job": {"device": "cuda:0", "uuid": device["uuid"], "threads": threads},
            "env": {
                "CUDA_VISIBLE_DEVICES": _named(device, visible),
                "OMP_NUM_THREADS": str(threads),
                "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # the same algorithm, bit for bit, in every round
            },
        }
        for device in report["cuda"]["devices"]
    ]


def _named(device: t.Mapping[str, t.Any], visible: t.Sequence[str]) -> str:
    """What CUDA_VISIBLE_DEVICES calls it. Where it has no UUID, by what the user's own list has at its place: numbers
    count all GPUs of the host, and torch's count those that the list leaves.
    """
    index = int(device["index"])
    return device["uuid"] or (visible[index] if index < len(visible) and visible[0] else str(index))


def _device(device: Device) -> t.Dict[str, t.Any]:
    names = ("dtype", "output", "m", "n", "k", "state", "reason")
    exact = [{name: row[name] for name in names if name in row} for row in device.named("exact")]
    return {
        "kind": device.kind,
        "key": device.key,
        "name": device.name,
        **({"pci_address": device.pci_address} if device.pci_address else {}),
        "ended": device.ended,
        "seconds": round(device.seconds, 1),
        "exact": exact,
        "rates": pace.rates(device),
        "copies": pace.copies(device),
        "counters": {name: row for name in ("before", "after") for row in device.named(name)},
    }


def load_forbidden(findings: t.Iterable[t.Mapping[str, t.Any]], checks: t.Collection[str]) -> t.Optional[Finding]:
    """What is said instead of a proof where one of ``checks`` warns or has failed, None where the load may come."""
    failed = [item for item in findings if item.get("check") in checks and item.get("state") in ("fail", "warn")]
    if not failed:
        return None
    return Finding(
        "matmul-run",
        "unknown",
        found="no load was put on this host: "
        + "; ".join(f"{item['check']}: {item.get('found', '')}" for item in failed),
        expected="power and cooling that carry the load",
        action="ask facility",
    )


def predicted(settings: Settings) -> Finding:
    """What check mode says: what would run, and that nothing is known."""
    where = {"cuda": "every GPU", "cpu": f"{settings.cpu_workers} CPU processes"}.get(
        settings.accelerator or settings.device,
        f"every GPU, or {settings.cpu_workers} CPU processes where there is none",
    )
    return Finding(
        "matmul-run",
        "unknown",
        Subject("host"),
        found=f"check mode: nothing was run; a proof of level {settings.level} would run on {where}",
        expected="a run without check mode",
        evidence={"check_mode": True},
    )
