# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPU a product name or a PCI id stands for: exactly, by family, or not at all.

A name is compared after it was brought into one form (case, blanks, vendor,
``MIG`` and vGPU endings). What is in no list and in no family is unknown and
stays so: the nearest known ones are named, none is taken.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re

from . import model, version

_VENDOR = {"nvidia", "corporation", "tesla", "geforce"}
_MIG = re.compile(r"\s+mig\s+\S+$", re.IGNORECASE)
_VGPU = re.compile(r"^(?P<name>.*?\w)-(?:\d+-)?\d+[abcqv](?:me)?$", re.IGNORECASE)
_PCI = re.compile(r"(?:10de:|0x)?(?P<id>[0-9a-f]{4})(?:10de)?", re.IGNORECASE)
#: A100 or B200: all hexadecimal digits, but no GPU of NVIDIA has a device id that begins with a letter.
_PRODUCT = re.compile(r"[a-f]\d{3}", re.IGNORECASE)
_PCI_OF_OTHERS = re.compile(r"(?!10de)[0-9a-f]{4}:[0-9a-f]{4}", re.IGNORECASE)
_CC = re.compile(r"\d{1,2}\.\d")
NEAREST = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Wish:
    """A GPU as the user or the observation names it: a product name or PCI id; ``compute_capability`` where known."""

    name: str
    compute_capability: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """What a Wish stands for. ``how``: name, pci_id, series or given (the wish brought its compute capability).

    ``stated`` is true where the compute capability was stated with the wish.
    """

    wish: Wish
    gpu: model.Gpu
    how: str
    vgpu: bool = False
    stated: bool = False

    @property
    def label(self) -> str:
        """For a person: the name as given."""
        return self.wish.name if self.how != "pci_id" else f"{self.gpu.product} ({self.wish.name})"

    @property
    def cc(self) -> version.Version:
        """The compute capability as numbers."""
        return version.parse(self.gpu.compute_capability)


@dataclasses.dataclass(frozen=True, slots=True)
class Unknown:
    """A Wish that stands for nothing known; ``nearest`` are products that look like it, as text."""

    wish: Wish
    nearest: tuple[str, ...]
    hint: str = ""


def normal(name: str) -> str:
    """The name in the form in which names are compared: ``Tesla V100-SXM2-32GB`` as ``v100 sxm2 32gb``."""
    words = re.sub(r"[^a-z0-9+]+", " ", name.lower().replace("(tm)", " ").replace("(r)", " ")).split()
    while words and words[0] in _VENDOR:
        words.pop(0)
    return " ".join(words)


def find(wish: Wish, data: model.Data) -> Match | Unknown:
    """The GPU that the wish stands for."""
    name = wish.name.strip()
    if not name and not wish.compute_capability:
        return Unknown(wish, (), "the name is empty")
    match = _by_name(wish, data) if _PRODUCT.fullmatch(name) or not _PCI.fullmatch(name) else _by_pci(wish, data)
    return _with_capability(wish, match, data) if wish.compute_capability else match


@functools.lru_cache(maxsize=4)
def _tables(data: model.Data) -> tuple[dict[str, model.Gpu], dict[str, list[model.Gpu]]]:
    names: dict[str, model.Gpu] = {}
    ids: dict[str, list[model.Gpu]] = {}
    for gpu in data.gpus:
        for name in gpu.names:
            names.setdefault(normal(name), gpu)
        for pci_id in gpu.pci_ids:
            ids.setdefault(pci_id, []).append(gpu)
    return names, ids


@functools.lru_cache(maxsize=4)
def _series(data: model.Data) -> tuple[tuple[re.Pattern[str], model.Gpu], ...]:
    return tuple((re.compile(row.pattern), row.gpu) for row in data.series)


@functools.lru_cache(maxsize=1024)
def _by_name(wish: Wish, data: model.Data) -> Match | Unknown:
    names, _ids = _tables(data)
    name = _MIG.sub("", wish.name.strip())
    if gpu := names.get(normal(name)):
        return Match(wish, gpu, "name")
    if virtual := _VGPU.fullmatch(name):
        # GRID A100-10C, NVIDIA A40-48Q: a slice of the product before the hyphen.
        whole = re.sub(r"^(nvidia )?grid ", "", virtual["name"], flags=re.IGNORECASE)
        found = _by_name(Wish(re.sub("(?<=[0-9])d(x)?$", "", whole, flags=re.IGNORECASE)), data)
        if isinstance(found, Match):
            return dataclasses.replace(found, wish=wish, vgpu=True)
    for pattern, gpu in _series(data):
        if pattern.fullmatch(normal(name)):
            product, fabric = normal(name).upper(), gpu.fabric or _fabric(normal(name))
            return Match(wish, dataclasses.replace(gpu, product=product, fabric=fabric), "series")
    if _PCI_OF_OTHERS.fullmatch(name):
        return Unknown(wish, (), "this PCI id is not one of NVIDIA's (10de)")
    near = difflib.get_close_matches(normal(name), names, n=NEAREST, cutoff=0.6)
    return Unknown(wish, tuple(names[key].names[0] for key in near))


def _fabric(name: str) -> str:
    """What connects the GPUs of a product of a series that comes on NVSwitch boards and without.

    The form decides; where the name has none it is not known, and never taken for a board without switches.
    """
    if re.search(r"\b(pcie|nvl|pci|lc)\b", name):
        return "none"
    if re.search(r"\b(sxm\d?|hgx|hbm3e?)\b", name):
        return "nvswitch"
    return "unknown"


def _by_pci(wish: Wish, data: model.Data) -> Match | Unknown:
    _names, ids = _tables(data)
    match = _PCI.fullmatch(wish.name.strip())
    pci_id = match["id"].lower() if match else ""
    if found := ids.get(pci_id):
        product = " or ".join(gpu.product for gpu in found)
        return Match(wish, dataclasses.replace(found[0], product=product), "pci_id")
    number = int(pci_id, 16)
    near = sorted(ids, key=lambda known: abs(int(known, 16) - number))[:NEAREST]
    chips = [row for row in data.chips if row.low <= number <= row.high]
    hint = f"chips around this id have compute capability {chips[0].compute_capability}" if chips else ""
    return Unknown(wish, tuple(f"{key} {ids[key][0].product}" for key in near), hint)


@functools.lru_cache(maxsize=4)
def _switched(data: model.Data) -> frozenset[str]:
    """Compute capabilities of which some products need a fabric."""
    return frozenset(gpu.compute_capability for gpu in data.gpus if gpu.fabric != "none")


def _with_capability(wish: Wish, match: Match | Unknown, data: model.Data) -> Match | Unknown:
    """The stated compute capability decides; what else is known of the product stays."""
    if not _CC.fullmatch(wish.compute_capability):
        return Unknown(wish, (), f"compute capability {wish.compute_capability!r} is not of the form 9.0")
    if isinstance(match, Unknown):
        gpu = model.Gpu(
            product=wish.name or f"compute capability {wish.compute_capability}",
            names=(),
            pci_ids=(),
            compute_capability=wish.compute_capability,
            kind="unknown",
            fabric="unknown" if wish.compute_capability in _switched(data) else "none",
            source="stated with the GPU",
            confidence="read",
        )
        return Match(wish, gpu, "given", stated=True)
    if match.gpu.compute_capability != wish.compute_capability:
        return Unknown(
            wish,
            (),
            f"{match.gpu.product} has compute capability {match.gpu.compute_capability}, "
            f"stated is {wish.compute_capability}",
        )
    return dataclasses.replace(match, stated=True)


def pci_number(name: str) -> int | None:
    """The device id of a PCI id as a number, None where the text is none."""
    match = _PCI.fullmatch(name.strip())
    return int(match["id"], 16) if match else None
