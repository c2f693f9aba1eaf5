# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules about the host and the wishes alone: no build and no driver can mend what they find."""

from __future__ import annotations

import typing as t

from .cause import MATRIX, Rule, Said
from .host import FLAVOURS, OURS, Host, architecture, flavours

OWNER_NAMES = {
    "runfile": "the .run installer",
    "dgx_os": "DGX OS",
    "bcm": "Base Command Manager",
    "gpu_operator": "the GPU Operator",
    "cloud_image": "the cloud image",
    "vgpu_guest": "the vGPU guest's administrator",
    "wsl": "Windows",
    "container_guest": "the container's host",
    "image_os": "the operating system's image",
    "board": "the board's own software (L4T)",
    "multiple": "more than one owner",
    "unknown": "an unknown owner",
}


def owner_name(host: Host) -> str:
    """Who looks after the driver, for a person."""
    return OWNER_NAMES.get(host.owner, "its owner")


def variant_name(cuda: str) -> str:
    """``12.8`` as ``cu128``."""
    return "cu" + cuda.replace(".", "")


def wished_variant(host: Host) -> str:
    """The build that the wishes name, "" where they name none."""
    if host.torch.label:
        return host.torch.label
    return variant_name(host.request.cuda) if host.request.cuda != "auto" else ""


def _unknown_gpu(host: Host) -> t.Iterator[Said]:
    for unknown in host.unknown_gpus:
        hint = f" ({unknown.hint})" if unknown.hint else ""
        near = f"; nearest known: {', '.join(unknown.nearest)}" if unknown.nearest else ""
        yield "gpu", f"{unknown.wish.name!r}{hint}{near}", "a known product name or PCI id, or its compute_capability"


def _no_gpu(host: Host) -> t.Iterator[Said]:
    if not host.cpu and not host.gpus and not host.unknown_gpus:
        found = f"only {host.displays[0].label}, which drives a display" if host.displays else "no GPU"
        yield "gpu", found, "at least one NVIDIA GPU; a CPU build is planned only with accelerator cpu"


def _gpu_planned_as_cpu(host: Host) -> t.Iterator[Said]:
    if host.cpu and (host.gpus or host.unknown_gpus):
        names = [match.label for match in host.gpus] + [unknown.wish.name for unknown in host.unknown_gpus]
        yield "accelerator", f"accelerator cpu beside {', '.join(names)}", "accelerator cuda, or a host without GPUs"


def _gpus_hidden(host: Host) -> t.Iterator[Said]:
    if host.request.hidden_by:
        yield "gpu", f"GPUs that {host.request.hidden_by} hides", "a look at the host from outside the job"


def _unknown_torch(host: Host) -> t.Iterator[Said]:
    if host.torch.error:
        needs = "a release such as 2.8.0, a series such as 2.8, a specifier such as >=2.6,<2.9, or latest"
        yield "torch", f"torch {host.torch.text!r}: {host.torch.error}", needs


def _contradictory_wish(host: Host) -> t.Iterator[Said]:
    label, cuda, torch = host.torch.label, host.request.cuda, host.request.torch
    if host.cpu and (cuda != "auto" or label not in ("", "cpu")):
        yield "accelerator", f"accelerator cpu with torch {torch} and cuda {cuda}", "accelerator cuda, or no CUDA build"
    elif label == "cpu" and not host.cpu:
        yield "torch", f"torch {torch} with accelerator {host.request.accelerator}", "accelerator cpu, or no +cpu"
    elif label and cuda != "auto" and label != variant_name(cuda):
        yield "cuda", f"torch {torch} with cuda {cuda}", "one of them, or both the same"


def _variant_not_published(host: Host) -> t.Iterator[Said]:
    name = wished_variant(host)
    if host.cpu or not host.torch.releases or name in ("", "cpu"):
        return
    if not any(name in release.variants for release in host.torch.releases):
        newest = host.torch.releases[0]
        yield "torch", f"{name} of torch {newest.version}", f"one of its builds: {', '.join(newest.variants)}"


def _no_common_driver(host: Host) -> t.Iterator[Said]:
    if len(host.gpus) < 2:
        return
    kinds = {match: flavours(match, host.data) for match in host.gpus}
    if not set(FLAVOURS).intersection(*kinds.values()):
        needs = {kind: [match.label for match in host.gpus if kinds[match] == (kind,)] for kind in FLAVOURS}
        found = "; ".join(f"{', '.join(names)} only with the {kind} module" for kind, names in needs.items())
        yield "gpu", found, "GPUs that one kernel module drives: a host loads only one"
    rows = [(match, architecture(match.gpu.compute_capability, host.data)) for match in host.gpus]
    last = sorted(((row.last_driver, match.label) for match, row in rows if row and row.last_driver))
    first = sorted(((row.first_driver, match.label) for match, row in rows if row and row.first_driver))
    if last and first and last[0][0] < first[-1][0]:
        found = f"{last[0][1]} up to branch {last[0][0]}, {first[-1][1]} from branch {first[-1][0]} on"
        yield "gpu", found, "GPUs that one driver branch drives"


def _no_driver_to_keep(host: Host) -> t.Iterator[Said]:
    if not host.cpu and not host.installed and host.owner in OURS and host.fixed_driver:
        yield "driver", "no driver", f"an installed one, for driver_policy {host.request.driver_policy}"


def _owned_elsewhere(host: Host) -> t.Iterator[Said]:
    if not host.cpu and not host.installed and host.owner not in OURS:
        yield "driver", "no driver", f"one that {owner_name(host)} installs: it is never touched from here"


#: Distributions with musl in the place of glibc.
_MUSL = ("alpine", "chimera", "postmarketos")


def _not_glibc(host: Host) -> t.Iterator[Said]:
    if host.request.os_id in _MUSL and not host.glibc:
        yield "glibc", f"{host.os_label}, which has musl", "an operating system with glibc: torch has no wheel for musl"


def _gpu_on_other_machine(host: Host) -> t.Iterator[Said]:
    for match in host.gpus:
        if match.gpu.grace and host.arch != "aarch64":
            yield "arch", f"{match.label} in a machine of {host.arch}", "aarch64: the GPU sits beside an Arm processor"


HOST_RULES = (
    Rule("not-glibc", "A manylinux wheel needs glibc.", "PEP 600", _not_glibc),
    Rule("gpu-on-other-machine", "A Grace superchip is an Arm machine.", "NVIDIA's data sheets", _gpu_on_other_machine),
    Rule("unknown-gpu", "A GPU is known by its product name, its PCI id or its compute capability.",
         "the lists of GPUs in the data", _unknown_gpu),
    Rule("no-gpu", "A CUDA plan needs a GPU.", "by design", _no_gpu),
    Rule("gpu-planned-as-cpu", "A GPU host never becomes a CPU host.", "by design", _gpu_planned_as_cpu),
    Rule("gpus-hidden", "A plan is made from all GPUs of a host.", "sensein/senselab#516", _gpus_hidden),
    Rule("unknown-torch", "A release of torch is one that the data has.", "the releases in the data", _unknown_torch),
    Rule("contradictory-wish", "Wishes do not exclude each other.", "by design", _contradictory_wish),
    Rule("variant-not-published", "A build exists for the CUDA versions that its release was published for.",
         "the builds in the data", _variant_not_published),
    Rule("no-common-driver", "One driver and one kernel module drive all GPUs of a host.",
         f"{MATRIX}; NVIDIA kernel_open README (the flavours exclude each other)", _no_common_driver),
    Rule("no-driver-to-keep", "Only an installed driver can be kept.", "by design", _no_driver_to_keep),
    Rule("driver-owned-elsewhere", "A driver that is not ours is never touched.", "by design", _owned_elsewhere),
)  # fmt: skip
