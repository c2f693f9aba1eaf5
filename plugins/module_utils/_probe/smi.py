# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -q -x`` read into the same facts, under the same names, as facts.py gives.

smi_health.py has what is not compared. Pure.

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

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe.address import normalise_address

NOT_SUPPORTED = "not_supported"
Tree = t.Dict[str, t.Any]
Use = t.Callable[[str], t.Any]
Fields = t.Sequence[t.Tuple[str, str, Use]]
#: Files more facts of a GPU; it gets the whole output too.
More = t.Callable[["Gpu", str], None]


class Unreadable(Exception):
    """Not the XML of nvidia-smi; the text says what it is instead."""


def parse(text: str, more: t.Optional[More] = None) -> Tree:
    """``{"nvml": ..., "gpus": [...]}`` of the output, with ``more`` of each GPU. Raises Unreadable."""
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
    return {
        "nvml": {
            "state": "ok",
            "source": "nvidia-smi",
            "error": "",
            "driver_version": root.findtext("driver_version", "").strip(),
            "cuda_version": root.findtext("cuda_version", "").strip(),
        },
        "gpus": [_gpu(element, index, text, more) for index, element in enumerate(root.findall("gpu"))],
    }


def _gpu(element: ElementTree.Element, index: int, text: str, more: t.Optional[More]) -> Tree:
    one = Gpu(element)
    one.tree.update({"index": index, "uuid": None, "pci_address": None, "state": "ok"})
    one.file(COMPARED)
    if one.tree["pci_address"] is None:
        one.tree["pci_address"] = normalise_address(element.get("id", ""))
    if more is not None:
        more(one, text)
    if one.lost:
        one.tree["state"] = "lost"
    return one.tree


class Gpu:
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

    def file(self, fields: Fields) -> None:
        """All of a table: path of the fact, path of the element, what is made of its text."""
        for path, source, use in fields:
            self.put(path, self.text(source), use)

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


def integer(text: str) -> int:
    """``81559 MiB``, ``16x``, ``29 C``, ``7015662857 us``."""
    return int(text.split()[0].rstrip("x"), 0)


def watts(text: str) -> float:
    value = float(text.split()[0])
    if not math.isfinite(value):
        raise ValueError(text)
    return round(value, 2)


def flag(text: str) -> bool:
    low = text.lower()
    if low in ("enabled", "yes", "active", "true"):
        return True
    if low in ("disabled", "no", "not active", "false"):
        return False
    raise ValueError(text)


def word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


#: Of which a baseline is made (_checks/baseline.py).
COMPARED: Fields = (
    ("uuid", "uuid", str),
    ("pci_address", "pci/pci_bus_id", normalise_address),
    ("name", "product_name", str),
    ("serial", "serial", str),
    ("vbios", "vbios_version", str),
    ("gsp_firmware", "gsp_firmware_version", str),
    ("mig.current", "mig_mode/current_mig", flag),
    ("mig.pending", "mig_mode/pending_mig", flag),
    ("ecc.current", "ecc_mode/current_ecc", flag),
    ("ecc.pending", "ecc_mode/pending_ecc", flag),
    ("pcie.width", "pci/pci_gpu_link_info/link_widths/current_link_width", integer),
    # One element a driver: up to R525 the readings were "power_readings".
    ("power.limit_w", "gpu_power_readings/current_power_limit", watts),
    ("power.limit_w", "power_readings/enforced_power_limit", watts),
)
