# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the compatibility data says, as records: one class a kind of row in ``data/*.yml``.

Every record has ``source`` (where it was read), ``confidence`` (``read`` or
``inferred``) and ``inferred``, the names of its cells that are deduction.
Versions are text as published; ``version.parse`` compares them. A record
is equal only to itself.
"""

from __future__ import annotations

import dataclasses
import typing as t


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Record:
    """Where a row comes from."""

    source: str
    confidence: str
    inferred: tuple[str, ...] = ()

    def is_inferred(self, cell: str) -> bool:
        """Whether this cell was not read."""
        return self.confidence == "inferred" or cell in self.inferred


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Variant(Record):
    """One build of a torch release: ``cu128``. ``archs``: SM versions of its code by machine architecture."""

    name: str
    cuda: str
    archs: t.Mapping[str, tuple[int, ...]]
    cudnn: str
    nccl: str
    glibc: t.Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release(Record):
    """A release of torch. ``wheels``: Python tags (``3.12``, ``3.13t``) by machine architecture."""

    version: str
    date: str
    requires_python: str
    default: str
    default_on_aarch64: str
    wheels: t.Mapping[str, tuple[str, ...]]
    glibc: t.Mapping[str, str]
    torchvision: str
    torchaudio: str
    triton: str
    numpy: str
    cxx11_abi: int
    pins: t.Mapping[str, str]
    variants: t.Mapping[str, Variant]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sass:
    """Native code for ``sm`` runs on devices from ``low`` to below ``high``, or on ``only``; less ``excepted``."""

    sm: int
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()
    only: tuple[tuple[int, ...], ...] = ()
    excepted: tuple[tuple[int, ...], ...] = ()
    excepted_before_cuda: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CpuBuild(Record):
    """The build of torch without CUDA."""

    arches: tuple[str, ...]
    aarch64_label_since: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Toolkit(Record):
    """A CUDA toolkit: ``driver`` is the one that it comes with, ``cc_*`` what it compiles for."""

    version: str
    driver: str
    cc_min: str
    cc_max: str
    gcc_max: str = ""
    lacks: tuple[str, ...] = ()
    published: bool = True
    updates: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CudaMajor(Record):
    """The oldest driver that runs every toolkit of this major."""

    major: int
    driver: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ForwardCompat(Record):
    """``base`` is the oldest branch on which cuda-compat of these toolkits is supported."""

    cuda: str
    cuda_to: str
    base: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Branch(Record):
    """A driver branch. ``first`` and ``last`` are known releases, "" where none was read.

    ``kernel``: of an ended branch, the newest kernel that its last release can know.
    """

    branch: int
    kind: str
    cuda: str
    first: str
    last: str
    eol: str
    supported: bool
    cc_min: str
    cc_max: str
    flavours: tuple[str, ...]
    kernel: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Architecture(Record):
    """GPUs from ``low`` to below ``high`` compute capability, with their windows of drivers and toolkits."""

    name: str
    low: tuple[int, ...]
    high: tuple[int, ...]
    flavours: tuple[str, ...]
    first_driver: int = 0
    last_driver: int = 0
    last_toolkit_major: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gpu(Record):
    """A GPU product. ``fabric``: none, nvswitch, nvlink5, rack or unknown.

    ``kind``: datacenter, workstation, geforce, display.
    ``details``: figures of the 47 that the page of GPUs shows (memory_gb, tdp_w, dense_tflops, nvlink, mig ...).
    """

    product: str
    names: tuple[str, ...]
    pci_ids: tuple[str, ...]
    compute_capability: str
    kind: str
    fabric: str = "none"
    grace: bool = False
    driver_min: str = ""
    details: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series(Record):
    """A family of products by a pattern of the normalised name."""

    pattern: str
    gpu: Gpu


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chips:
    """PCI device ids (numbers, inclusive) of chips with one compute capability: a hint, never an answer."""

    low: int
    high: int
    compute_capability: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class System(Record):
    """An operating system. ``repository`` and ``archive`` are "" where it has none.

    ``kernel``: that the release came with, where its packages of modules tell it from newer ones.
    """

    id: str
    version: str
    family: str
    glibc: str
    python: str
    repository: str = ""
    archive: str = ""
    kernel: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Archive(Record):
    """A branch that a distribution carries itself; ``version`` where it is exactly one."""

    name: str
    branch: int
    flavours: tuple[str, ...]
    signed: bool
    version: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackageRow(Record):
    """Names of packages for branches ``low`` to ``high`` of one family and origin; ``lists`` by what they are for."""

    family: str
    origin: str
    flavour: str = ""
    low: int = 0
    high: int = 10**6
    repositories: tuple[str, ...] = ()
    build: str = ""
    stream: str = ""
    lock: str = ""
    lists: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repository(Record):
    """A repository of NVIDIA: which key signs it, and the oldest branch it carries."""

    name: str
    key: str
    branch_min: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Key(Record):
    """A signing key. ``fingerprint`` is "" where it was not read."""

    id: str
    file: str
    fingerprint: str
    state: str
    refused_from: str = ""
    refused_by: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelRow(Record):
    """Drivers from ``driver_min`` to ``driver_max`` do not build from kernel ``kernel_min`` on.

    ``fixed``: the release of the same branch that does, "" where none was read.
    """

    driver_min: str
    driver_max: str
    kernel_min: str
    kernel_contains: str = ""
    fixed: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CudnnRow(Record):
    """cuDNN from ``version`` on needs compute capability ``cc_min``."""

    version: str
    cc_min: str
    says: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NcclRow(Record):
    """NCCL from ``low`` to below ``high`` has the fault that ``says`` names."""

    low: str
    high: str
    says: str
    arch: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Data:
    """All of it. Mappings keep the order of the files; ``releases`` and ``branches`` go from old to new."""

    as_of: str
    index_url: str
    sass_source: str
    sass: t.Mapping[int, Sass]
    cpu: CpuBuild
    numpy_source: str
    releases: t.Mapping[str, Release]
    toolkits: t.Mapping[str, Toolkit]
    majors: t.Mapping[int, CudaMajor]
    forward_compat: tuple[ForwardCompat, ...]
    architectures: tuple[Architecture, ...]
    branches: t.Mapping[int, Branch]
    gpus: tuple[Gpu, ...]
    series: tuple[Series, ...]
    chips: tuple[Chips, ...]
    systems: tuple[System, ...]
    same_as: t.Mapping[str, str]
    archives: tuple[Archive, ...]
    driver_packages: tuple[PackageRow, ...]
    fabric_packages: tuple[PackageRow, ...]
    library_packages: tuple[PackageRow, ...]
    repository_url: str
    repository_arches: t.Mapping[str, str]
    repositories: t.Mapping[str, Repository]
    keys: t.Mapping[str, Key]
    sqv_systems: tuple[tuple[str, str], ...]
    kernels: tuple[KernelRow, ...]
    open_kernel_min: str
    cudnn: tuple[CudnnRow, ...]
    nccl: tuple[NcclRow, ...]
