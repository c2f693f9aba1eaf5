# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judge of plans: NVIDIA's and PyTorch's rules, written down a second time, plainly and without the resolver.

It knows nothing of the collection's data or code. ``judge`` answers with the rules a plan breaks, ``possible`` tries
every wheel with every driver and both kernel modules, so that a conflict can be held against what there is.
Numbers are those of NVIDIA's toolkit, driver and architecture matrix, of the release notes' tables, of the MIG guide
(least driver of a GPU) and of the README of NVIDIA's open kernel modules; wheels are in ``published.yml``.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import re
import typing as t

import yaml

Version = tuple[int, ...]

#: Least driver of a CUDA major, by minor-version compatibility (release notes, table 2).
FLOOR: dict[int, Version] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
#: CUDA that a branch is built with; a runtime of a newer major needs forward compatibility.
BRANCH_CUDA = {
    450: 11, 470: 11, 515: 11, 520: 11, 525: 12, 530: 12, 535: 12, 545: 12, 550: 12, 555: 12, 560: 12, 565: 12,
    570: 12, 575: 12, 580: 13, 590: 13, 595: 13, 610: 13, 615: 13, 620: 13,
}  # fmt: skip
#: Branches that get fixes on 2026-12-01 (drivers documentation of 620, table 2).
SUPPORTED = {580, 595, 620}
#: What can be installed on Ubuntu 24.04, on which every question is asked: NVIDIA's repository begins with 550,
#: Ubuntu itself carries 470 and 535.
OFFERED = {branch for branch in BRANCH_CUDA if branch >= 550 or branch in (470, 535)}
#: torch's DEVICE_REQUIREMENT: what runs machine code of an architecture: from, below, and integrated parts that do not.
RUNS: dict[int, tuple[int, int, frozenset[int]]] = {
    37: (37, 40, frozenset()),
    50: (50, 60, frozenset({53})),
    60: (60, 70, frozenset({62})),
    70: (70, 80, frozenset({72})),
    75: (75, 80, frozenset()),
    80: (80, 90, frozenset({87})),
    86: (86, 90, frozenset({87})),
    90: (90, 100, frozenset()),
    100: (100, 110, frozenset({101})),
    120: (120, 130, frozenset()),
}


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU as nvidia-smi names it; ``cc`` is ten times the capability, ``least`` the least driver that knows it."""

    name: str
    cc: int
    least: Version = ()
    open_only: bool = False
    switch_board: bool = False
    data_centre: bool = False
    arm: bool = False

    @property
    def first_branch(self) -> int:
        """First branch of the architecture."""
        if self.least:
            return self.least[0]
        return 570 if self.cc >= 100 else 520 if self.cc >= 89 else 450

    @property
    def last_branch(self) -> int:
        """Last branch of the architecture: 470 for Kepler, 580 for Maxwell, Pascal and Volta."""
        return 470 if self.cc < 50 else 580 if self.cc < 75 else 9999

    def flavours(self, branch: int) -> set[str]:
        """Kernel modules that NVIDIA's packages of that branch have for it."""
        found = set()
        if self.cc >= 75 and branch >= 515:
            found.add("open")
        if self.cc < 100 and not self.open_only and branch < 615:
            found.add("proprietary")
        return found


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("NVIDIA GeForce GTX 980 Ti", 52),
        Gpu("Tesla P100-PCIE-16GB", 60, data_centre=True),
        Gpu("NVIDIA GeForce GTX 1080 Ti", 61),
        Gpu("Tesla V100-SXM2-32GB", 70, data_centre=True),
        Gpu("Tesla T4", 75, data_centre=True),
        Gpu("NVIDIA A100-SXM4-80GB", 80, (450, 80, 2), switch_board=True, data_centre=True),
        Gpu("NVIDIA A100 80GB PCIe", 80, (450, 80, 2), data_centre=True),
        Gpu("NVIDIA A10", 86, data_centre=True),
        Gpu("NVIDIA GeForce RTX 3090", 86),
        Gpu("NVIDIA L40S", 89, data_centre=True),
        Gpu("NVIDIA GeForce RTX 4090", 89),
        Gpu("NVIDIA H100 80GB HBM3", 90, (525, 85, 12), switch_board=True, data_centre=True),
        Gpu("NVIDIA H200", 90, (550, 90, 7), switch_board=True, data_centre=True),
        Gpu("NVIDIA GH200 480GB", 90, (535,), open_only=True, data_centre=True, arm=True),
        Gpu("NVIDIA B200", 100, (570, 133, 20), switch_board=True, data_centre=True),
        Gpu("NVIDIA B300 SXM6 AC", 103, (580, 82, 7), switch_board=True, data_centre=True),
        Gpu("NVIDIA GeForce RTX 5090", 120),
        Gpu("NVIDIA RTX PRO 6000 Blackwell Server Edition", 120, (575, 51, 3), data_centre=True),
        Gpu("NVIDIA GB10", 121, (580,), arm=True),
    )
}


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked of the lookup, in its own words."""

    torch: str
    gpus: tuple[str, ...]
    cuda: str = "auto"
    arch: str = "x86_64"
    python: str = "3.12"
    glibc: str = "2.39"
    driver: str = ""
    driver_owner: str = "nobody"
    driver_policy: str = "auto"
    kernel_module: str = "auto"
    forward_compat: bool = False

    def options(self) -> dict[str, t.Any]:
        """Options of the lookup, Ubuntu 24.04 around them."""
        asked = dataclasses.asdict(self)
        del asked["torch"]
        asked["gpus"] = list(self.gpus)
        return {
            "os_id": "ubuntu",
            "os_version": "24.04",
            "kernel": "6.8.0-90-generic",
            "virtualization": "none",
            "secure_boot": "disabled",
            **asked,
        }


@functools.lru_cache(maxsize=1)
def published() -> dict[str, dict[str, t.Any]]:
    """Releases by version, from ``published.yml``."""
    path = pathlib.Path(__file__).resolve().parent.parent / "published.yml"
    return t.cast("dict[str, dict[str, t.Any]]", yaml.safe_load(path.read_text(encoding="utf-8"))["releases"])


@functools.cache
def numbers(text: str) -> Version:
    """580.95.05 as (580, 95, 5)."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


def cuda_of(variant: str) -> Version:
    """cu128 as (12, 8)."""
    return int(variant[2:4]), int(variant[4:])


def serves(architectures: t.Iterable[int], cc: int, cuda: Version) -> bool:
    """Whether machine code for one of these architectures runs on that capability (R7, R8: no PTX is counted on)."""
    for code in architectures:
        if code == 110:
            if cc in (101, 110):
                return True
            continue
        low, high, excepted = RUNS[code]
        if low <= cc < high and (cc not in excepted or (cuda >= (13, 2) and code in (70, 80, 86))):
            return True
    return False


def wheel_faults(asked: Question, variant: str) -> list[str]:
    """Rules that the wheel of this variant breaks for the host, whatever its driver."""
    release = published()[asked.torch]
    listed = release["cuda"].get(variant)
    if listed is None:
        return [f"R22 {variant} of torch {asked.torch} was not published"]
    faults = []
    if not listed[asked.arch]:
        return [f"R24 torch {asked.torch}+{variant} has no wheel for {asked.arch}"]
    for name in asked.gpus:
        if GPUS[name].arm and asked.arch != "aarch64":
            faults.append(f"R24 {name} is part of an Arm machine")
        if not serves(listed[asked.arch], GPUS[name].cc, cuda_of(variant)):
            faults.append(f"R7 no kernels for {name} in {variant}")
    if "cp" + asked.python.replace(".", "") not in release[f"python_{asked.arch}"]:
        faults.append(f"R25 no wheel for Python {asked.python}")
    floor = release["floor"].get(variant, release["floor"][asked.arch])
    if numbers(asked.glibc) < numbers(floor):
        faults.append(f"R26 glibc {asked.glibc} is older than {floor}")
    return faults


def driver_faults(asked: Question, variant: str, branch: int, version: str, flavour: str) -> list[str]:
    """Rules that the driver breaks. Without a version the branch is judged by its number alone."""
    faults = []
    cuda = cuda_of(variant)[0]
    least = FLOOR[cuda]
    have = numbers(version) if version else (branch, 9999)
    if have < least:
        data_centre = all(GPUS[name].data_centre for name in asked.gpus)
        base = 470 if cuda == 12 else 535 if cuda_of(variant) < (13, 4) else 580
        if not (asked.forward_compat and data_centre and branch >= base):
            faults.append(f"R1 driver {version or branch} is below {least} of CUDA {cuda}")
    for name in asked.gpus:
        gpu = GPUS[name]
        if branch > gpu.last_branch:
            faults.append(f"R9 branch {branch} dropped {name}")
        if branch < gpu.first_branch or (gpu.least and have < gpu.least):
            faults.append(f"R9 driver {version or branch} does not know {name}")
        if flavour not in gpu.flavours(branch):
            faults.append(f"R11-R13 branch {branch} has no {flavour} module for {name}")
    return faults


def candidates(asked: Question) -> list[tuple[int, str]]:
    """Drivers within the user's wish, as branch and version: version "" for the newest of a branch.

    Without the user's word nothing is downgraded, and a driver that is not ours stays.
    """
    found = [(numbers(asked.driver)[0], asked.driver)] if asked.driver else []
    least = found[0][0] if found else 0
    ours = asked.driver_owner in ("nobody", "package") and asked.driver_policy not in ("keep", "external")
    if asked.driver_policy.isdigit():
        branch = int(asked.driver_policy)
        return [pair for pair in found if pair[0] == branch] + ([(branch, "")] if ours and branch in OFFERED else [])
    return found + ([(branch, "") for branch in sorted(OFFERED) if branch >= least] if ours else [])


def possible(asked: Question) -> list[str]:
    """Every plan within the wish that breaks no rule, as text: the exhaustive answer."""
    found = []
    for variant in published()[asked.torch]["cuda"]:
        if asked.cuda not in ("auto", variant) or wheel_faults(asked, variant):
            continue
        for branch, version in candidates(asked):
            for flavour in ("open", "proprietary"):
                if asked.kernel_module not in ("auto", flavour):
                    continue
                if not driver_faults(asked, variant, branch, version, flavour):
                    found.append(f"{variant} on {version or branch} {flavour}")
    return found


def judge(asked: Question, plan: t.Mapping[str, t.Any]) -> list[str]:
    """Rules that a plan of status ok breaks; empty for a good plan."""
    torch, driver = plan["torch"], plan["driver"]
    variant = torch["variant"]
    faults = wheel_faults(asked, variant)
    if torch["version"] != asked.torch:
        faults.append(f"torch {torch['version']} was not asked for")
    if asked.cuda not in ("auto", variant):
        faults.append(f"{asked.cuda} was asked for, {variant} planned")
    if faults:
        return faults
    release = published()[asked.torch]
    version = driver["version"] or ""
    branch = int(driver["branch"])
    # Which module a kept driver came with may be unknown: then one must do.
    flavours = ("open", "proprietary") if driver["kernel_module"] == "unknown" else (driver["kernel_module"],)
    faults += min((driver_faults(asked, variant, branch, version, flavour) for flavour in flavours), key=len)
    if version and numbers(version)[0] != branch:
        faults.append(f"version {version} is not of branch {branch}")
    stays = driver["action"] in ("keep", "external", "none")
    if asked.kernel_module not in ("auto", driver["kernel_module"]) and not (stays and len(flavours) > 1):
        faults.append(f"{asked.kernel_module} modules were asked for")
    # Of a driver of which only the branch was told no version is known.
    if stays and version != ("" if asked.driver.isdigit() else asked.driver):
        faults.append(f"R18 driver {asked.driver!r} is said to stay as {version!r}")
    if not stays and (asked.driver_policy in ("keep", "external") or asked.driver_owner not in ("nobody", "package")):
        faults.append(f"the driver is not ours, yet its action is {driver['action']}")
    if asked.driver_policy.isdigit() and branch != int(asked.driver_policy):
        faults.append(f"branch {asked.driver_policy} was asked for")
    if not stays and not asked.driver_policy.isdigit() and branch not in SUPPORTED:
        faults.append(f"R34 branch {branch} gets no fixes")
    if numbers(plan["cuda"]["runtime"])[:2] != cuda_of(variant):
        faults.append(f"R31 runtime {plan['cuda']['runtime']} is not that of {variant}")
    toolkit = plan["cuda"].get("toolkit")
    if toolkit and numbers(toolkit)[0] != cuda_of(variant)[0]:
        faults.append(f"R31 toolkit {toolkit} is of another major than {variant}")
    cudnn = plan["cudnn"]["version"]
    if cudnn and numbers(cudnn) >= (9, 11) and min(GPUS[name].cc for name in asked.gpus) < 75:
        faults.append(f"R30 cuDNN {cudnn} has no code for these GPUs")
    if variant == release["default"] and asked.arch == "x86_64":
        for part in ("cudnn", "nccl"):
            if plan[part]["version"] != release["pins"][part]:
                faults.append(f"R22 {part} {plan[part]['version']} is not the wheel's {release['pins'][part]}")
    if torch["torchvision"] not in release["torchvision"]:
        faults.append(f"R29 torchvision {torch['torchvision']} does not go with torch {asked.torch}")
    if torch["torchvision"] == "0.29.1" and asked.python == "3.15":
        faults.append("R25 torchvision 0.29.1 has no wheel for Python 3.15")
    if torch["torchaudio"] not in release["torchaudio"]:
        faults.append(f"R29 torchaudio {torch['torchaudio']} does not go with torch {asked.torch}")
    if torch["triton"] is not None and numbers(torch["triton"])[:2] != numbers(release["pins"]["triton"])[:2]:
        faults.append(f"R28 triton {torch['triton']} is not {release['pins']['triton']}")
    if asked.cuda == "auto" and variant in release.get("unseen", ()):
        faults += [
            f"R22 {variant} was not seen on the index, {other} would do"
            for other in release["cuda"]
            if other not in release["unseen"]
            and not wheel_faults(asked, other)
            and not any(driver_faults(asked, other, branch, version, flavour) for flavour in flavours)
        ]
    return faults + fabric_faults(asked, plan)


def fabric_faults(asked: Question, plan: t.Mapping[str, t.Any]) -> list[str]:
    """R17 to R19, from the products alone: the questions of this judge state no NVSwitch."""
    fabric = plan["fabric_manager"]
    faults = []
    if fabric["required"]:
        if not any(GPUS[name].switch_board for name in asked.gpus):
            faults.append("R17 fabric manager without an NVSwitch")
        if fabric["version"] != plan["driver"]["version"]:
            faults.append(f"R18 fabric manager {fabric['version']} beside driver {plan['driver']['version']}")
        if fabric["nvlsm"] != any(GPUS[name].cc in (100, 103) for name in asked.gpus):
            faults.append("R19 nvlsm belongs to NVLink 5 alone")
    elif any(GPUS[name].switch_board for name in asked.gpus):
        faults.append("R17 an NVSwitch board without fabric manager")
    return faults
