# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What limits the programs of a host, and variables that somebody left behind for all of them. It only reports."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import (
    Judged,
    Observation,
    fail,
    ok,
    skip,
    warn,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import (
    HostCheck,
    at,
    gpu_addresses,
    host_check,
)

MIB, GIB = 1 << 20, 1 << 30
#: What docker gives a container by default, in which a data loader with workers dies of a bus error.
SHM_LEAST = 64 * MIB
#: For each GPU: a common rule, ours.
SHM_GPU = GIB
#: A data loader's worker holds a descriptor for each tensor that it passes on: ours.
FILES_LEAST = 65536
#: leptonai/gpud: 80 % of what there may be.
SHARE_MOST = 0.8

_BACK = "remove it where nobody means it"
_QUIET = ("", "0", "false", "off", "no")


class _Variable(t.NamedTuple):
    """When a value is one to tell: any that is not off (None), or one of these; and what it does."""

    values: t.Optional[t.Tuple[str, ...]]
    does: str


_DISABLED = ("0",)
#: Sources: NCCL's and PyTorch's documentation of environment variables, DCGM's list (nvvs/src/Software.cpp), and
#: pytorch's own warning of the names that became TORCH_NCCL_...
VARIABLES: t.Dict[str, _Variable] = {
    "NCCL_DEBUG": _Variable(("info", "trace", "abort"), "every rank writes a log"),
    "NCCL_P2P_DISABLE": _Variable(None, "no peer access between GPUs"),
    "NCCL_SHM_DISABLE": _Variable(None, "no shared memory between processes"),
    "NCCL_IB_DISABLE": _Variable(None, "no RDMA between hosts"),
    "NCCL_NET_GDR_LEVEL": _Variable(("loc", "0"), "no direct way between GPU and network card"),
    "NCCL_NVLS_ENABLE": _Variable(_DISABLED, "no reduction in the NVSwitch"),
    "NCCL_MNNVL_ENABLE": _Variable(_DISABLED, "no NVLink between hosts"),
    "NCCL_CUMEM_ENABLE": _Variable(_DISABLED, "no memory that NVLS and NVLink between hosts need"),
    "NCCL_ALGO": _Variable(None, "NCCL does not choose by itself"),
    "NCCL_PROTO": _Variable(None, "NCCL does not choose by itself"),
    "NCCL_BLOCKING_WAIT": _Variable(None, "an old name: TORCH_NCCL_BLOCKING_WAIT"),
    "NCCL_ASYNC_ERROR_HANDLING": _Variable(("", "0", "1", "2", "3"), "an old name: TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    "TORCH_NCCL_BLOCKING_WAIT": _Variable(None, "every collective waits"),
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": _Variable(_DISABLED, "a hung collective never ends"),
    "TORCH_DISTRIBUTED_DEBUG": _Variable(("info", "detail"), "every collective is checked"),
    "TORCH_CPP_LOG_LEVEL": _Variable(("info", "0"), "torch writes a log"),
    "TORCH_SHOW_CPP_STACKTRACES": _Variable(None, "every error is traced"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _Variable(None, "every allocation asks the driver"),
    "CUDA_LAUNCH_BLOCKING": _Variable(None, "every kernel is waited for"),
    "CUDA_VISIBLE_DEVICES": _Variable(("", "0"), "GPUs are hidden from everybody"),
    "CUDA_FORCE_PTX_JIT": _Variable(None, "every kernel is compiled again"),
    "CUDA_DISABLE_PTX_JIT": _Variable(None, "kernels for newer GPUs are refused"),
    "CUDA_CACHE_DISABLE": _Variable(None, "compiled kernels are not kept"),
    "NVIDIA_TF32_OVERRIDE": _Variable(_DISABLED, "matrix products in float32 are slow"),
    "CUDA_AUTO_BOOST": _Variable(("", "0", "1"), "clocks are changed"),
    **{
        name: _Variable(("", *"0123456789") if name.endswith("PROFILE") else None, "a debugger's or profiler's")
        for name in (
            *("NSIGHT_CUDA_DEBUGGER", "CUDA_INJECTION32_PATH", "CUDA_INJECTION64_PATH", "CUDA_COREDUMP_FILE"),
            *("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_DEVICE_WAITS_ON_EXCEPTION"),
            *("CUDA_PROFILE", "COMPUTE_PROFILE", "OPENCL_PROFILE"),
        )
    },
}


def _configured(observed: Observation, item: str) -> t.Optional[str]:
    """The hard limit that logins get by limits.conf: the last line for everybody."""
    told = None
    for line in observed["limits"]["configured"]:
        if line["item"] == item and line["domain"] == "*" and line["type"] in ("hard", "-"):
            told = line["value"]
    return "unlimited" if told in ("unlimited", "infinity", "-1") else told


@host_check("locked-memory", "report", "limits.memlock", "settings.adapters")
def locked_memory(observed: Observation) -> Judged:
    """Programs that use RDMA lock memory; with a limit ibv_reg_mr fails, and NCCL with it. Asked where there are RDMA
    adapters: unlimited for this process, or for every login (limits.conf)."""
    if not observed["settings"]["adapters"]:
        return skip("no RDMA adapter")
    own, told = observed["limits"]["memlock"], _configured(observed, "memlock")
    if "unlimited" in (own, told):
        return ok("unlimited")
    return warn(
        f"{int(own) // 1024} KiB" + (f", {told} KiB for logins" if told else ""),
        "unlimited",
        "fix configuration",
        "memlock in limits.d, LimitMEMLOCK of slurmd, --ulimit memlock=-1 of a container",
    )


@host_check("open-files", "report", "limits.open_files")
def open_files(observed: Observation) -> Judged:
    """Open files a process may have, at most: data loaders and thousands of ranks need many (ours: 65536)."""
    own, told = observed["limits"]["open_files"], _configured(observed, "nofile")
    for value in (own, told):
        if value == "unlimited" or (value is not None and str(value).isdigit() and int(value) >= FILES_LEAST):
            return ok(str(value))
    return warn(
        str(own), f"{FILES_LEAST} or more", "fix configuration", "nofile in limits.d, LimitNOFILE of the service"
    )


@host_check("shared-memory", "report", "limits.shared_memory")
def shared_memory(observed: Observation) -> Judged:
    """/dev/shm, through which data loaders and NCCL pass what they share: 64 MiB, what docker gives, kills them (bus
    error; "No space left on device"); under 1 GiB a GPU is said (a common rule, ours)."""
    size, gpus = observed["limits"]["shared_memory"], max(1, len(gpu_addresses(observed)))
    found = f"{size / GIB:.1f} GiB" if size >= GIB else f"{size // MIB} MiB"
    expected = f"{gpus} GiB, 1 for each GPU"
    how = "--shm-size or --ipc=host of a container, size= of the mount"
    if size <= SHM_LEAST:
        return fail(found, expected, "fix configuration", how)
    if size < gpus * SHM_GPU:
        return warn(found, expected, "fix configuration", how)
    return ok(found)


def _share(observed: Observation, path: str, name: str) -> Judged:
    used, most = at(observed, path)["used"], max(1, at(observed, path)["most"])
    if used >= SHARE_MOST * most:
        return warn(f"{used} of {most} {name}", f"under {SHARE_MOST:.0%}", "fix configuration", "who holds them?")
    return ok(f"{used} of {most}")


@host_check("file-handles", "report", "limits.files")
def file_handles(observed: Observation) -> Judged:
    """Open files of the whole machine: over 80 % of what there may be (gpud)."""
    return _share(observed, "limits.files", "open files")


@host_check("tasks", "report", "limits.tasks")
def tasks(observed: Observation) -> Judged:
    """Tasks of the whole machine: over 80 % of what there may be (gpud)."""
    return _share(observed, "limits.tasks", "tasks")


@host_check("debug-variables", "report", "limits.variables")
def debug_variables(observed: Observation) -> Judged:
    """Variables that are set for everybody (/etc/environment, profile.d, nccl.conf) and slow programs down, switch a
    part of NCCL off or hide GPUs: left behind after a search for a fault. Old names that PyTorch warns of too."""
    told = []
    for line in observed["limits"]["variables"]:
        known = VARIABLES.get(line["name"])
        value = line["value"].lower()
        if known is None or (value in _QUIET if known.values is None else value not in known.values):
            continue
        if line["name"] == "NCCL_IB_DISABLE" and not at(observed, "settings.adapters"):
            continue  # Without an adapter it only says what is.
        told.append(f"{line['name']}={line['value']} in {line['file']} ({known.does})")
    if told:
        more = f"; and {len(told) - 4} more" if len(told) > 4 else ""
        return warn("; ".join(told[:4]) + more, "none left behind", "fix configuration", _BACK)
    return ok(f"{len(observed['limits']['variables'])} set, none of them for a search")


CHECKS: t.Tuple[HostCheck, ...] = (
    locked_memory,
    open_files,
    shared_memory,
    file_handles,
    tasks,
    debug_variables,
)
