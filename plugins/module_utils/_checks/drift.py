# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a host still what was proved? The baseline of a proof, and the comparison with it."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding, Subject

Facts = t.Mapping[str, t.Any]

NEVER_PROVED = Finding(
    "never-proved",
    "unknown",
    found="no expected.json",
    expected="a proof that was recorded",
    action="fix configuration",
)


def unreadable(why: str) -> Finding:
    """There is an ``expected.json``, and it cannot be used: nothing is known, which is not "never proved"."""
    return Finding(
        "expected-readable",
        "unknown",
        found=why,
        expected="a readable expected.json",
        action="fix configuration",
    )


class Compared(t.NamedTuple):
    """One value that must stay what was proved."""

    check: str
    part: str  # of the baseline
    key: str
    state: str  # of the Finding where it differs
    policy: str
    action: str


#: Everything that is compared one value at a time, and how much a difference weighs.
#: A kernel or an operating system newer than proved asks for a proof on the next idle
#: slot and wakes nobody; a driver, a library or an environment that is not the proved
#: one makes the proof void.
COMPARED = (
    Compared("drift-accelerator", "", "accelerator", "fail", "block", "drain and inspect"),
    Compared("drift-os", "host", "os", "warn", "report", "none"),
    Compared("drift-kernel", "host", "kernel", "warn", "report", "none"),
    Compared("drift-glibc", "host", "glibc", "warn", "report", "none"),
    Compared("drift-driver", "driver", "version", "fail", "block", "fix configuration"),
    Compared("drift-driver-library", "driver", "library_version", "fail", "block", "fix configuration"),
    Compared("drift-driver-module", "driver", "kernel_module", "fail", "block", "fix configuration"),
    Compared("drift-driver-owner", "driver", "owner", "warn", "report", "none"),
    Compared("drift-python", "environment", "python", "fail", "block", "fix configuration"),
    Compared("drift-python", "environment", "python_version", "fail", "block", "fix configuration"),
    Compared("drift-torch", "environment", "torch_version", "fail", "block", "fix configuration"),
    Compared("drift-torch", "environment", "torch_cuda", "fail", "block", "fix configuration"),
)


def baseline(accelerator: str, observed: Facts, environment: Facts, proof: Facts) -> t.Dict[str, t.Any]:
    """What is written into ``expected.json`` after a proof.

    ``observed``: an Observation; ``environment``: as _probe.environment gives it; ``proof``: of gpu_matmul.
    Rates are TFLOPS by device and shape.
    """
    host = observed.get("host", {})
    system = host.get("os", {})
    driver = observed.get("driver", {})
    return {
        "accelerator": accelerator,
        "host": {
            "os": f"{system.get('id')} {system.get('version')}",
            "kernel": host.get("kernel"),
            "arch": host.get("arch"),
            "glibc": host.get("glibc"),
        },
        "driver": {key: driver.get(key) for key in ("owner", "version", "library_version", "kernel_module")},
        "gpus": sorted(
            (
                {key: gpu.get(key) for key in ("uuid", "serial", "name", "vbios", "pci_address")}
                for gpu in observed.get("gpus", [])
            ),
            key=lambda gpu: str(gpu["pci_address"]),
        ),
        "environment": {
            **{key: environment.get(key) for key in ("python", "python_version", "torch_version")},
            # A build without CUDA has none, which is not "could not be told".
            "torch_cuda": environment.get("torch_cuda") or ("" if environment.get("torch_version") else None),
            "packages": environment.get("packages", {}),
        },
        "rates": [
            {"device": device.get("key"), **rate}
            for device in proof.get("devices", [])
            for rate in device.get("rates", [])
        ],
    }


def same_identity(one: Facts, other: Facts) -> bool:
    """Whether two baselines are of the same host in the same state; measured rates vary and do not count."""
    return {**one, "rates": None} == {**other, "rates": None}


def compare(expected: t.Optional[Facts], now: Facts, environment: Facts) -> t.List[Finding]:
    """The Findings of drift: ``now`` is the baseline as it would be written today, ``environment`` today's."""
    if expected is None:
        return [NEVER_PROVED]
    then = expected["baseline"]
    found = [finding for row in COMPARED for finding in _compare_value(row, then, now)]
    found += _compare_gpus(then.get("gpus", []), now.get("gpus", []))
    found += _compare_packages(then["environment"], environment)
    found += _environment_whole(environment)
    if not any(finding.policy == "block" for finding in found):
        looked = f"{environment.get('files', 0)} files of {len(environment.get('packages', {}))} packages by size"
        found.append(Finding("drift", "ok", found=f"as proved on {expected['written_at']}; {looked}"))
    return found


def _compare_value(row: Compared, then: Facts, now: Facts) -> t.List[Finding]:
    before, today = _value(then, row), _value(now, row)
    if before == today:
        return []
    state = "unknown" if today is None and row.state == "fail" else row.state
    subject = (
        Subject("environment", str(then.get("environment", {}).get("python") or ""))
        if (row.part == "environment")
        else Subject("host")
    )
    return [
        Finding(
            row.check,
            state,
            subject,
            found=f"{row.key} {_text(today)}",
            expected=f"{_text(before)}, as proved",
            action=row.action,
            policy=row.policy,
        )
    ]


def _value(side: Facts, row: Compared) -> t.Any:
    part = side.get(row.part, {}) if row.part else side
    return part.get(row.key)


def _text(value: t.Any) -> str:
    return "unknown" if value is None else "none" if value == "" else str(value)


def _compare_gpus(then: t.Sequence[Facts], now: t.Sequence[Facts]) -> t.List[Finding]:
    today = {gpu.get("uuid"): gpu for gpu in now}
    before = {gpu.get("uuid"): gpu for gpu in then}
    gone = [gpu for uuid, gpu in before.items() if uuid not in today]
    new = [gpu for uuid, gpu in today.items() if uuid not in before]
    found = []
    for gpu in gone:
        swap = next((other for other in new if other.get("name") == gpu.get("name")), None)
        if swap is not None:
            new.remove(swap)
            found.append(
                Finding(
                    "drift-gpu-swapped",
                    "warn",
                    Subject("gpu", str(swap.get("uuid"))),
                    found=f"{swap.get('name')} {swap.get('uuid')} at {swap.get('pci_address')}",
                    expected=f"{gpu.get('uuid')}, as proved; prove the new one with verify.yml",
                    policy="report",
                )
            )
        else:
            found.append(
                Finding(
                    "drift-gpu-missing",
                    "fail",
                    Subject("gpu", str(gpu.get("uuid"))),
                    found=f"{len(now)} GPUs, without {gpu.get('name')} at {gpu.get('pci_address')}",
                    expected=f"{len(then)} GPUs, as proved",
                    action="drain and inspect",
                )
            )
    found += [
        Finding(
            "drift-gpu-new",
            "warn",
            Subject("gpu", str(gpu.get("uuid"))),
            found=f"{gpu.get('name')} at {gpu.get('pci_address')} was never proved",
            expected="the proved GPUs; prove it with verify.yml",
            policy="report",
        )
        for gpu in new
    ]
    for uuid, gpu in before.items():
        other = today.get(uuid)
        if other is not None and other.get("vbios") != gpu.get("vbios"):
            found.append(
                Finding(
                    "drift-vbios",
                    "warn",
                    Subject("gpu", str(uuid)),
                    found=f"VBIOS {_text(other.get('vbios'))}",
                    expected=f"{_text(gpu.get('vbios'))}, as proved",
                    policy="report",
                )
            )
    return found


def _compare_packages(then: Facts, environment: Facts) -> t.List[Finding]:
    """Torch, NumPy and what they require: one finding for all that changed; torch itself has its own row."""
    if environment.get("error") or "packages" not in then:
        return []
    before, today = dict(then.get("packages", {})), dict(environment.get("packages", {}))
    changed = [
        f"{name} {today.get(name, 'gone')} (proved {before.get(name, 'without it')})"
        for name in sorted({*before, *today} - {"torch"})
        if before.get(name) != today.get(name)
    ]
    if not changed:
        return []
    return [
        Finding(
            "drift-packages",
            "fail",
            Subject("environment", str(environment.get("python") or "")),
            found=_few(changed),
            expected="the packages that were proved; site.yml puts back our own, verify.yml proves yours",
            action="fix configuration",
            evidence={"changed": changed},
        )
    ]


def _few(items: t.Sequence[str]) -> str:
    return ", ".join(items[:3]) + (f" and {len(items) - 3} more" if len(items) > 3 else "")


def _environment_whole(environment: Facts) -> t.List[Finding]:
    subject = Subject("environment", str(environment.get("python") or ""))
    if environment.get("error"):
        return [
            Finding(
                "environment-whole",
                "fail",
                subject,
                found=str(environment["error"]),
                expected="an interpreter that has torch",
                action="fix configuration",
            )
        ]
    missing = list(environment.get("missing", []))
    if missing:
        # What cannot be loaded at all says more than a source file.
        missing.sort(key=lambda path: ".so" not in path)
        return [
            Finding(
                "environment-whole",
                "fail",
                subject,
                found="missing or of another size: " + _few(missing),
                expected="every file that the wheels installed",
                action="fix configuration",
                evidence={"missing": missing[:50], "count": len(missing)},
            )
        ]
    return []
