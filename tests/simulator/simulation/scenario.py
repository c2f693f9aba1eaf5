# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario: what the simulated machine says, as ordered keys and texts.

A key is the path of an element of `nvidia-smi -q -x`; elements which repeat carry a number:

    driver_version                          580.105.08
    gpu/0/temperature/gpu_temp              29 C
    gpu/0/processes/process_info[0]/pid     4242

What that output does not say (NVLink, NUMA, compute capability) stands under `sim/`, see hardware.py. What a value
can be is described in src/scenario.c.
"""

from __future__ import annotations

import re
import typing as t
import xml.etree.ElementTree as ET
from pathlib import Path

Values = dict[str, str]

REPEATED = {
    "supported_mem_clock",
    "supported_graphics_clock",
    "process_info",
    "accounted_process_info",
    "mig_device",
    "vgpu_instance",
    "retired_page",
}
#: The unit of a bare number, by the end of a key, where the value it replaces has none.
UNITS = (
    (re.compile(r"(_temp|tlimit|_threshold|temperature)$"), "C"),
    (re.compile(r"(power_limit|power_draw)$"), "W"),
    (re.compile(r"_clock$"), "MHz"),
    (re.compile(r"(memory_usage/\w+|used_memory)$"), "MiB"),
    (re.compile(r"(_util|fan_speed)$"), "%"),
    (re.compile(r"link_width$"), "x"),
    (re.compile(r"clocks_event_reasons_counters_\w+$"), "us"),
)
#: Short names for what people set most.
SHORT = {
    "library_version": "sim/library_version",
    "driver_loaded": "sim/driver_loaded",
    "kernel_module": "sim/kernel_module",
    "init": "sim/init",
    "devices": "sim/devices",
}
GLOBAL = re.compile(
    r"^(sim/(library_version|driver_loaded|kernel_module|init|devices|gpus|start|process/\d+|smi/\w+|nic/\d+/\w+|host/\w+)"
    r"|driver_version|cuda_version|timestamp|attached_gpus)$"
)
MASK_FIELDS = (
    # (shift, width, element, names by value); the constants are nvml.h's NVML_GPU_FABRIC_HEALTH_MASK_*
    (0, 0x3, "bandwidth", ("N/A", "Degraded", "Full")),
    (2, 0x3, "route_recovery_in_progress", ("N/A", "True", "False")),
    (4, 0x3, "route_unhealthy", ("N/A", "True", "False")),
    (6, 0x3, "access_timeout_recovery", ("N/A", "True", "False")),
    (8, 0xF, "incorrect_configuration", (
        "N/A", "None", "Incorrect SysGUID", "Incorrect Chassis S/N", "No Partition", "Insufficient NVLinks",
        "Incompatible GPU firmware", "Invalid Location", "GPU State Invalid")),
    (12, 0x3, "partition_assigned", ("N/A", "True", "False")),
)  # fmt: skip


class ScenarioError(Exception):
    """The scenario cannot be made; the text says what is wrong and what would be right."""


def from_capture(path: Path) -> Values:
    """Reads the output of `nvidia-smi -q -x`."""
    try:
        text = path.read_bytes()
        root = ET.fromstring(text)
    except OSError as error:
        raise ScenarioError(f"cannot read the capture {path}: {error.strerror}") from error
    except ET.ParseError as error:
        raise ScenarioError(f"{path} is not a whole `nvidia-smi -q -x`: {error}") from error
    if root.tag != "nvidia_smi_log":
        raise ScenarioError(f"{path} holds <{root.tag}>, not <nvidia_smi_log>: it is not from `nvidia-smi -q -x`")
    values: Values = {}
    dtd = re.search(rb'SYSTEM "([^"]+)"', text)
    values["sim/dtd"] = dtd.group(1).decode() if dtd else "nvsmi_device_v12.dtd"
    gpu = 0
    for element in root:
        if element.tag == "gpu":
            values[f"gpu/{gpu}/sim/id"] = element.get("id", "")
            _flatten(element, f"gpu/{gpu}", values)
            gpu += 1
        else:
            _flatten(element, element.tag, values)
    values["sim/gpus"] = str(gpu)
    return values


def _flatten(element: ET.Element, key: str, values: Values) -> None:
    if not len(element):
        values[key] = " ".join((element.text or "").split())
        return
    seen: dict[str, int] = {}
    for child in element:
        number = seen[child.tag] = seen.get(child.tag, -1) + 1
        name = f"{child.tag}[{number}]" if child.tag in REPEATED or number else child.tag
        _flatten(child, f"{key}/{name}", values)


def gpus(values: Values) -> int:
    return int(values["sim/gpus"])


#: Lines that a scenario adds to the kernel log, each given by a setting of its own; a scenario is one line a value.
LOG, LINE_END = "kernel_log", "\\n"


def assign(values: Values, setting: str) -> None:
    """Sets PATH=VALUE; PATH is a whole key or its end, with dots or slashes, for one GPU (`gpu.3.`) or for all."""
    path, found, value = setting.partition("=")
    if not found:
        raise ScenarioError(f"--set {setting}: give PATH=VALUE, such as gpu.0.temperature.gpu_temp=95")
    if path.strip() == LOG:
        values[f"sim/{LOG}"] = values.get(f"sim/{LOG}", "") + value.strip() + LINE_END
        return
    for key in _keys(values, path.strip()):
        assign_key(values, key, value.strip())


def assign_key(values: Values, key: str, value: str) -> None:
    """Sets one key, with the unit and the fields that follow from it."""
    if key.endswith("/fabric/health_mask"):
        for shift, width, name, names in MASK_FIELDS:
            number = int(value, 0) >> shift & width
            values[key.replace("health_mask", f"health/{name}")] = names[number] if number < len(names) else "N/A"
        return
    previous = values.get(key, "")
    for child in [child for child in values if child.startswith(key + "/")]:
        del values[child]
    values[key] = " | ".join(_with_unit(key, step, previous) for step in value.split(" | "))


def _with_unit(key: str, step: str, previous: str) -> str:
    """'95' becomes '95 C' where the old value was in degrees; '@slow 2s' delays the old value."""
    when, colon, rest = step.partition(": ")
    if colon and re.fullmatch(r"[\d.]+s|\d+ calls?", when):
        return f"{when}: {_with_unit(key, rest, previous)}"
    if re.fullmatch(r"@slow [\d.]+s", step) and not key.endswith("sim/device"):
        return f"{step} {previous}"
    if not re.fullmatch(r"-?\d+(\.\d+)?", step):
        return step
    unit = re.fullmatch(r"-?[\d.]+ ?(\D+)", previous)
    name = unit.group(1) if unit else next((unit for end, unit in UNITS if end.search(key)), "")
    return step + name if name == "x" else f"{step} {name}".rstrip()


def _keys(values: Values, path: str) -> list[str]:
    path = path.replace(".", "/")
    path = SHORT.get(path, f"sim/{path}" if path.startswith(("nic/", "host/")) else path)
    if GLOBAL.match(path):
        return [path]
    one = re.fullmatch(r"gpu/(\d+)(?:/(.*))?", path)
    numbers = range(gpus(values))
    if one:
        if int(one.group(1)) not in numbers:
            raise ScenarioError(f"--set {path}: there are {gpus(values)} GPUs, numbered from 0")
        numbers = range(int(one.group(1)), int(one.group(1)) + 1)
        path = one.group(2) or "sim/device"
    if not numbers:
        raise ScenarioError(f"--set {path}: there is no GPU to set it for")
    keys, problem = [], None
    for number in numbers:  # not all GPUs have the same elements: "sim.p2p.1" is not of GPU 1
        try:
            keys.append(f"gpu/{number}/{_whole(values, number, path)}")
        except ScenarioError as error:
            problem = error
    if problem and not keys:
        raise problem
    return keys


def _whole(values: Values, gpu: int, path: str) -> str:
    """The key under `gpu/N/` that PATH is or ends. A parent counts too: all below it takes the one value."""
    prefix = f"gpu/{gpu}/"
    known: set[str] = {"fabric/health_mask"} | set(vgpu_keys()) | set(KNOWN)
    for key in values:
        if key.startswith(prefix):
            parts = key[len(prefix) :].split("/")
            known.update("/".join(parts[:end]) for end in range(1, len(parts) + 1))
    if path in known or re.match(r"processes/process_info\[\d+\]/", path):
        return path
    ends = sorted(key for key in known if key.endswith("/" + path))
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ScenarioError(f"--set {path} is ambiguous: {', '.join(key.replace('/', '.') for key in ends)}")
    near = sorted(key for key in known if path.split("/")[-1] in key)[:6]
    hint = f"; did you mean {', '.join(key.replace('/', '.') for key in near)}?" if near else ""
    raise ScenarioError(f"--set {path}: no such element{hint}")


def vgpu_keys() -> tuple[str, ...]:
    name = "vgpu_software_licensed_product"
    return (name, f"{name}/licensed_product_name", f"{name}/license_status")


#: Elements that some drivers lack: they can be set although the scenario does not hold them.
KNOWN = (
    "gpu_recovery_action",
    "temperature/gpu_temp_tlimit",
    "temperature/gpu_temp_max_tlimit_threshold",
    "temperature/gpu_temp_slow_tlimit_threshold",
    "temperature/gpu_temp_max_gpu_tlimit_threshold",
    "temperature/gpu_temp_max_mem_tlimit_threshold",
    "temperature/gpu_temp_max_threshold",
    "temperature/gpu_temp_slow_threshold",
    "temperature/gpu_temp_max_gpu_threshold",
    "temperature/gpu_temp_max_mem_threshold",
    *(
        f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}"
        for name in ("sw_power_cap", "sync_boost", "sw_therm_slowdown", "hw_therm_slowdown", "hw_power_brake")
    ),
    *(f"fabric/health/{name}" for name in ("summary", "incorrect_configuration", "partition_assigned")),
    *(f"ecc_errors/{name}" for name in ("channel_repair_pending", "tpc_repair_pending", "unrepairable_memory")),
)


def first_step(value: str) -> str:
    """What a value says at the start: host files are written once."""
    return re.sub(r"^@slow [\d.]+s ?", "", value.split(" | ")[0])


def text_of(values: t.Iterable[tuple[str, str]]) -> str:
    """The file that the library reads."""
    return "".join(f"{key}\t{value}\n" for key, value in values)
