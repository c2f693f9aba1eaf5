# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a plan is as it is: the step of the order that decided, the next best, and the rules that it meets."""

from __future__ import annotations

from . import rules_driver, version
from .cause import MATRIX
from .driver import Driver
from .host import Host, flavours
from .resolver import Candidate, Outcome, decided_by
from .rules_wheel import runs_on
from .torch_wish import Wheel

Reason = dict[str, str]


def reasons(outcome: Outcome) -> list[Reason]:
    """The reasons of an outcome that has a best candidate."""
    host, best = outcome.host, outcome.chosen
    found = [_why_wheel(host, best, outcome.next_wheel)]
    if outcome.held_back:
        says = f"{best.wheel}: the best for all hosts that share jobs; alone this host would run {outcome.held_back}"
        found = [_reason("group-common", says)]
    if best.driver is None:
        return found
    found.append(_why_driver(host, best, outcome.next_driver))
    found += _code(host, best.wheel)
    found += _floor(host, best)
    found += _module(host, best.driver)
    found += _fabric(host)
    return found


def _reason(rule: str, says: str, source: str = "by design") -> Reason:
    return {"rule": rule, "says": says, "source": source}


def _why_wheel(host: Host, best: Candidate, other: Candidate | None) -> Reason:
    wheel = best.wheel
    if other is None:
        return _reason(
            "order-only", f"{wheel}: the only build that the wishes and the host allow", wheel.release.source
        )
    step = decided_by(host, best, other)
    texts = {
        "newest-wished": f"the newest release that works here of what {host.torch.text!r} allows",
        "driver-stays": "with it the installed driver can stay",
        "no-forward-compat": "it runs without forward compatibility",
        "branch": "it runs on a driver branch with longer support",
        "default-build": f"the default build of {wheel.release.version}",
        "newest": "the newest release that the wish allows",
        "read": "that it is published and for which GPUs was read, of the next it was deduced",
        "newest-cuda": "the newest CUDA among equals",
    }
    source = wheel.variant.source if wheel.variant else wheel.release.source
    return _reason(
        f"order-{step}", f"{wheel}: {texts.get(step, 'first among equals')}; next best: {other.wheel}", source
    )


def _why_driver(host: Host, best: Candidate, other: Candidate | None) -> Reason:
    driver = best.base
    then = f"; next best: {other.driver}" if other else ""
    source = driver.row.source if driver.row else "as installed"
    if driver.action == "external":
        return _reason("driver-owned-elsewhere", f"{driver} is not ours and stays as it is{then}")
    if driver.stays:
        return _reason("order-driver-stays", f"{driver} is installed and can stay{then}", source)
    row = driver.row
    kind = {"LTSB": "a long-lived branch", "PB": "a production branch"}.get(row.kind if row else "", "a branch")
    until = f", supported until {row.eol}" if row and row.supported else ""
    return _reason("order-branch", f"{driver}: {kind}{until}{then}", source)


def _code(host: Host, wheel: Wheel) -> list[Reason]:
    variant = wheel.build
    found = []
    for capability in dict.fromkeys(match.gpu.compute_capability for match in host.gpus):
        number = version.parse(capability)
        best = max(sm for sm in variant.archs[host.arch] if runs_on(sm, number, variant.cuda, host.data))
        names = ", ".join(match.label for match in host.gpus if match.gpu.compute_capability == capability)
        says = f"{wheel} has code for sm_{best}, which runs on compute capability {capability} ({names})"
        found.append(_reason("gpu-not-in-wheel", says, host.data.sass_source))
    return found


def _floor(host: Host, best: Candidate) -> list[Reason]:
    wheel, driver = best.wheel, best.base
    row = host.data.majors[version.major(wheel.build.cuda)]
    if best.forward:
        says = f"cuda-compat {wheel.build.cuda} carries {wheel} over {driver}"
        return [_reason("forward-compat-unsupported", says, "docs.nvidia.com/deploy/cuda-compatibility")]
    says = f"{driver} is not older than {row.driver}, the floor of CUDA {row.major}"
    return [_reason("driver-too-old", says, row.source)]


def _module(host: Host, driver: Driver) -> list[Reason]:
    for kind in ("open", "proprietary"):
        names = [match.label for match in host.gpus if flavours(match, host.data) == (kind,)]
        if names:
            says = f"{', '.join(names)}: only with the {kind} kernel module"
            return [_reason(f"{kind}-module-required", says, rules_driver.KERNEL_OPEN)]
    if driver.flavour == "open" and not driver.stays:
        says = "the open kernel module is NVIDIA's choice since branch 560, and the only one since 615"
        return [_reason("open-module-required", says, MATRIX)]
    return []


def _fabric(host: Host) -> list[Reason]:
    required, basis = rules_driver.fabric_required(host)
    if host.fabric == "rack":
        says = "fabric manager runs on the switch trays of the rack; the host needs nvidia-imex"
        return [_reason("fabric-manager-mismatch", says, "deduced from NVIDIA's rack documentation")]
    if not required:
        return []
    how = (
        "NVSwitches were seen"
        if basis == "observed"
        else "the product sits on NVSwitch boards; nvswitch says how many this host has"
    )
    return [
        _reason(
            "fabric-manager-mismatch", f"fabric manager is needed: {how}", "pytorch/pytorch#35710; NVIDIA/nvtrust#55"
        )
    ]
