# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read releases of torch from the package index and bring them into the compatibility data.

    ./run python tools/refresh_compat.py                     releases newer than the data: shown, with what to decide
    ./run python tools/refresh_compat.py --write             the same, appended to data/torch.yml
    ./run python tools/refresh_compat.py --check 2.10 2.15   releases that the data has: each difference, exit 1
    ./run python tools/refresh_compat.py --supported-gpus supported-gpus.json
                                                             GPUs of a driver's own list that the data lacks

No wheel is downloaded: the listing, the metadata and three small files inside a wheel are read. What these do not tell
is printed as a question for a person, never guessed.
"""

from __future__ import annotations

import argparse
import ast
import json
import pathlib
import re
import sys
import typing as t

import yaml
from package_index import File, IndexProblem, PackageIndex, PipSettings, pip_settings

DATA = pathlib.Path(__file__).resolve().parent.parent / "plugins" / "plugin_utils" / "_compat" / "data"
ARCHES = ("x86_64", "aarch64")
#: Names of the pins in the data and the projects that they are on the index, without their suffix of a CUDA major.
PINS = {
    "cuda_runtime": ("nvidia-cuda-runtime", "cuda-toolkit"),
    "cudnn": ("nvidia-cudnn",),
    "nccl": ("nvidia-nccl",),
    "nvshmem": ("nvidia-nvshmem",),
    "cusparselt": ("nvidia-cusparselt",),
}
Row = dict[str, t.Any]


def numbers(version: str) -> tuple[int, ...]:
    """2.10.0 as (2, 10, 0)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def python_of(abi: str) -> str:
    """cp313t as 3.13t."""
    return f"{abi[2]}.{abi[3:]}"


def glibc_of(platform: str) -> str:
    """glibc that a platform tag asks for. manylinux1 and 2014 of torch are builds on 2.17."""
    match = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    return f"{match.group(1)}.{match.group(2)}" if match else "2.17"


def requirements(lines: t.Iterable[str]) -> dict[str, str]:
    """Requires-Dist of Linux, project to specifier: extras and other systems left out."""
    found: dict[str, str] = {}
    for line in lines:
        asked, _semicolon, marker = line.partition(";")
        if "extra ==" in marker or 'platform_system == "Windows"' in marker:
            continue
        match = re.match(r"([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*\(?([^)]*)\)?", asked.strip())
        if match:
            found[match.group(1).lower().replace("_", "-")] = match.group(2).strip()
    return found


def pins_of(required: t.Mapping[str, str]) -> Row:
    """Pinned parts by the data's names, and triton as the data writes it: a version, or a range where it is one."""
    pins: Row = {}
    for name, projects in PINS.items():
        for project in projects:
            asked = next((required[key] for key in required if re.fullmatch(rf"{project}(-cu\d+)?", key)), "")
            if asked:
                pins[name] = asked.removeprefix("==")
    if "triton" in required:
        pins["triton"] = required["triton"].removeprefix("==")
    return pins


def built_with(version_py: str) -> str:
    """Build of a wheel by its torch/version.py: cu128, or cpu."""
    match = re.search(r"^cuda[^=]*= *'([\d.]+)'", version_py, re.MULTILINE)
    return "cu" + match.group(1).replace(".", "") if match else "cpu"


def builds_of(cuda_init: str) -> dict[str, dict[str, list[int]]]:
    """Architectures by build and machine, from the table in torch/cuda/__init__.py.

    Empty before 2.13: torch had no such table, or one that threw the machines together.
    """
    for node in ast.walk(ast.parse(cuda_init)):
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "PYTORCH_RELEASES_CODE_CC":
            table = ast.literal_eval(node.value) if node.value else {}
            return {
                "cu" + cuda.replace(".", ""): {arch: sorted(codes) for arch, codes in by_arch.items()}
                for cuda, by_arch in table.items()
                if isinstance(by_arch, dict)
            }
    return {}


def companion(index: PackageIndex, project: str, torch: str) -> str:
    """The release of torchvision or torchaudio that goes with that torch by its metadata, "" where none does.

    One that pins it comes before one that merely accepts it, a newer one before an older one.
    """
    releases: dict[str, File] = {}
    for wheel in index.wheels(project):
        if re.fullmatch(r"[\d.]+", wheel.version) and "x86_64" in wheel.tags[2] and "linux" in wheel.tags[2]:
            releases.setdefault(wheel.version, wheel)
    accepting = []
    for version in sorted(releases, key=numbers, reverse=True):
        asked = requirements(index.metadata(releases[version]).get_all("Requires-Dist") or []).get("torch", "")
        if asked == f"=={torch}":
            return version
        if asked and all(_accepts(part.strip(), torch) for part in asked.split(",")):
            accepting.append(version)
    return accepting[0] if accepting else ""


def _accepts(clause: str, version: str) -> bool:
    match = re.fullmatch(r"(==|>=|>|<=|<|!=)\s*([\d.]+)", clause)
    if match is None:
        raise IndexProblem(f"a companion asks for torch{clause}, a form that is not known here: read it yourself")
    asked, have = numbers(match.group(2)), numbers(version)
    return {
        "==": have == asked, "!=": have != asked, ">=": have >= asked, ">": have > asked, "<=": have <= asked,
        "<": have < asked,
    }[match.group(1)]  # fmt: skip


def read_release(index: PackageIndex, version: str) -> Row:
    """A release as a row of data/torch.yml, from the index alone: cells that it cannot tell are absent."""
    wheels: dict[str, list[File]] = {arch: [] for arch in ARCHES}
    for wheel in index.wheels("torch"):
        platform = wheel.tags[2]
        if wheel.version == version and "linux" in platform:
            wheels[next(arch for arch in ARCHES if platform.endswith(arch))].append(wheel)
    if not all(wheels.values()):
        raise IndexProblem(f"torch {version}: no wheel on the index for {[a for a in ARCHES if not wheels[a]]}")
    sample = {arch: max(wheels[arch], key=lambda wheel: numbers(python_of(wheel.tags[1]))) for arch in ARCHES}
    metadata = index.metadata(sample["x86_64"])
    pins = pins_of(requirements(metadata.get_all("Requires-Dist") or []))
    default = {arch: built_with(index.read(sample[arch], lambda name: name == "torch/version.py")) for arch in ARCHES}
    builds = builds_of(index.read(sample["x86_64"], lambda name: name == "torch/cuda/__init__.py"))
    flags = index.read(sample["x86_64"], lambda name: name.endswith("/Torch/TorchConfig.cmake"))
    abi = re.search(r"_GLIBCXX_USE_CXX11_ABI=([01])", flags)
    row: Row = {
        "version": version,
        "date": min(wheel.uploaded for wheel in wheels["x86_64"]),
        "requires_python": metadata["Requires-Python"],
        "default": default["x86_64"],
        "default_on_aarch64": default["aarch64"],
        "wheels": {arch: sorted({python_of(w.tags[1]) for w in wheels[arch]}, key=_python_key) for arch in ARCHES},
        "glibc": {arch: glibc_of(sample[arch].tags[2]) for arch in ARCHES},
        "torchvision": companion(index, "torchvision", version),
        "torchaudio": companion(index, "torchaudio", version),
        "triton": pins.pop("triton", ""),
        "cxx11_abi": int(abi.group(1)) if abi else None,
        "pins": pins,
        "variants": {
            name: {
                "cuda": f"{name[2:4]}.{name[4:]}",
                **by_arch,
                **({key: pins[key] for key in ("cudnn", "nccl")} if name == default["x86_64"] else {}),
                "source": f"torch-{version} wheel torch/cuda/__init__.py PYTORCH_RELEASES_CODE_CC",
                "confidence": "read",
            }
            for name, by_arch in builds.items()
        },
        "source": "package metadata; torch/version.py, torch/cuda/__init__.py and TorchConfig.cmake of the wheel",
        "confidence": "read",
    }
    return {key: value for key, value in row.items() if value not in ("", None)}


def _python_key(version: str) -> tuple[tuple[int, ...], bool]:
    return numbers(version), version.endswith("t")


def deduce(row: Row, before: Row) -> Row:
    """The row with what the index does not tell, deduced from the release before it and named as inferred."""
    variants = {}
    for name, build in row["variants"].items():
        old = before["variants"].get(name, {})
        seen = name == row["default"] or (old and "published" not in old.get("inferred", []))
        inferred = [] if seen else ["published"]
        made = dict(build)
        for part in ("cudnn", "nccl"):
            if part not in build:
                alike = name[:4] == row["default"][:4]
                made[part] = row["pins"].get(part, "") if alike else old.get(part, row["pins"].get(part, ""))
                inferred.append(part)
        variants[name] = {**made, **({"inferred": sorted(inferred)} if inferred else {})}
    absent = [cell for cell in ("torchvision", "torchaudio", "triton", "cxx11_abi") if cell not in row]
    kept = {cell: before[cell] for cell in absent if cell == "cxx11_abi"}
    empty = {cell: "" for cell in absent if cell not in kept}
    made = {**row, **empty, **kept, "variants": variants}
    order = [cell for cell in before if cell in made and cell not in ("source", "confidence", "inferred")]
    tail = {"source": row["source"], "confidence": row["confidence"], **({"inferred": absent} if absent else {})}
    return {**{cell: made[cell] for cell in order}, **tail}


def differences(known: t.Any, seen: t.Any, where: str = "") -> list[str]:
    """Cells in which what was read from the index differs from the data, and builds that the data lacks.

    Other cells that only one side has are no matter: the index does not tell everything.
    """
    if isinstance(known, dict) and isinstance(seen, dict):
        lines = []
        for key in seen:
            if key in seen.get("inferred", ()):
                continue
            if key in known and key not in ("source", "confidence", "inferred"):
                lines += differences(known[key], seen[key], f"{where}.{key}".lstrip("."))
            elif where == "variants":
                lines.append(f"variants: the index's wheel names {key}, the data does not")
        return lines
    # A month is all that some dates are known by.
    if where == "date" and str(seen).startswith(str(known)):
        return []
    return [] if known == seen else [f"{where}: the data has {known!r}, the index {seen!r}"]


def questions(row: Row, before: Row, known_codes: set[int], toolkits: t.Collection[str]) -> list[str]:
    """What a person must decide before the row is right."""
    asked = [f"{cell}: not found on the index" for cell in row.get("inferred", [])]
    if not row["variants"]:
        asked.append("builds: the wheel has no table of them; read RELEASE.md for variants and architectures")
    for name, build in row["variants"].items():
        if "cudnn" in build.get("inferred", ()):
            asked.append(f"{name}: cudnn and nccl of this build, from RELEASE.md or the metadata of its own index")
        if name != row["default"]:
            asked.append(f"{name}: is it on the wheel index? Until seen there, `published` is inferred")
        if build["cuda"] not in toolkits:
            asked.append(f"{name}: CUDA {build['cuda']} is not in toolkits.yml: driver, architectures, compiler")
        new = {code for arch in ARCHES for code in build.get(arch, [])} - known_codes
        if new:
            asked.append(f"{name}: sm {sorted(new)} is not in the table `sass`: which devices run it?")
    lost = set(before["variants"]) - set(row["variants"])
    if lost and row["variants"]:
        asked.append(f"variants: {', '.join(sorted(lost))} of {before['version']} are gone; say so in the changelog")
    return asked


def render(row: Row) -> str:
    """The row as data/torch.yml writes rows."""
    lines = []
    for key, value in row.items():
        if key == "variants":
            lines.append("    variants:" if value else "    variants: {}")
            lines += [f"      {name}: {_flow(build)}" for name, build in value.items()]
        else:
            lines.append(f"    {key}: {_flow(value)}")
    return "  - " + "\n".join(lines).lstrip() + "\n"


def _flow(value: t.Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_flow(item) for item in value) + "]"
    plain = isinstance(value, int) or re.fullmatch(r"[A-Za-z][A-Za-z0-9_ ]*", value)
    return str(value) if plain else json.dumps(value)


def unknown_gpus(supported: t.Mapping[str, t.Any], gpus: Row) -> list[str]:
    """GPUs of a driver's supported-gpus.json whose PCI id the data lacks, each with the module that the driver names.

    The feature kernelopen counts only without a ``legacybranch``: 595 marks the V100 so, and does not drive it.
    """
    known = {pci.lower() for group in gpus.values() if isinstance(group, list) for gpu in group for pci in _ids(gpu)}
    found = {}
    for chip in supported["chips"]:
        pci = chip["devid"].lower().removeprefix("0x")
        legacy = chip.get("legacybranch")
        module = f"legacy branch {legacy}" if legacy else "open" if "kernelopen" in chip["features"] else "proprietary"
        if pci not in known:
            found[pci] = f"{pci} {chip['name']}: {module}"
    return [found[pci] for pci in sorted(found)]


def _ids(gpu: t.Any) -> list[str]:
    return [str(pci) for pci in gpu.get("pci_ids") or []] if isinstance(gpu, dict) else []


def main(arguments: t.Sequence[str]) -> int:
    """Exit status: 0 done, 1 differences found, 2 the index could not be used."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--index-url", help="instead of the index of pip's configuration")
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--write", action="store_true", help="append what is new to torch.yml")
    parser.add_argument("--check", nargs=2, metavar=("FROM", "TO"), help="compare these releases with the data")
    parser.add_argument("--supported-gpus", type=pathlib.Path, metavar="FILE", help="of a driver's package")
    options = parser.parse_args(arguments)
    data = yaml.safe_load((options.data / "torch.yml").read_text(encoding="utf-8"))
    if options.supported_gpus:
        gpus = yaml.safe_load((options.data / "gpus.yml").read_text(encoding="utf-8"))
        print("\n".join(unknown_gpus(json.loads(options.supported_gpus.read_text(encoding="utf-8")), gpus)) or "none")
        return 0
    try:
        settings = PipSettings(options.index_url.rstrip("/"), "") if options.index_url else pip_settings()
        index = PackageIndex(settings)
        if options.check:
            return _check(index, data, *options.check)
        return _add(index, data, options.data, options.write)
    except IndexProblem as problem:
        print(f"refresh_compat: {problem}", file=sys.stderr)
        return 2


def _releases(index: PackageIndex) -> list[str]:
    found = {wheel.version for wheel in index.wheels("torch") if re.fullmatch(r"[\d.]+", wheel.version)}
    return sorted(found, key=numbers)


def _check(index: PackageIndex, data: Row, first: str, last: str) -> int:
    known = {row["version"]: row for row in data["releases"]}
    chosen = [
        version for version in _releases(index) if numbers(first) <= numbers(version)[:3] <= (*numbers(last), 999)
    ]
    status = 0
    for version in chosen:
        found = differences(known[version], read_release(index, version)) if version in known else ["not in the data"]
        print(f"torch {version}: " + ("as in the data" if not found else "\n  ".join(["", *found])))
        status |= bool(found)
    return status


def _add(index: PackageIndex, data: Row, folder: pathlib.Path, write: bool) -> int:
    before = data["releases"][-1]
    known = yaml.safe_load((folder / "toolkits.yml").read_text(encoding="utf-8"))["toolkits"]
    toolkits = {entry["version"] for entry in known}
    print(f"The data ends with torch {before['version']}, the index with {_releases(index)[-1]}.")
    for version in [version for version in _releases(index) if numbers(version) > numbers(before["version"])]:
        row = deduce(read_release(index, version), before)
        print(f"\n{render(row)}\nTo decide for torch {version}:")
        asked = questions(row, before, {entry["sm"] for entry in data["sass"]}, toolkits)
        print("\n".join(f"  - {line}" for line in asked) or "  nothing")
        if write:
            with (folder / "torch.yml").open("a", encoding="utf-8") as stream:
                stream.write(render(row))
        before = row
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
