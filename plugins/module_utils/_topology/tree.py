# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NCCL's topology file: the tree that it holds, read with NCCL's own limits, and written.

Source: NVIDIA/nccl src/graph/xml.cc and xml.h at 081eafa, src/graph/topo.cc. NCCL does not read XML at large: one
space between attributes, no declaration, no tab, no line break within a tag. What its parser stops at ends every job
of the host, so that a file is read here just as strictly before NCCL is told to use it.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

#: Of NCCL's parser: characters of a name or a value, attributes and children of an element, elements of a file.
MAX_TEXT, MAX_ATTRIBUTES, MAX_CHILDREN, MAX_NODES = 255, 16, 640, 256
#: What may stand below what; NCCL ignores everything else with all below it.
CHILDREN: t.Mapping[str, t.Tuple[str, ...]] = {
    "": ("system",),
    "system": ("cpu",),
    "cpu": ("pci", "nic"),
    "pci": ("pci", "gpu", "nic", "pcilink"),
    "gpu": ("nvlink", "c2c"),
    "nic": ("net",),
}
#: Speed of a lane in units of 100 Mbit/s by how the text begins, in NCCL's order, and what it takes for every other.
SPEEDS = (
    ("2.5 GT/s", 15),
    ("5 GT/s", 30),
    ("8 GT/s", 60),
    ("16 GT/s", 120),
    ("32 GT/s", 240),
    ("5.0 GT/s PCIe", 30),
    ("8.0 GT/s PCIe", 60),
    ("16.0 GT/s PCIe", 120),
    ("32.0 GT/s PCIe", 240),
    ("64.0 GT/s PCIe", 480),
)
UNKNOWN_SPEED, UNKNOWN_WIDTH = 60, 16


class Unreadable(ValueError):
    """NCCL would stop at this file; the text says where and why."""


@dataclass
class Node:
    """One element. ``line`` is where it begins in the file that was read, 0 for one that we made."""

    tag: str
    attributes: t.Dict[str, str] = field(default_factory=dict)
    children: t.List[Node] = field(default_factory=list)
    line: int = 0

    def walk(self, *tags: str) -> t.Iterator[Node]:
        """Itself and all below it, those with one of ``tags`` where some are given."""
        if not tags or self.tag in tags:
            yield self
        for child in self.children:
            yield from child.walk(*tags)

    def parents(self) -> t.Iterator[t.Tuple[t.Tuple[Node, ...], Node]]:
        """Every element below it with those above it, the outermost (this one) first."""
        for child in self.children:
            yield (self,), child
            for above, below in child.parents():
                yield (self, *above), below


def write(node: Node, indent: int = 0) -> str:
    """The file's text, as NCCL writes its dumps."""
    head = " " * indent + f"<{node.tag}" + "".join(f' {key}="{value}"' for key, value in node.attributes.items())
    if not node.children:
        return head + "/>\n"
    inner = "".join(write(child, indent + 2) for child in node.children)
    return f"{head}>\n{inner}{' ' * indent}</{node.tag}>\n"


def parse(text: str) -> Node:
    """The ``system`` element of a file. Raises Unreadable where NCCL stops, or finds no system of its version."""
    reader = _Reader(text)
    root = Node("")
    reader.children(root)
    system = next(iter(root.children), None)
    if system is None:
        raise Unreadable("there is no <system> in it")
    if _number(system.attributes.get("version", "")) != 1:
        raise Unreadable(f'line {system.line}: <system> needs version="1", found {system.attributes.get("version")!r}')
    return system


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.nodes = text, 0, 0

    def fail(self, message: str) -> t.NoReturn:
        line = self.text.count("\n", 0, self.place) + 1
        raise Unreadable(f"line {line}: {message}")

    def next(self) -> str:
        if self.place >= len(self.text):
            self.fail("the file ends within an element")
        self.place += 1
        return self.text[self.place - 1]

    def until(self, ends: str, what: str) -> t.Tuple[str, str]:
        """The text up to one of ``ends``, and which one it was."""
        start = self.place
        while self.next() not in ends:
            if self.place - start >= MAX_TEXT:
                self.fail(f"{what} has more than {MAX_TEXT - 1} characters")
        return self.text[start : self.place - 1], self.text[self.place - 1]

    def tag(self) -> t.Optional[t.Tuple[str, t.Optional[Node]]]:
        """``open``, ``single`` or ``close`` with the element; None at the end of the file."""
        while self.place < len(self.text) and self.text[self.place] in " \n\r":
            self.place += 1
        if self.place >= len(self.text):
            return None
        if self.text[self.place] != "<":
            self.fail(f"expected '<', found {self.text[self.place]!r}")
        line = self.text.count("\n", 0, self.place) + 1
        if self.text.startswith("<!--", self.place):
            end = self.text.find("-->", self.place + 4)
            if end < 0:
                self.fail("the comment does not end")
            self.place = end + 3
            return self.tag()
        self.place += 1
        name, last = self.until(" >/\n\r", "a name")
        if not name and last == "/":
            name, last = self.until(" >/\n\r", "a name")
            if last != ">":
                self.fail(f"expected '>' after </{name}")
            return "close", Node(name, line=line)
        node = Node(name, line=line)
        while last == " ":
            last = self.attribute(node)
        kind = "open"
        if last == "/":
            kind, last = "single", self.next()
        if last != ">":
            self.fail(f"expected '>' in <{name}, found {last!r}: NCCL wants one line and single spaces")
        return kind, node

    def attribute(self, node: Node) -> str:
        """One attribute into ``node``; what follows it."""
        key, last = self.until("= >/\n\r", "an attribute")
        if last != "=":
            return last
        quote = self.next()
        if quote not in "\"'":
            self.fail(f"expected a quote after {key}=")
        value, _quote = self.until(quote, f"the value of {key}")
        node.attributes.setdefault(key, value)
        if len(node.attributes) > MAX_ATTRIBUTES:
            self.fail(f"<{node.tag}> has more than {MAX_ATTRIBUTES} attributes")
        return self.next()

    def children(self, parent: Node) -> None:
        """All up to the end of ``parent``."""
        known = CHILDREN.get(parent.tag, ())
        while True:
            found = self.tag()
            if found is None:
                if parent.tag:
                    self.fail(f"<{parent.tag}> of line {parent.line} does not end")
                return
            kind, node = found
            if node is None:
                return
            if kind == "close":
                if node.tag != parent.tag:
                    self.fail(f"</{node.tag}> where <{parent.tag}> of line {parent.line} ends")
                return
            if node.tag in known:
                self.nodes += 1
                parent.children.append(node)
                if self.nodes > MAX_NODES or len(parent.children) > MAX_CHILDREN:
                    self.fail(f"more than {MAX_NODES} elements")
            if kind == "open":
                self.children(node)
                if node.tag not in known:
                    node.children.clear()


def lane_speed(text: str) -> t.Optional[int]:
    """A lane's speed as NCCL takes it, None where it does not know the text (and then takes Gen3)."""
    return next((value for prefix, value in SPEEDS if text.startswith(prefix)), None)


def as_read(node: Node) -> t.Any:
    """What NCCL makes of an element and all below it: two files are the same to it where this is equal."""
    values: t.Dict[str, t.Any] = {}
    for key, text in node.attributes.items():
        if key == "link_speed":
            values[key] = lane_speed(text) or UNKNOWN_SPEED
        elif key == "link_width":
            values[key] = _number(text) or UNKNOWN_WIDTH
        elif key == "affinity":
            values[key] = mask(text)
        elif key in ("class", "tclass", "vendor", "busid", "target", "name", "arch", "host_hash"):
            values[key] = text.lower()
        else:
            number = _number(text)
            values[key] = text if number is None else number
    return [node.tag, values, [as_read(child) for child in node.children]]


def mask(text: str) -> t.Optional[int]:
    """CPUs of an affinity as a number with a bit a CPU: words of 32 bits, the most significant first; None for none."""
    try:
        found = 0
        for word in text.split(","):
            found = found << 32 | int(word, 16)
    except ValueError:
        return None
    return found


def _number(text: str) -> t.Optional[float]:
    """A number as C reads it: decimal, hexadecimal, or a fraction."""
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return None
