# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A picture of a host's topology for a person: NUMA nodes, PCIe switches, adapters above GPUs, NVLink below. Pure.

From top to bottom as data goes: the CPU, the switch below it, the adapters and GPUs behind that switch, and under the
GPUs what joins them. Red is what runs at less than it could, other than a link that idles.
"""

from __future__ import annotations

import re
import typing as t
from xml.sax import saxutils

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.tree import Node

#: Pixels: a device, the gap between two, the margin of a group and of the picture.
WIDE, HIGH, GAP, PAD, MARGIN = 128, 62, 8, 10, 24
GENERATIONS = {"2.5": 1, "5": 2, "5.0": 2, "8": 3, "8.0": 3, "16": 4, "16.0": 4, "32": 5, "32.0": 5, "64": 6, "64.0": 6}
GPU, NIC, BAD, INK, QUIET = "#2f6b1f", "#1d4f8c", "#b00020", "#1b1b1b", "#5f5f5f"
STYLE = (
    "text{font-family:system-ui,'DejaVu Sans',Arial,sans-serif;fill:#1b1b1b}"
    ".s{font-size:11px}.m{font-size:13px;font-weight:600}.l{font-size:20px;font-weight:600}.q{fill:#5f5f5f}"
    ".w{fill:#ffffff}.b{fill:#b00020;font-weight:600}"
)
Facts = t.Mapping[str, t.Any]
#: What XML has no place for, and a GPU's name may hold all the same.
_NO_TEXT = re.compile("[^\\x20-\ud7ff\ue000-\ufffd]")


class Group(t.NamedTuple):
    """What hangs behind one switch, or on the CPU itself (``switch`` "")."""

    switch: str
    gpus: t.List[str]
    nics: t.List[str]

    @property
    def width(self) -> int:
        return max(len(self.gpus), len(self.nics), 1) * (WIDE + GAP) - GAP + 2 * PAD


def draw(host: str, system: Node, topology: Facts) -> str:
    """The SVG file of a host: its tree and the ``topology`` that nccl_topology returned with it."""
    nodes = [(cpu.attributes.get("numaid", "-1"), _groups(cpu, topology)) for cpu in system.children]
    nodes = [(numa, groups) for numa, groups in nodes if groups]
    top, tiers = MARGIN + 62, 2 if any(group.nics for _numa, groups in nodes for group in groups) else 1
    inner = tiers * (HIGH + GAP) - GAP
    parts: t.List[str] = []
    centres: t.Dict[str, int] = {}
    left = MARGIN
    for numa, groups in nodes:
        width = sum(group.width + GAP for group in groups) - GAP + 2 * PAD
        height = 40 + 26 + inner + 2 * PAD + PAD
        parts.append(_box(left, top, width, height, "#f4f4f1", "#9a9a94"))
        label = f"NUMA node {numa}" if numa != "-1" else "NUMA node not told"
        parts.append(_text(left + PAD, top + 24, f"CPU, {label}", "m"))
        place = left + PAD
        for group in groups:
            parts += _group(group, place, top + 38, inner, topology, centres)
            place += group.width + GAP
        left += width + 2 * GAP
    bottom = top + 40 + 26 + inner + 3 * PAD
    width = max(left, 560) + MARGIN - 2 * GAP
    links, height = _nvlink(topology, centres, top + 38 + 26 + PAD + inner, bottom + 30, width)
    parts += links
    end = bottom + 30 + height
    parts.append(
        _text(
            MARGIN, end + 24, "A link's lanes and generation are what it runs at now; an idle GPU slows its own.", "s q"
        )
    )
    head = _text(MARGIN, MARGIN + 16, host, "l") + _text(MARGIN, MARGIN + 40, _summary(topology), "s q")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {end + 44}" width="{width}" height="{end + 44}"'
        f' role="img"><title>{escape(f"Topology of {host}")}</title><style>{STYLE}</style>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{head}{"".join(parts)}</svg>\n'
    )


def _groups(cpu: Node, topology: Facts) -> t.List[Group]:
    """The leaves by the outermost switch above them; a port of the CPU alone is no switch."""
    found: t.Dict[str, Group] = {}
    for above, node in cpu.parents():
        address = node.attributes.get("busid", "").lower()
        if node.tag != "pci" or any(child.tag == "pci" for child in node.children):
            continue
        bridges = [one.attributes.get("busid", "") for one in above if one.tag == "pci"]
        real = address in topology["gpus"] or address in topology["nics"]
        known = (topology["gpus"].get(address) or topology["nics"].get(address) or {}).get("parents") == bridges
        # In a real tree the first bridge is the CPU's port; in a published file it is the switch itself.
        switches = bridges[1:] if known else bridges
        if real:
            group = found.setdefault(switches[0] if switches else "", Group(switches[0] if switches else "", [], []))
            (group.gpus if address in topology["gpus"] else group.nics).append(address)
    return list(found.values())


def _group(
    group: Group, left: int, top: int, inner: int, topology: Facts, centres: t.Dict[str, int]
) -> t.Iterator[str]:
    height = 26 + inner + 2 * PAD
    bridge = topology["bridges"].get(group.switch, {})
    if group.switch:
        yield _box(left, top, group.width, height - PAD, "#e6e3d8", "#77756b")
        narrow = bool(bridge.get("width") and bridge["width_max"] and bridge["width"] < bridge["width_max"])
        label = f"{group.switch}, now x{bridge['width']}" if narrow else f"switch {group.switch}"
        yield _text(left + PAD, top + 18, label, "s b" if narrow else "s")
    else:
        yield _text(left + PAD, top + 18, "no switch shown", "s q")
    row = top + 26 + PAD // 2
    for number, address in enumerate(group.nics):
        yield from _device(left + PAD + number * (WIDE + GAP), row, address, topology["nics"][address], NIC)
    row = top + 26 + PAD // 2 + inner - HIGH
    for number, address in enumerate(group.gpus):
        place = left + PAD + number * (WIDE + GAP)
        centres[address] = place + WIDE // 2
        yield from _device(place, row, address, topology["gpus"][address], GPU)


def _device(left: int, top: int, address: str, facts: Facts, colour: str) -> t.Iterator[str]:
    if colour == GPU:
        label = "GPU" if facts.get("index") is None else f"GPU {facts['index']}"
    else:
        label = ", ".join(facts["names"][:2]) or "adapter"
    narrow = bool(facts["width"] and facts["width_max"] and facts["width"] < facts["width_max"])
    lanes = f"x{facts['width']}" if facts["width"] else "link unknown"
    if narrow:
        lanes += f" of x{facts['width_max']}"
    generation = GENERATIONS.get((facts["speed"] or "").split(" ", 1)[0])
    yield _box(left, top, WIDE, HIGH, colour, BAD if narrow else colour, 3 if narrow else 1)
    yield _text(left + 8, top + 20, label[:16], "m w")
    yield _text(left + 8, top + 37, address, "s w")
    yield _text(left + 8, top + 53, f"{lanes} Gen{generation}" if generation else lanes, "s w")


def _summary(topology: Facts) -> str:
    names: t.Dict[str, int] = {}
    for gpu in topology["gpus"].values():
        names[str(gpu.get("name") or "GPU")] = names.get(str(gpu.get("name") or "GPU"), 0) + 1
    words = [f"{count} x {name}" for name, count in names.items()]
    return ", ".join([*words, f"{len(topology['nics'])} RDMA adapters" if topology["nics"] else "no RDMA adapter"])


# ---- NVLink ----


def _nvlink(
    topology: Facts, centres: t.Mapping[str, int], gpus_end: int, top: int, width: int
) -> t.Tuple[t.List[str], int]:
    """What joins the GPUs, and its height: a bar where all pairs are alike, arcs for few pairs, else a table."""
    order, links = topology["mesh"]["order"], topology["mesh"]["links"]
    pairs = {
        (one, other): links[one][other]
        for one in range(len(links))
        for other in range(one + 1, len(links))
        if other < len(links[one])
    }
    if not pairs or any(value is None for value in pairs.values()):
        text = "NVLink could not be read" if len(topology["gpus"]) > 1 else ""
        return [_text(MARGIN, top + 8, text, "s b")], 14
    joined = {pair: value for pair, value in pairs.items() if value}
    if not joined:
        return [_text(MARGIN, top + 8, "No NVLink between these GPUs: they meet over PCIe.", "s q")], 14
    if set(pairs.values()) == set(joined.values()) and len(set(pairs.values())) == 1 and len(order) > 2:
        found = [_line(centres[address], gpus_end, centres[address], top) for address in order if address in centres]
        ends = [centres[address] for address in order if address in centres]
        left, right = min(ends, default=MARGIN) - WIDE // 2, max(ends, default=width) + WIDE // 2
        found.append(_box(left, top, right - left, 34, "#d8ead2", GPU))
        found.append(_text(left + PAD, top + 22, f"NVLink: {joined[0, 1]} links between each pair", "m"))
        return found, 34
    if len(joined) <= len(order):
        return _arcs(joined, [centres.get(address, MARGIN) for address in order], gpus_end, top), 34
    return _table(order, links, top, max(pairs.values()))


def _arcs(joined: t.Mapping[t.Tuple[int, int], int], centres: t.Sequence[int], gpus_end: int, top: int) -> t.List[str]:
    found = []
    for (one, other), count in joined.items():
        start, end = centres[one], centres[other]
        found.append(
            f'<path d="M{start} {gpus_end} C{start} {top + 26} {end} {top + 26} {end} {gpus_end}" fill="none"'
            f' stroke="{GPU}" stroke-width="2"/>'
        )
        found.append(_text((start + end) // 2 - 34, top + 24, f"NVLink x{count}", "s"))
    return found


def _table(
    order: t.Sequence[str], links: t.Sequence[t.Sequence[t.Any]], top: int, most: int
) -> t.Tuple[t.List[str], int]:
    found = [_text(MARGIN, top + 8, f"NVLinks of each pair; red is fewer than {most}", "m")]
    for one in range(len(order)):
        found.append(_text(MARGIN + 70 + 44 * one, top + 28, f"GPU {one}", "s q"))
        found.append(_text(MARGIN, top + 48 + 20 * one, f"GPU {one}", "s q"))
        for other in range(len(order)):
            value = links[one][other]
            text, style = ("", "s") if one == other else (str(value), "s b" if value < most else "s")
            found.append(_text(MARGIN + 78 + 44 * other, top + 48 + 20 * one, text, style))
    return found, 44 + 20 * len(order)


# ---- shapes ----


def escape(text: str) -> str:
    """A text as XML can hold it."""
    return saxutils.escape(_NO_TEXT.sub("?", text))


def _box(left: int, top: int, width: int, height: int, fill: str, stroke: str, thick: int = 1) -> str:
    return (
        f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="{stroke}"'
        f' stroke-width="{thick}"/>'
    )


def _line(left: int, top: int, right: int, bottom: int) -> str:
    return f'<path d="M{left} {top} L{right} {bottom}" stroke="{GPU}" stroke-width="2"/>'


def _text(left: int, top: int, text: str, style: str) -> str:
    return f'<text x="{left}" y="{top}" class="{style}">{escape(text)}</text>' if text else ""
