# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a topology file says of this machine what is so: an attribute in it goes before what NCCL would find.

A ``wrong`` place gives NCCL a wrong topology without a word, so that such a file is not used; a ``doubt`` is said.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import sysfs
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.tree import Node, lane_speed, mask

_BUSID = re.compile(r"^[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]$")
WIDTHS = ("1", "2", "4", "8", "16")


class Problem(t.NamedTuple):
    """``weight`` is wrong or doubt; ``text`` names the place and what is known better."""

    weight: str
    text: str


def problems(system: Node, seen: t.Mapping[str, t.Any]) -> t.List[Problem]:
    """What is wrong with a file on this machine, nothing where it can be used as it is."""
    places: t.Dict[str, t.List[t.Tuple[Node, ...]]] = {}
    found: t.List[Problem] = []
    for above, node in system.parents():
        if node.tag != "pci":
            continue
        busid = node.attributes.get("busid", "")
        if not _BUSID.match(busid):
            found.append(Problem("wrong", f"busid {busid!r} is not of the form DDDD:BB:DD.F, by which NCCL finds it"))
        places.setdefault(busid.lower(), []).append(above)
        found += _link(busid, node)
    found += [Problem("wrong", f"{busid} stands in it {len(where)} times") for busid, where in places.items()
              if len(where) > 1]  # fmt: skip
    found += _presence(system, places, seen)
    for address, where in places.items():
        if address in seen["devices"]:
            found += _numa(address, where[0], seen)
    return [*found, *_affinity(system, seen), *_partners(places, seen)]


def _link(busid: str, node: Node) -> t.Iterator[Problem]:
    speed, width = node.attributes.get("link_speed"), node.attributes.get("link_width")
    if speed is not None and lane_speed(speed) is None:
        yield Problem("doubt", f"{busid}: NCCL does not know link_speed {speed!r} and takes it for Gen3")
    if width is not None and width not in WIDTHS:
        yield Problem("doubt", f"{busid}: link_width {width!r} is none of {', '.join(WIDTHS)}; NCCL takes 0 for 16")


def _presence(system: Node, places: t.Mapping[str, t.Any], seen: t.Mapping[str, t.Any]) -> t.Iterator[Problem]:
    for kind, word, weight in (("gpu", "GPU", "wrong"), ("nic", "RDMA adapter", "doubt")):
        for address in sysfs.of_kind(seen, kind):
            if address not in places:
                yield Problem(weight, f"the {word} at {address} is not in it")
    named = {
        (node.attributes.get("busid") or "").lower()
        for _above, node in system.parents()
        if node.tag == "pci" and (node.attributes.get("class", "").startswith("0x03") or _has(node, "gpu"))
    }
    for address in sorted(named - set(sysfs.of_kind(seen, "gpu"))):
        yield Problem("wrong", f"it has a GPU at {address}, where this machine has none")


def _has(node: Node, tag: str) -> bool:
    return any(child.tag == tag for child in node.children)


def _numa(address: str, above: t.Sequence[Node], seen: t.Mapping[str, t.Any]) -> t.Iterator[Problem]:
    known = seen["devices"][address]["numa_node"]
    said = next((node.attributes.get("numaid") for node in above if node.tag == "cpu"), None)
    if known is not None and said is not None and said != str(known):
        yield Problem("wrong", f"{address} hangs on NUMA node {said} in it, and on {known} by sysfs")


def _affinity(system: Node, seen: t.Mapping[str, t.Any]) -> t.Iterator[Problem]:
    masks = {}
    for node in system.children:
        text = node.attributes.get("affinity")
        if text is None:
            continue
        value = mask(text)
        if value is None:
            yield Problem("wrong", f"affinity {text!r} of NUMA node {node.attributes.get('numaid')} is no mask of CPUs")
        else:
            masks[node.attributes.get("numaid", "")] = value
    for numaid, value in masks.items():
        known = mask(seen["nodes"].get(numaid, {}).get("cpumap") or "")
        if known and value and known & value == 0:
            yield Problem("doubt", f"NUMA node {numaid} has other CPUs here than its affinity names")
    for one, other in ((one, other) for one in masks for other in masks if one < other):
        if masks[one] & masks[other]:
            yield Problem("doubt", f"NUMA nodes {one} and {other} share CPUs in it")
    online = cpus(seen.get("online") or "")
    if masks and len(masks) == len(system.children) and online & ~_union(masks.values()):
        yield Problem("doubt", "its affinity masks leave out CPUs that are online")


def _union(masks: t.Iterable[int]) -> int:
    found = 0
    for value in masks:
        found |= value
    return found


def cpus(text: str) -> int:
    """A list of CPUs (``0-3,8``) as a number with a bit a CPU; 0 for a text that is none."""
    found = 0
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            return 0
        for number in range(int(match[1]), min(int(match[2] or match[1]), 1 << 14) + 1):
            found |= 1 << number
    return found


def _partners(places: t.Mapping[str, t.Sequence[t.Sequence[Node]]], seen: t.Mapping[str, t.Any]) -> t.Iterator[Problem]:
    """Where bridges have GPUs and adapters below them, no GPU stands alone."""
    bridges = {
        kind: {
            address: {id(node) for node in places[address][0] if node.tag == "pci"}
            for address in sysfs.of_kind(seen, kind)
            if address in places
        }
        for kind in ("gpu", "nic")
    }
    shared: t.Set[int] = set()
    for above in bridges["nic"].values():
        shared |= above
    if len(bridges["nic"]) < len(bridges["gpu"]) // 2 or not any(shared & above for above in bridges["gpu"].values()):
        return
    for address, above in bridges["gpu"].items():
        if not above & shared:
            yield Problem("doubt", f"the GPU at {address} shares no bridge with an adapter in it, as the others do")
