# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the driver: through pynvml where it is there, else through ``nvidia-smi -q -x``, which gives the same facts."""

from __future__ import annotations

import importlib.util
import sys
import types
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import child, facts
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.nvml import Answer, answer
from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.runner import Runner

NAME = "libnvidia-ml.so.1"
#: A copy of pynvml beside the gate goes before whatever the system has: it is of a known version.
PYNVML = ("/usr/local/lib/gpufleet/pynvml.py",)
#: Seconds for nvidia-smi, which reads all GPUs in one go and starts them where no persistence daemon runs.
SMI_LIMIT = 8.0
SMI = (
    "/usr/bin/nvidia-smi",
    "/usr/lib/wsl/lib/nvidia-smi",
    "/usr/local/nvidia/bin/nvidia-smi",
    "/usr/local/bin/nvidia-smi",
    "/run/nvidia/driver/usr/bin/nvidia-smi",
)


class More(t.NamedTuple):
    """What only health needs, beside what is compared: facts_health.py and smi_health.py."""

    parts: t.Sequence[facts.Part]
    p2p: t.Callable[[types.ModuleType, int], t.Any]
    parse: t.Callable[[str], Answer]
    add_compute_capability: t.Callable[[t.Sequence[t.Dict[str, t.Any]], str], None]


NOT_REACHED = child.Trouble("timeout", "not reached within the time limit")

#: States of NVML by its error codes (nvml.h); every other code is "error".
_STATES = {9: "no_driver", 12: "no_library", 18: "mismatch", 10: "timeout"}


def ask(runner: Runner, library: str, more: t.Optional[More] = None) -> Answer:
    """The ``nvml`` and ``gpus`` parts of an Observation, of what is compared without ``more``.

    One probe at a time on a host (child.Lock).
    """
    path = next((path for path in PYNVML if runner.exists(path)), None)
    try:
        with child.Lock(child.folder(runner)) as lock:
            if path is not None or importlib.util.find_spec("pynvml") is not None:
                return from_stream(child.stream(_job(runner.path(path) if path else None, library, more), lock))
            return _from_smi(runner, library, lock, more)
    except child.Stuck as error:
        return answer("timeout", error=str(error))


def from_stream(sent: child.Stream) -> Answer:
    """The answer of what the child sent and of where it hung."""
    head: t.Dict[str, t.Any] = {}
    gpus = []
    for record in sent.records:
        if "gpu" in record:
            gpus.append(record["gpu"])
        else:
            head.update(record)
    known = {gpu["index"] for gpu in gpus}
    if None in sent.hung and not head:
        return answer(sent.hung[None].state, source="nvml", error=sent.hung[None].text)
    if "state" in head:
        return answer(head["state"], source="nvml", error=head["error"])
    count = int(head.pop("count"))
    for index in range(count):
        if index not in known:
            state, text = sent.hung.get(index, NOT_REACHED)
            gpus.append({"index": index, "uuid": None, "pci_address": None, "state": state, "error": text})
    places = [(f"GPU {index}" if index < count else "between the GPUs", index) for index in range(count + 1)]
    lost = "; ".join(f"{place}: {sent.hung[index].text}" for place, index in places if index in sent.hung)
    return {
        "nvml": {"state": "ok", "source": "nvml", "error": lost, **head},
        "gpus": sorted(gpus, key=lambda gpu: int(gpu["index"])),
    }


def _from_smi(runner: Runner, library: str, lock: child.Lock, more: t.Optional[More]) -> Answer:
    from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import smi

    program = next((path for path in SMI if runner.which(path)), None)
    if program is None:
        return answer("error", error="neither pynvml nor nvidia-smi is on this host")
    env = {**runner.env, "LC_ALL": "C"}
    if not program.startswith("/usr/bin/"):
        env["LD_LIBRARY_PATH"] = library.rpartition("/")[0]
    problem, output = child.capture([runner.path(program), "-q", "-x"], env, lock, SMI_LIMIT)
    if output is None:
        return answer("timeout", source="nvidia-smi", error=problem)
    text = output.decode("utf-8", "replace")
    try:
        found = smi.parse(text) if more is None else more.parse(text)
    except smi.Unreadable as error:
        state = "mismatch" if "version mismatch" in text else "error"
        return answer(state, source="nvidia-smi", error=f"{problem or program}: {error}")
    if more is None:
        return found
    # The one fact that the XML does not have; drivers before R510 do not know the question.
    query = [runner.path(program), "--query-gpu=uuid,compute_cap", "--format=csv,noheader"]
    _problem, output = child.capture(query, env, lock, SMI_LIMIT)
    more.add_compute_capability(found["gpus"], (output or b"").decode("utf-8", "replace"))
    return found


def _job(path: t.Optional[str], library: str, more: t.Optional[More]) -> child.Job:
    def job(emit: child.Emit, skip: t.Set[int]) -> None:
        nvml = load(path, library)
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            emit({"state": _STATES.get(error.value, "error"), "error": str(error)})
            return
        emit(facts.system(nvml))
        count = nvml.nvmlDeviceGetCount()
        for index in range(count):
            if index not in skip:
                emit({"at": index})
                emit({"gpu": facts.gpu(nvml, index, more.parts if more else ())})
        # One more item, between the GPUs; not where one of them was in trouble, which would cost its time again.
        if more and count > 1 and not skip:
            emit({"at": count})
            emit({"p2p_read": more.p2p(nvml, count)})

    return job


def _spare_ctypes_util() -> None:
    """pynvml imports a name of it that it does not use; what it imports in turn (tempfile, subprocess) takes longer
    than pynvml itself."""
    if "ctypes.util" not in sys.modules:
        spare: t.Any = types.ModuleType("ctypes.util")
        spare.find_library = None
        sys.modules["ctypes.util"] = spare


def load(path: t.Optional[str], library: str) -> types.ModuleType:
    """pynvml, of a file or of this Python, with the driver's library under it. For a child only: it may hang."""
    import ctypes

    _spare_ctypes_util()
    try:
        ctypes.CDLL(NAME)
    except OSError:
        # Off the loader's path (a driver container). Once loaded, it is what pynvml gets by its name.
        ctypes.CDLL(library)
    if path is None:
        return importlib.import_module("pynvml")
    spec = importlib.util.spec_from_file_location("pynvml", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    # pynvml looks itself up there while it is loaded.
    module = sys.modules["pynvml"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
