# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a proof leaves to compare with: the baseline, and the list of all that is compared with how much it weighs."""

from __future__ import annotations

import re
import typing as t

Facts = t.Mapping[str, t.Any]


#: Of today's baseline only: what is not seen is not gone.
UNREAD = "unread"


class Compared(t.NamedTuple):
    """One value that must stay what was proved."""

    check: str
    part: str  # of the baseline; "" is its top, "gpu" is each GPU
    key: str
    state: str  # of the Finding where it differs
    policy: str
    action: str
    #: Whether a difference asks for a proof on the next idle slot.
    proof: bool = False
    #: Whether only less than proved is a difference.
    less: bool = False


#: Everything that is compared one value at a time. What makes the proof void fails: a driver, a library or an
#: environment that is not the proved one. What may be fine and was not proved warns, wakes nobody, asks for a proof.
COMPARED = (
    Compared("drift-accelerator", "", "accelerator", "fail", "block", "drain and inspect"),
    Compared("drift-os", "host", "os", "warn", "report", "none", proof=True),
    Compared("drift-kernel", "host", "kernel", "warn", "report", "none", proof=True),
    Compared("drift-command-line", "host", "command_line", "warn", "report", "none", proof=True),
    Compared("drift-glibc", "host", "glibc", "warn", "report", "none", proof=True),
    Compared("drift-driver", "driver", "version", "fail", "block", "fix configuration"),
    Compared("drift-driver-library", "driver", "library_version", "fail", "block", "fix configuration"),
    Compared("drift-driver-module", "driver", "kernel_module", "fail", "block", "fix configuration"),
    Compared("drift-driver-owner", "driver", "owner", "warn", "report", "none"),
    Compared("drift-python", "environment", "python", "fail", "block", "fix configuration"),
    Compared("drift-python-version", "environment", "python_version", "fail", "block", "fix configuration"),
    Compared("drift-torch", "environment", "torch_version", "fail", "block", "fix configuration"),
    Compared("drift-torch-cuda", "environment", "torch_cuda", "fail", "block", "fix configuration"),
    Compared("drift-vbios", "gpu", "vbios", "warn", "report", "none", proof=True),
    Compared("drift-gsp-firmware", "gpu", "gsp_firmware", "warn", "report", "none", proof=True),
    Compared("drift-gpu-place", "gpu", "pci_address", "warn", "report", "none"),
    Compared("drift-power-limit", "gpu", "power_limit_w", "warn", "report", "none", proof=True),
    Compared("drift-pcie-width", "gpu", "pcie_width", "fail", "block", "drain and inspect", less=True),
    Compared("drift-nvlink", "gpu", "nvlink_active", "fail", "block", "drain and inspect", less=True),
    Compared("drift-ecc", "gpu", "ecc", "fail", "block", "fix configuration"),
    Compared("drift-mig", "gpu", "mig", "fail", "block", "fix configuration"),
)
HOST_VALUES = tuple(row for row in COMPARED if row.part != "gpu")
GPU_VALUES = tuple(row for row in COMPARED if row.part == "gpu")


def baseline(accelerator: str, observed: Facts, environment: Facts, proof: Facts) -> t.Dict[str, t.Any]:
    """What is written into ``expected.json`` after a proof.

    ``observed``: an Observation; ``environment``: as _probe.environment gives it; ``proof``: of gpu_matmul.
    Rates are TFLOPS by device and shape, power limits W. A GPU's null is what its driver does not tell.
    """
    host = observed.get("host", {})
    system = host.get("os", {})
    driver = observed.get("driver", {})
    return {
        "accelerator": accelerator,
        "host": {
            "os": f"{system.get('id')} {system.get('version')}",
            "kernel": host.get("kernel"),
            "command_line": without_kernel(host.get("command_line") or ""),
            "arch": host.get("arch"),
            "glibc": host.get("glibc"),
        },
        "driver": {key: driver.get(key) for key in ("owner", "version", "library_version", "kernel_module")},
        "gpus": sorted(
            (_gpu(gpu) for gpu in observed.get("gpus", []) if gpu.get("uuid")),
            key=lambda gpu: str(gpu["pci_address"]),
        ),
        UNREAD: _unread(observed),
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


def _unread(observed: Facts) -> str:
    """Why GPUs may be there that were not seen; "" where all were."""
    nvml = observed.get("nvml", {})
    if nvml.get("state", "ok") != "ok":
        return str(nvml.get("error") or nvml["state"])
    silent = [gpu for gpu in observed.get("gpus", []) if not gpu.get("uuid")]
    return "; ".join(f"GPU {gpu.get('index')}: {gpu.get('error') or gpu.get('state')}" for gpu in silent)


def without_kernel(command_line: str) -> str:
    """The kernel's command line without what names the kernel itself, which is compared by its release."""
    words = [word for word in command_line.split() if not re.match(r"(?:BOOT_IMAGE|initrd)=", word)]
    return " ".join(words)


def _gpu(gpu: Facts) -> t.Dict[str, t.Any]:
    def fact(part: str, key: str) -> t.Any:
        place = gpu.get(part)
        return _told(place.get(key)) if isinstance(place, t.Mapping) else None

    return {
        **{key: _told(gpu.get(key)) for key in ("uuid", "serial", "name", "vbios", "gsp_firmware", "pci_address")},
        "power_limit_w": fact("power", "limit_w"),
        "pcie_width": fact("pcie", "width"),
        "nvlink_active": fact("nvlink", "active"),
        "ecc": fact("ecc", "current"),
        "mig": fact("mig", "current"),
    }


def _told(value: t.Any) -> t.Any:
    return None if value == "not_supported" else value


def same_identity(one: Facts, other: Facts) -> bool:
    """Whether two baselines are of the same host in the same state; measured rates vary and do not count."""
    told = [{key: value for key, value in side.items() if key not in ("rates", UNREAD)} for side in (one, other)]
    return told[0] == told[1]
