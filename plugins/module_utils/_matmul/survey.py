# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an environment is: torch and its libraries as files, as loaded, and what CUDA says to it.

Runs in the environment's interpreter. Facts only; `_checks/environment.py` judges them.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import sys
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._matmul.wire import Wire, import_torch, tie_life

_OURS = re.compile(r"^(torch|triton|pytorch[-_]triton|nvidia[-_].*|cuda[-_].*)$", re.I)
_LISTED = 100  # damaged files that are named
_LIBRARY = re.compile(r"/(lib(?:torch|c10|cu|nv|nccl|gomp|mkl|iomp|shm|caffe2)[^/]*\.so[^/]*)$")


def damaged_files() -> t.List[t.Dict[str, t.Any]]:
    """Files of torch and of the libraries installed for it that are missing, or not of the size that was installed."""
    damaged = []
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"] or ""
        if not _OURS.match(name):
            continue
        for item in distribution.files or []:
            if item.size is None:  # pip records no size for what it compiles itself
                continue
            path = str(distribution.locate_file(item))
            try:
                size: t.Optional[int] = os.stat(path).st_size
            except OSError:
                size = None
            if size != item.size:
                damaged.append({"package": name, "path": path, "size": size, "expected_size": item.size})
    # A missing library says more than the headers that went with it.
    return sorted(damaged, key=lambda item: (".so" not in os.path.basename(item["path"]), item["path"]))


def shipped_libraries(folder: str) -> t.Dict[str, str]:
    """Path by name of the shared objects beside torch: its own and those of the nvidia wheels.

    ``folder``: site-packages. Paths are without links.
    """
    shipped = {}
    roots = [os.path.join(folder, "torch", "lib"), os.path.join(folder, "nvidia")]
    for root in roots:
        for where, _folders, files in os.walk(root):
            shipped.update({name: os.path.realpath(os.path.join(where, name)) for name in files if ".so" in name})
    return shipped


def loaded_libraries() -> t.List[t.Dict[str, str]]:
    """Libraries of this process that belong to torch, CUDA or their mathematics: name and file."""
    paths = set()
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(None, 5)
            if len(fields) == 6 and _LIBRARY.search(fields[5]):
                paths.add(fields[5])
    return [{"name": os.path.basename(path), "path": path} for path in sorted(paths)]


def _driver() -> t.Dict[str, t.Any]:
    """What the driver says without torch: cuInit's answer, and each device's UUID and PCI address."""
    found: t.Dict[str, t.Any] = {"kernel_module": None, "libcuda": None, "cu_init": None, "devices": []}
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            found["kernel_module"] = file.readline().strip()
    except OSError:
        pass
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        found["libcuda"] = str(error)
        return found
    found["libcuda"] = "ok"
    found["cu_init"] = cuda.cuInit(0)
    if found["cu_init"] != 0:
        return found
    count = ctypes.c_int()
    cuda.cuDeviceGetCount(ctypes.byref(count))
    get_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid  # only v2 names a MIG instance
    for index in range(count.value):
        device, raw, address = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(32)
        cuda.cuDeviceGet(ctypes.byref(device), index)
        get_uuid(ctypes.byref(raw), device)
        cuda.cuDeviceGetPCIBusId(address, 32, device)
        text = bytes(raw).hex()
        uuid = "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        found["devices"].append({"uuid": uuid, "pci_address": address.value.decode().lower()})
    return found


def _nvidia_pci() -> t.List[str]:
    """PCI addresses of NVIDIA's display and 3D controllers, with or without a driver."""
    base, found = "/sys/bus/pci/devices", []
    for address in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        try:
            with open(f"{base}/{address}/vendor", encoding="ascii") as file:
                vendor = file.read().strip()
            with open(f"{base}/{address}/class", encoding="ascii") as file:
                kind = file.read().strip()
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03"):
            found.append(address)
    return found


def _cuda(torch: t.Any) -> t.Dict[str, t.Any]:
    """What torch sees: whether, how many, which; and the error where it sees none."""
    found: t.Dict[str, t.Any] = {"available": False, "error": "", "devices": []}
    found["driver"] = _driver()
    found["nvidia_pci"] = _nvidia_pci()
    found["hidden_by"] = {
        name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES") if name in os.environ
    }
    if torch.version.cuda is None:
        return found
    try:
        torch.cuda.init()
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            identity = dict(enumerate(found["driver"]["devices"])).get(index, {})
            kind = "MIG" if " MIG " in f" {properties.name} " else "GPU"
            found["devices"].append(
                {
                    "index": index,
                    "name": properties.name,
                    "uuid": f"{kind}-{identity['uuid']}" if identity else "",
                    "pci_address": identity.get("pci_address", ""),
                    "compute_capability": f"{properties.major}.{properties.minor}",
                    "memory_mib": properties.total_memory >> 20,
                    "multiprocessors": properties.multi_processor_count,
                }
            )
        found["available"] = bool(found["devices"])
    except Exception as error:  # pylint: disable=broad-except # RuntimeError, AssertionError, AcceleratorError by version
        found["error"] = f"{type(error).__name__}: {error}"
    return found


def _version(read: t.Callable[[], t.Any]) -> t.Optional[str]:
    try:
        value = read()
    except Exception:  # pylint: disable=broad-except # a build without the library
        return None
    if value is None:
        return None
    return ".".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def survey(job: t.Mapping[str, t.Any]) -> None:
    """One ``python`` event, then ``import_error``, or ``torch`` and ``done``."""
    tie_life(job["parent"], job["alarm_s"])
    wire = Wire()
    damaged = damaged_files()
    wire.emit(
        "python",
        python=sys.executable,
        python_version=platform.python_version(),
        prefix=sys.prefix,
        glibc=platform.libc_ver()[1],
        damaged=damaged[:_LISTED],
        damaged_count=len(damaged),
    )
    try:
        torch = import_torch(wire)
    except BaseException as error:  # pylint: disable=broad-except # a broken wheel can even ask for the exit
        wire.emit("import_error", type=type(error).__name__, message=str(error)[:2000])
        os._exit(1)
    folder = os.path.realpath(os.path.dirname(os.path.dirname(torch.__file__)))
    cuda = _cuda(torch)
    wire.emit(
        "torch",
        torch_version=str(torch.__version__),
        torch_cuda=torch.version.cuda,
        torch_hip=getattr(torch.version, "hip", None),
        folder=folder,
        arch_list=list(torch.cuda.get_arch_list()) if cuda["available"] else _compiled_for(torch),
        cudnn=_version(torch.backends.cudnn.version) if torch.version.cuda else None,
        nccl=_version(torch.cuda.nccl.version) if torch.version.cuda else None,
        shipped=shipped_libraries(folder),
        libraries=loaded_libraries(),
        cuda=cuda,
    )
    wire.emit("done")
    os._exit(0)


def _compiled_for(torch: t.Any) -> t.List[str]:
    """The wheel's architectures, told by torch also where there is no GPU."""
    try:
        flags = torch._C._cuda_getArchFlags()  # pylint: disable=protected-access
    except AttributeError:
        return []
    return str(flags).split() if flags else []
