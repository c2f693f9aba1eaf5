# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unchanged pynvml on the simulated library gives back what `nvidia-smi -q -x` says, for every capture and profile."""

from __future__ import annotations

import json
import re
import runpy
import typing as t
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROFILES = sorted(path.stem for path in (HERE.parents[1] / "simulator/profiles").glob("*.toml"))
CAPTURES = ("a100.xml", "h100.xml", "t4.xml", "mock-gb200-ecc-injected.xml")
NOT_SUPPORTED, DEPRECATED = {"error": 3}, {"error": 26}

pytestmark = pytest.mark.needs("gcc")

#: What NVML calls the texts of some elements.
NAMES: dict[str, dict[str, t.Any]] = {
    "product_brand": {"NVIDIA": 14, "GeForce": 5},
    "product_architecture": {"Turing": 6, "Ampere": 7, "Ada Lovelace": 8, "Hopper": 9, "Blackwell": 10},
    "compute_mode": {"Default": 0},
    "gpu_virtualization_mode/virtualization_mode": {"None": 0, "Pass-Through": 1},
    "gpu_recovery_action": {"None": 0},
    "fabric/state": {"Completed": 3},
    "fabric/health/summary": {"Healthy": 1, "N/A": 0},
}
UNITS = {"MiB": 1 << 20, "W": 1000, "us": 1000}


def expected(path: str, text: str | None) -> t.Any:
    """NVML's answer for the text of an element, None for an element that is not there."""
    if text in NAMES.get(path, {}):
        return NAMES[path][t.cast(str, text)]
    if text is None or text == "N/A":
        return NOT_SUPPORTED
    if text == "Requested functionality has been deprecated":
        return DEPRECATED
    if path == "pci/pci_bus_id":
        return text.upper().zfill(16)
    if path in ("pci/pci_device_id", "pci/pci_sub_system_id"):
        return int(text, 16)
    if path == "fabric/clusterUuid":
        return text.replace("-", "")
    if text in ("Yes", "Enabled", "Active", "No", "Disabled", "Not Active"):
        return int(text in ("Yes", "Enabled", "Active"))
    number = re.fullmatch(r"P?(-?\d+(?:\.\d+)?) ?(C|W|MiB|MHz|%|x|us|bank\(s\)|KB/s)?", text)
    if number and not path.startswith("inforom_version") and path not in ("serial", "vbios_version"):
        return round(float(number[1]) * UNITS.get(number[2] or "", 1))
    return int(text, 16) if text.startswith("0x") else text


def text_in(gpu: ET.Element, path: str) -> str | None:
    found = gpu.find(path)
    return None if found is None else (found.text or "").strip()


@pytest.mark.parametrize("source", [*CAPTURES, *PROFILES])
def test_pynvml_gives_back_what_the_xml_says(simulator: t.Any, source: str) -> None:
    log = ET.fromstring(simulator.smi(source, "-q", "-x")[1])
    status, said = simulator.child(source, lambda _folder: runpy.run_path(str(HERE / "read_nvml.py"))["main"]())
    assert status == 0, said
    answers = [json.loads(line) for line in said.splitlines()]
    gpus = log.findall("gpu")
    assert len(answers) >= len(gpus) * 100
    wrong = []
    for gpu, path, answer in answers:
        text = text_in(gpus[gpu], path)
        if path.startswith("fabric/") and text_in(gpus[gpu], "fabric/state") == "N/A":
            text = ""  # without a fabric the whole call is refused
        if answer != (NOT_SUPPORTED if text == "" else expected(path, text)):
            wrong.append((gpu, path, text, answer))
    assert wrong == []


@pytest.mark.parametrize("source", CAPTURES)
def test_the_simulated_xml_is_the_capture(simulator: t.Any, source: str) -> None:
    ours = flat(ET.fromstring(simulator.smi(source, "-q", "-x")[1]))
    theirs = flat(ET.parse(simulator.capture(source)).getroot())
    assert [pair for pair in zip(ours, theirs) if pair[0] != pair[1] and "timestamp" not in pair[0]] == []
    assert len(ours) == len(theirs)


def flat(element: ET.Element) -> list[tuple[str, str, tuple[tuple[str, str], ...]]]:
    text = "" if len(element) else " ".join((element.text or "").split())
    found = [(element.tag, text, tuple(element.attrib.items()))]
    for child in element:
        found += flat(child)
    return found
