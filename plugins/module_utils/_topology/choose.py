# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which topology file NCCL needs on a host, and whether one that is named there is right. Pure.

None is needed where sysfs tells all: a file then only freezes what NCCL sees better itself. It is needed in a virtual
machine that hides its PCIe switches.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import shapes, sysfs, tree, validate
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.model import hides_switches

CHECK = "topology-file"
SHOWN = 3

Facts = t.Mapping[str, t.Any]
#: The text of a file on the host, None where it cannot be read.
Read = t.Callable[[str], t.Optional[str]]


class Named(t.NamedTuple):
    """A NCCL_TOPO_FILE of the user's: where it stands and what it names."""

    where: str
    path: str


class Choice(t.NamedTuple):
    """``system`` is what NCCL has to be given, None for nothing; ``path`` is a file of the user's that holds it."""

    finding: Finding
    shape: str = ""
    system: t.Optional[tree.Node] = None
    path: str = ""


def choose(wish: str, seen: Facts, topology: Facts, virtual: str, plugin: str, read: Read) -> Choice:
    """``wish``: ``auto``, ``none``, a shape's name or the path of a file on the host. ``virtual``: kind of the virtual
    machine, "" for none. ``plugin``: what brings a topology of its own, "" for nothing.

    Raises ValueError for a wish that is none of these.
    """
    if wish == "none":
        return Choice(_ok("no topology file is wanted"))
    if wish.startswith("/"):
        return _given(wish, seen, read)
    if wish != "auto":
        if wish not in shapes.BY_NAME:
            raise ValueError(
                f"topology_shape is {wish!r}; it is auto, none, the path of a file on the host, or one of"
                f" {', '.join(sorted(shapes.BY_NAME))}"
            )
        return _known(shapes.BY_NAME[wish], seen, asked=True)
    if not virtual:
        return Choice(_ok("sysfs tells NCCL all; the topology is a baseline only"))
    if seen["virtual_topology"]:
        return Choice(_ok(f"{sysfs.VIRTUAL_TOPOLOGY}, which NCCL reads by itself"))
    if plugin:
        return Choice(_ok(f"{plugin} gives NCCL its topology"))
    if not hides_switches(topology) or len(topology["gpus"]) < 2:
        return Choice(_ok("this virtual machine shows what NCCL looks for"))
    shape = shapes.recognise(seen)
    if shape is not None:
        return _known(shape, seen, asked=False)
    return Choice(
        Finding(
            CHECK,
            "warn",
            found=f"this {virtual} machine hides its PCIe switches, and no published topology file fits it",
            expected="a topology file of its provider, named by topology_shape",
            reason="NCCL takes every GPU to be equally far from every adapter, which costs bandwidth between hosts",
            policy="report",
        )
    )


def _ok(found: str) -> Finding:
    return Finding(CHECK, "ok", found=found, policy="report")


def _known(shape: shapes.Shape, seen: Facts, asked: bool) -> Choice:
    system = shapes.build(shape)
    wrong = [one.text for one in validate.problems(system, seen) if one.weight == "wrong"]
    if wrong:
        finding = Finding(
            CHECK,
            "fail" if asked else "warn",
            found=f"the topology of {shape.name} is not this machine's: {_few(wrong)}; it was not used",
            expected="every GPU at its place in it",
            action="fix configuration" if asked else "none",
            reason="" if asked else "name the provider's own file by topology_shape",
            policy="block" if asked else "report",
            evidence={"problems": wrong, "source": shape.source},
        )
        return Choice(finding, shape.name)
    doubts = [one.text for one in validate.problems(system, seen)]
    finding = Finding(
        CHECK,
        "ok",
        found=f"the published topology of {shape.name}" + (f"; {_few(doubts)}" if doubts else ""),
        policy="report",
        evidence={"doubts": doubts, "source": shape.source},
    )
    return Choice(finding, shape.name, system)


def _given(path: str, seen: Facts, read: Read) -> Choice:
    system, problem = load(path, seen, read)
    if system is None:
        finding = Finding(
            CHECK,
            "fail",
            found=f"{path}: {problem}; NCCL was not told to use it",
            expected="a topology file of this machine, as NCCL reads it",
            action="fix configuration",
        )
        return Choice(finding)
    return Choice(_ok(f"{path}, as topology_shape says" + (f"; {problem}" if problem else "")), "", system, path)


def load(path: str, seen: Facts, read: Read) -> t.Tuple[t.Optional[tree.Node], str]:
    """A file's tree where it can be used on this machine, and what is wrong or doubtful, "" for nothing."""
    text = read(path)
    if text is None:
        return None, "it is not there, or cannot be read"
    try:
        system = tree.parse(text)
    except tree.Unreadable as error:
        return None, f"NCCL stops at {error}"
    found = validate.problems(system, seen)
    wrong = [one.text for one in found if one.weight == "wrong"]
    return (None, _few(wrong)) if wrong else (system, _few([one.text for one in found]))


def theirs(named: t.Sequence[Named], choice: Choice, ours: str, seen: Facts, read: Read) -> Finding:
    """A NCCL_TOPO_FILE of the user's stays; whether it is right is said, and what ours would be."""
    one = named[0]
    found = f"{one.where} sets NCCL_TOPO_FILE={one.path}, which stays"
    if choice.system is not None:
        found += f"; ours would be {choice.path or ours} ({choice.shape or 'as topology_shape says'})"
    system, problem = load(one.path, seen, read)
    if system is None:
        return Finding(
            CHECK,
            "warn",
            found=f"{found}; it cannot be right: {problem}",
            expected="a topology file of this machine, or no NCCL_TOPO_FILE",
            action="fix configuration",
            policy="report",
        )
    return Finding(
        CHECK,
        "ok" if choice.system is None or tree.as_read(system) == tree.as_read(choice.system) else "warn",
        found=found + (f"; {problem}" if problem else ""),
        expected="one NCCL_TOPO_FILE",
        policy="report",
    )


def _few(items: t.Sequence[str]) -> str:
    return "; ".join(items[:SHOWN]) + (f"; and {len(items) - SHOWN} more" if len(items) > SHOWN else "")
