# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -q -x`` read into the same facts, under the same names, as facts.py gives. Pure.

Elements come and go with the driver: thresholds are temperatures or (since
R580 on newer GPUs) offsets to the limit, ``remapped_rows`` can be the text
``N/A``, counters of event reasons are missing before R575. An element that is
not there is a field that is absent.
"""

from __future__ import annotations

import math
import re
import typing as t
from xml.etree import ElementTree

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.pci import normalise_address

NOT_SUPPORTED = "not_supported"
Tree = t.Dict[str, t.Any]
Use = t.Callable[[str], t.Any]


class Unreadable(Exception):
    """Not the XML of nvidia-smi; the text says what it is instead."""


def parse(text: str) -> Tree:
    """``{"nvml": ..., "gpus": [...]}`` of the output. Raises Unreadable."""
    # Warnings (a corrupted infoROM, say) can stand before and after the document.
    match = re.search(r"<nvidia_smi_log>.*</nvidia_smi_log>", text, re.DOTALL)
    if match is None:
        cut = "<nvidia_smi_log>" in text
        line = next((line.strip() for line in text.splitlines() if line.strip()), "nothing")
        raise Unreadable("the XML ends before its end" if cut else line[:200])
    # A name with odd bytes must not cost the other facts: XML knows no control characters.
    clean = re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", match.group(0))
    try:
        root = ElementTree.fromstring(clean)
    except ElementTree.ParseError as error:
        raise Unreadable(f"no XML: {error}") from None
    # Where an infoROM is corrupt, a line beside the document says so.
    corrupt = {normalise_address(address) for address in re.findall(r"infoROM is corrupted at gpu (\S+)", text)}
    return {
        "nvml": {
            "state": "ok",
            "source": "nvidia-smi",
            "error": "",
            "driver_version": root.findtext("driver_version", "").strip(),
            "cuda_version": root.findtext("cuda_version", "").strip(),
        },
        "gpus": [_gpu(element, index, corrupt) for index, element in enumerate(root.findall("gpu"))],
    }


def _gpu(element: ElementTree.Element, index: int, corrupt: t.AbstractSet[str] = frozenset()) -> Tree:
    one = _Gpu(element)
    one.tree.update({"index": index, "uuid": None, "pci_address": None, "state": "ok"})
    for path, source, use in _FIELDS:
        one.put(path, one.text(source), use)
    if one.tree["pci_address"] is None:
        one.tree["pci_address"] = normalise_address(element.get("id", ""))
    one.tree["inforom_valid"] = one.tree["pci_address"] not in corrupt
    _draw(one)
    _sram(one)
    _reasons(one)
    _fabric(one)
    _processes(one)
    if one.lost:
        one.tree["state"] = "lost"
    return one.tree


def add_compute_capability(gpus: t.Sequence[Tree], csv: str) -> None:
    """Put in what ``--query-gpu=uuid,compute_cap`` printed; a line that is no such pair is passed over."""
    pairs = dict(re.findall(r"^(\S+), *(\d+\.\d+)\s*$", csv, re.MULTILINE))
    for gpu in gpus:
        if gpu["uuid"] in pairs:
            gpu["compute_capability"] = pairs[gpu["uuid"]]


class _Gpu:
    def __init__(self, element: ElementTree.Element) -> None:
        self.element = element
        self.tree: Tree = {}
        self.lost = False

    def text(self, path: str) -> t.Optional[str]:
        """Text of an element; that of its parent where the parent is a text (``N/A``) instead of a group."""
        found = self.element.find(path)
        while found is None and "/" in path:
            path = path.rpartition("/")[0]
            parent = self.element.find(path)
            if parent is not None:
                text = (parent.text or "").strip()
                return text if text and len(parent) == 0 else None
        return None if found is None else (found.text or "").strip()

    def put(self, path: str, text: t.Optional[str], use: Use) -> None:
        """File a text under ``group.name``; absent where the element is."""
        if text is None:
            return
        group, _dot, name = path.rpartition(".")
        place = self.tree
        for part in group.split(".") if group else ():
            place = place.setdefault(part, {})
        place[name] = self.value(text, use)

    def value(self, text: str, use: Use) -> t.Any:
        """What a text means: ``not_supported``, None for unknown, or the value."""
        low = text.lower().strip("[]")
        if "lost" in low and "gpu" in low:
            self.lost = True
            return None
        if low in ("n/a", "not supported") or "deprecated" in low:
            return NOT_SUPPORTED
        if not low or "unknown" in low or "err!" in low or "insufficient permission" in low:
            return None
        try:
            return use(text)
        except ValueError:
            return None


def _integer(text: str) -> int:
    """``81559 MiB``, ``16x``, ``29 C``, ``7015662857 us``."""
    return int(text.split()[0].rstrip("x"), 0)


def _watts(text: str) -> float:
    value = float(text.split()[0])
    if not math.isfinite(value):
        raise ValueError(text)
    return round(value, 2)


def _flag(text: str) -> bool:
    low = text.lower()
    if low in ("enabled", "yes", "active", "true"):
        return True
    if low in ("disabled", "no", "not active", "false"):
        return False
    raise ValueError(text)


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _license(text: str) -> str:
    """``Licensed (Expiry: ...)`` or ``Unlicensed (Unrestricted)``."""
    return "licensed" if text.lower().startswith("licensed") else "unlicensed"


_FIELDS: t.Tuple[t.Tuple[str, str, Use], ...] = (
    ("uuid", "uuid", str),
    ("pci_address", "pci/pci_bus_id", normalise_address),
    ("name", "product_name", str),
    ("serial", "serial", str),
    ("board_part_number", "board_part_number", str),
    ("vbios", "vbios_version", str),
    ("minor_number", "minor_number", _integer),
    ("architecture", "product_architecture", str),
    ("gsp_firmware", "gsp_firmware_version", str),
    ("persistence", "persistence_mode", _flag),
    ("compute_mode", "compute_mode", _word),
    ("recovery_action", "gpu_recovery_action", _word),
    ("mig.current", "mig_mode/current_mig", _flag),
    ("mig.pending", "mig_mode/pending_mig", _flag),
    ("ecc.current", "ecc_mode/current_ecc", _flag),
    ("ecc.pending", "ecc_mode/pending_ecc", _flag),
    ("ecc.volatile.sram_corrected", "ecc_errors/volatile/sram_correctable", _integer),
    ("ecc.volatile.dram_corrected", "ecc_errors/volatile/dram_correctable", _integer),
    ("ecc.volatile.dram_uncorrected", "ecc_errors/volatile/dram_uncorrectable", _integer),
    ("ecc.aggregate.sram_corrected", "ecc_errors/aggregate/sram_correctable", _integer),
    ("ecc.aggregate.dram_corrected", "ecc_errors/aggregate/dram_correctable", _integer),
    ("ecc.aggregate.dram_uncorrected", "ecc_errors/aggregate/dram_uncorrectable", _integer),
    ("ecc.sram_threshold_exceeded", "ecc_errors/aggregate/sram_threshold_exceeded", _flag),
    ("ecc.channel_repair_pending", "ecc_errors/channel_repair_pending", _flag),
    ("ecc.tpc_repair_pending", "ecc_errors/tpc_repair_pending", _flag),
    ("ecc.unrepairable_memory", "ecc_errors/unrepairable_memory", _flag),
    ("remapped_rows.corrected", "remapped_rows/remapped_row_corr", _integer),
    ("remapped_rows.uncorrected", "remapped_rows/remapped_row_unc", _integer),
    ("remapped_rows.pending", "remapped_rows/remapped_row_pending", _flag),
    ("remapped_rows.failure", "remapped_rows/remapped_row_failure", _flag),
    *(
        (f"remapped_rows.banks.{name}", f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}", _integer)
        for name in ("max", "high", "partial", "low", "none")
    ),
    ("retired_pages.single_bit", "retired_pages/multiple_single_bit_retirement/retired_count", _integer),
    ("retired_pages.double_bit", "retired_pages/double_bit_retirement/retired_count", _integer),
    ("retired_pages.pending", "retired_pages/pending_retirement", _flag),
    ("memory_mib", "fb_memory_usage/total", _integer),
    ("bar1_mib", "bar1_memory_usage/total", _integer),
    ("pcie.generation", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", _integer),
    ("pcie.generation_max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", _integer),
    ("pcie.width", "pci/pci_gpu_link_info/link_widths/current_link_width", _integer),
    ("pcie.width_max", "pci/pci_gpu_link_info/link_widths/max_link_width", _integer),
    ("pcie.replay_count", "pci/replay_counter", _integer),
    ("temperature.gpu_c", "temperature/gpu_temp", _integer),
    ("temperature.memory_c", "temperature/memory_temp", _integer),
    ("temperature.margin_c", "temperature/gpu_temp_tlimit", _integer),
    ("temperature.shutdown_c", "temperature/gpu_temp_max_threshold", _integer),
    ("temperature.slowdown_c", "temperature/gpu_temp_slow_threshold", _integer),
    ("temperature.max_operating_c", "temperature/gpu_temp_max_gpu_threshold", _integer),
    ("temperature.memory_max_c", "temperature/gpu_temp_max_mem_threshold", _integer),
    ("temperature.shutdown_tlimit_c", "temperature/gpu_temp_max_tlimit_threshold", _integer),
    ("temperature.slowdown_tlimit_c", "temperature/gpu_temp_slow_tlimit_threshold", _integer),
    ("temperature.max_operating_tlimit_c", "temperature/gpu_temp_max_gpu_tlimit_threshold", _integer),
    ("temperature.memory_max_tlimit_c", "temperature/gpu_temp_max_mem_tlimit_threshold", _integer),
    # One element a driver: up to R525 the readings were "power_readings".
    ("power.limit_w", "gpu_power_readings/current_power_limit", _watts),
    ("power.limit_w", "power_readings/enforced_power_limit", _watts),
    ("power.requested_w", "gpu_power_readings/requested_power_limit", _watts),
    ("power.requested_w", "power_readings/power_limit", _watts),
    ("power.default_w", "gpu_power_readings/default_power_limit", _watts),
    ("power.default_w", "power_readings/default_power_limit", _watts),
    ("power.min_w", "gpu_power_readings/min_power_limit", _watts),
    ("power.min_w", "power_readings/min_power_limit", _watts),
    ("power.max_w", "gpu_power_readings/max_power_limit", _watts),
    ("power.max_w", "power_readings/max_power_limit", _watts),
    ("power.average_w", "gpu_power_readings/average_power_draw", _watts),
    ("power.instant_w", "gpu_power_readings/instant_power_draw", _watts),
    ("power.draw_w", "gpu_power_readings/power_draw", _watts),
    ("power.draw_w", "power_readings/power_draw", _watts),
    ("performance_state", "performance_state", str),
    ("clocks.sm_mhz", "clocks/sm_clock", _integer),
    ("clocks.memory_mhz", "clocks/mem_clock", _integer),
    ("clocks.sm_max_mhz", "max_clocks/sm_clock", _integer),
    ("clocks.memory_max_mhz", "max_clocks/mem_clock", _integer),
    ("virtualization_mode", "gpu_virtualization_mode/virtualization_mode", _word),
    ("vgpu_license", "vgpu_software_licensed_product/license_status", _license),
)

#: Names that are shorter here than in nvml.h.
_FABRIC_WORDS = {"incorrect_sysguid": "incorrect_system_guid", "incorrect_chassis_s_n": "incorrect_chassis_serial"}
_COUNTERS = {"sw_therm_slowdown": "sw_thermal_slowdown", "hw_therm_slowdown": "hw_thermal_slowdown"}
_COUNTERS["hw_power_brake"] = "hw_power_brake_slowdown"


def _draw(one: _Gpu) -> None:
    """One number for the draw, as NVML has it: the average where the GPU keeps one."""
    power = one.tree.get("power", {})
    numbers = [power[name] for name in ("average_w", "instant_w") if isinstance(power.get(name), float)]
    if numbers:
        power.setdefault("draw_w", numbers[0])


def _sram(one: _Gpu) -> None:
    """Uncorrected SRAM errors: one element, or (since R535) parity and SEC-DED apart."""
    for kind in ("volatile", "aggregate"):
        folder = f"ecc_errors/{kind}/sram_uncorrectable"
        values = [
            one.value(text, _integer)
            for text in (one.text(folder), one.text(f"{folder}_parity"), one.text(f"{folder}_secded"))
            if text is not None
        ]
        if not values:
            continue
        numbers = [value for value in values if isinstance(value, int)]
        total = sum(numbers) if len(numbers) == len(values) else None
        if all(value == NOT_SUPPORTED for value in values):
            total = NOT_SUPPORTED  # type: ignore[assignment]
        one.tree.setdefault("ecc", {}).setdefault(kind, {})["sram_uncorrected"] = total


def _reasons(one: _Gpu) -> None:
    for word in ("event", "throttle"):
        group = one.element.find(f"clocks_{word}_reasons")
        if group is not None:
            prefix = f"clocks_{word}_reason_"
            states = {child.tag[len(prefix) :]: one.value((child.text or "").strip(), _flag) for child in group}
            one.tree["clocks_event_reasons"] = [name for name, active in states.items() if active is True]
            break
    group = one.element.find("clocks_event_reasons_counters")
    for child in group if group is not None else ():
        name = child.tag[len("clocks_event_reasons_counters_") :]
        one.put(f"clocks_event_counters_us.{_COUNTERS.get(name, name)}", (child.text or "").strip(), _integer)


def _fabric(one: _Gpu) -> None:
    state = one.text("fabric/state")
    if state is None:
        return
    name = one.value(state, _word)
    if name == NOT_SUPPORTED or name is None:
        one.tree["fabric"] = {"state": name}
        return
    health: Tree = {}
    for field, source in (
        ("degraded_bandwidth", "bandwidth"),
        ("route_recovery", "route_recovery_in_progress"),
        ("route_unhealthy", "route_unhealthy"),
        ("access_timeout_recovery", "access_timeout_recovery"),
    ):
        text = one.text(f"fabric/health/{source}")
        if text is not None:
            health[field] = one.value(text, _degraded if source == "bandwidth" else _flag)
    for field in ("incorrect_configuration", "summary"):
        text = one.text(f"fabric/health/{field}")
        if text is not None:
            health[field] = one.value(text, lambda text: _FABRIC_WORDS.get(_word(text), _word(text)))
    clique, cluster = one.text("fabric/cliqueId") or "", one.text("fabric/clusterUuid") or ""
    one.tree["fabric"] = {
        "state": name,
        "status": one.value(one.text("fabric/status") or "", _word),
        "clique_id": one.value(clique, _integer),
        "cluster_uuid": one.value(cluster, str),
        "health": health,
    }


def _degraded(text: str) -> bool:
    """``Full`` or ``Degraded``."""
    return {"full": False, "degraded": True}[text.lower()] if text.lower() in ("full", "degraded") else _flag(text)


def _processes(one: _Gpu) -> None:
    group = one.element.find("processes")
    if group is None:
        return
    text = (group.text or "").strip()
    if text and len(group) == 0:
        one.tree["processes"] = one.value(text, lambda _text: [])
        return
    kinds = {"C": "compute", "G": "graphics", "C+G": "compute", "M+C": "compute"}
    one.tree["processes"] = [
        {
            "pid": one.value(info.findtext("pid", ""), _integer),
            "kind": kinds.get(info.findtext("type", "").strip(), "compute"),
            "memory_mib": _memory(one.value(info.findtext("used_memory", ""), _integer)),
        }
        for info in group.findall("process_info")
    ]


def _memory(value: t.Any) -> t.Optional[int]:
    return value if isinstance(value, int) else None
