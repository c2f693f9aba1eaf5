# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is compared of one GPU, through pynvml; facts_health.py has the rest.

Nothing is invented: three absences are kept apart.

``not_supported`` is what the driver calls so, None is what it could not tell,
and a field whose call this driver or this pynvml does not have is absent.
Codes and field ids are those of nvml.h, which never change; pynvml's names for
them came and went.
"""

from __future__ import annotations

import types
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.address import normalise_address

NOT_SUPPORTED = "not_supported"
#: nvml.h: invalid argument, not supported, function not found, lost, reset required, vGPU ECC, version, deprecated.
_NOT_SUPPORTED = (3, 22, 26)
_NOT_THERE = (13, 25)
_LOST = 15
_RESET = 16

ABSENT = object()
Tree = t.Dict[str, t.Any]


class Lost(Exception):
    """The GPU is gone for the driver (``lost``) or answers nothing before a reset (``reset_required``)."""


class Gpu:
    """Asks for one fact after the other and files the answers."""

    def __init__(self, nvml: types.ModuleType, handle: t.Any, index: int) -> None:
        self.nvml = nvml
        self.handle = handle
        self.tree: Tree = {"index": index}

    def ask(self, name: str, *arguments: t.Any) -> t.Any:
        """The raw answer, ``not_supported``, None for unknown, or ABSENT where there is no such call."""
        call = getattr(self.nvml, f"nvmlDeviceGet{name}", None)
        return ABSENT if call is None else self.answer(lambda: call(self.handle, *arguments))

    def answer(self, call: t.Callable[[], t.Any]) -> t.Any:
        """The same of a call that is there."""
        try:
            return call()
        except self.nvml.NVMLError as error:
            if error.value in (_LOST, _RESET):
                raise Lost("lost" if error.value == _LOST else "reset_required") from None
            if error.value in _NOT_THERE:
                return ABSENT
            return NOT_SUPPORTED if error.value in _NOT_SUPPORTED else None
        except UnicodeDecodeError as error:
            return error.object.decode("utf-8", "replace")

    def put(self, path: str, value: t.Any, use: t.Callable[[t.Any], t.Any] = lambda value: value) -> None:
        """File an answer under ``group.name``."""
        if value is ABSENT:
            return
        group, _dot, name = path.rpartition(".")
        place = self.tree
        for part in group.split(".") if group else ():
            place = place.setdefault(part, {})
        place[name] = value if value is None or value == NOT_SUPPORTED else use(value)

    def fields(self, **ids: int) -> t.Dict[str, t.Any]:
        """Values of nvmlDeviceGetFieldValues by name."""
        answers = self.ask("FieldValues", list(ids.values()))
        if answers is None or answers is ABSENT or answers == NOT_SUPPORTED:
            return dict.fromkeys(ids, answers)
        found = {}
        for name, field in zip(ids, answers):
            code = field.nvmlReturn
            if code == 0:
                kind = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[field.valueType]
                found[name] = getattr(field.value, kind)
            elif code in (_LOST, _RESET):
                raise Lost("lost" if code == _LOST else "reset_required")
            else:
                # An older driver answers an id that it does not know with "invalid argument".
                found[name] = NOT_SUPPORTED if code in _NOT_SUPPORTED else ABSENT if code in _NOT_THERE + (2,) else None
        return found


def system(nvml: types.ModuleType) -> Tree:
    """Versions, and ``count``."""
    cuda = nvml.nvmlSystemGetCudaDriverVersion()
    return {
        "driver_version": nvml.nvmlSystemGetDriverVersion(),
        "cuda_version": f"{cuda // 1000}.{cuda % 1000 // 10}",
        "count": nvml.nvmlDeviceGetCount(),
    }


def gpu(nvml: types.ModuleType, index: int, more: t.Sequence[Part] = ()) -> Tree:
    """What is compared of one GPU, and ``more``; a lost one has what was read before, and its ``state`` says so."""
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        state = {_LOST: "lost", _RESET: "reset_required"}.get(error.value, "error")
        return {"index": index, "uuid": None, "pci_address": None, "state": state, "error": str(error)}
    one = Gpu(nvml, handle, index)
    one.tree.update({"uuid": None, "pci_address": None, "state": "ok"})
    for part in (*COMPARED, *more):
        try:
            part(one)
        except Lost as lost:
            # The other parts may still be held by the library: what identifies the GPU is wanted most.
            one.tree["state"] = str(lost)
    return one.tree


def _identity(one: Gpu) -> None:
    pci = one.ask("PciInfo")
    one.put("pci_address", pci, lambda info: normalise_address(text(info.busId)))
    for path, name in (("uuid", "UUID"), ("name", "Name"), ("serial", "Serial"), ("vbios", "VbiosVersion")):
        one.put(path, one.ask(name), text)
    one.put("gsp_firmware", one.ask("GspFirmwareVersion"), text)


def _modes(one: Gpu) -> None:
    mig = one.ask("MigMode")
    ecc = one.ask("EccMode")
    for place, name in enumerate(("current", "pending")):
        one.put(f"mig.{name}", mig, lambda pair, place=place: bool(pair[place]))  # type: ignore[misc]
        one.put(f"ecc.{name}", ecc, lambda pair, place=place: bool(pair[place]))  # type: ignore[misc]


def _limits(one: Gpu) -> None:
    one.put("pcie.width", one.ask("CurrPcieLinkWidth"))
    one.put("power.limit_w", one.ask("EnforcedPowerLimit"), watts)


def _nvlink(one: Gpu) -> None:
    """Links that the GPU has and that are up, their speed, and errors of all links since the driver was loaded."""
    values = one.fields(count=91, speed_mbps=90, replay=52, recovery=59, crc_flit=38, crc_data=45)
    count = values.pop("count")
    if not isinstance(count, int) or count == 0:
        one.put("nvlink.count", count)
        return
    one.put("nvlink.count", count)
    states = [one.ask("NvLinkState", link) for link in range(count)]
    one.put("nvlink.active", None if None in states else sum(1 for state in states if state == 1))
    one.put("nvlink.inactive_links", [link for link, state in enumerate(states) if state == 0])
    one.put("nvlink.speed_mbps", values.pop("speed_mbps"))
    for name, value in values.items():
        one.put(f"nvlink.errors.{name}", value)


def watts(milliwatts: int) -> float:
    return round(milliwatts / 1000, 2)


def text(value: t.Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


Part = t.Callable[[Gpu], None]
#: The parts of which a baseline is made (_checks/baseline.py).
COMPARED: t.Tuple[Part, ...] = (_identity, _modes, _limits, _nvlink)
