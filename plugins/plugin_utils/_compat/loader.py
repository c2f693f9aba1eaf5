# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read ``data/*.yml`` into the records of ``model``, once a process.

PyYAML's C parser where it is there (30 ms for all files), else the slow one
(0.4 s): the result is the same.
"""

from __future__ import annotations

import functools
import pathlib
import typing as t

import yaml

from . import model, version

FOLDER = pathlib.Path(__file__).parent / "data"
FILES = ("torch", "toolkits", "drivers", "gpus", "packages", "repositories", "kernels", "libraries")
SCHEMA = 1

_Row = t.Mapping[str, t.Any]


def read(name: str, folder: pathlib.Path = FOLDER) -> dict[str, t.Any]:
    """One file as plain data. ValueError where it is of another schema."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (folder / f"{name}.yml").read_text(encoding="utf-8")
    content = yaml.load(text, Loader=loader)
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError(f"{folder / name}.yml: schema {SCHEMA} is needed")
    return content


@functools.lru_cache(maxsize=4)
def load(folder: pathlib.Path = FOLDER) -> model.Data:
    """All files of the folder. KeyError or ValueError where one is not of its form."""
    files = {name: read(name, folder) for name in FILES}
    torch, toolkits, drivers, gpus = (files[name] for name in FILES[:4])
    packages, repositories, kernels, libraries = (files[name] for name in FILES[4:])
    return model.Data(
        as_of=torch["as_of"],
        index_url=torch["index"]["url"],
        sass_source=torch["sass_source"],
        sass={row["sm"]: _sass(row) for row in torch["sass"]},
        cpu=_record(model.CpuBuild, torch["cpu"]),
        numpy_source=torch["numpy_source"],
        releases={row["version"]: _release(row) for row in torch["releases"]},
        toolkits={row["version"]: _record(model.Toolkit, row) for row in toolkits["toolkits"]},
        majors={row["major"]: _record(model.CudaMajor, row) for row in toolkits["majors"]},
        forward_compat=tuple(_record(model.ForwardCompat, row) for row in toolkits["forward_compat"]),
        architectures=tuple(_architecture(row) for row in drivers["architectures"]),
        branches={row["branch"]: _branch(row) for row in drivers["branches"]},
        gpus=_gpus(gpus),
        series=tuple(_series(row, gpus) for row in gpus["series"]),
        chips=tuple(
            model.Chips(low=int(row["from"], 16), high=int(row["to"], 16), compute_capability=row["compute_capability"])
            for row in gpus["chips"]
        ),
        systems=tuple(_record(model.System, row) for row in packages["systems"]),
        same_as=packages["same_as"],
        archives=tuple(_record(model.Archive, row) for row in packages["archives"]),
        driver_packages=_packages(packages["driver_packages"]),
        fabric_packages=_packages(packages["fabric_packages"]),
        library_packages=_packages(packages["library_packages"]),
        repository_url=repositories["url"],
        repository_arches=repositories["arches"],
        repositories={row["name"]: _record(model.Repository, row) for row in repositories["repositories"]},
        keys={row["id"]: _key(row) for row in repositories["keys"]},
        sqv_systems=tuple((row["id"], row["version"]) for row in repositories["sqv"]["systems"]),
        kernels=tuple(_record(model.KernelRow, row) for row in kernels["kernels"]),
        open_kernel_min=kernels["open_kernel_min"]["kernel"],
        cudnn=tuple(_record(model.CudnnRow, {**row, "version": row["from"]}, "from") for row in libraries["cudnn"]),
        nccl=tuple(_record(model.NcclRow, _window(row), "from", "below") for row in libraries["nccl"]),
    )


_R = t.TypeVar("_R")


def _record(kind: type[_R], row: _Row, *drop: str) -> _R:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    for key in drop:
        values.pop(key, None)
    return kind(**values)


def _window(row: _Row) -> _Row:
    return {**row, "low": row["from"], "high": row["below"]}


def _sass(row: _Row) -> model.Sass:
    return model.Sass(
        sm=row["sm"],
        low=version.parse(row.get("from", "0")),
        high=version.parse(row.get("below", "0")),
        only=tuple(version.parse(cc) for cc in row.get("only", ())),
        excepted=tuple(version.parse(cc) for cc in row.get("except", ())),
        excepted_before_cuda=version.parse(row.get("except_before_cuda", "999")),
    )


_VARIANT_FIELDS = ("cuda", "cudnn", "nccl", "source", "confidence")


def _release(row: _Row) -> model.Release:
    variants = {}
    for name, build in row["variants"].items():
        variants[name] = model.Variant(
            name=name,
            archs={arch: tuple(build[arch]) for arch in ("x86_64", "aarch64") if arch in build},
            glibc={**row["glibc"], **build.get("glibc", {})},
            inferred=tuple(build.get("inferred", ())),
            **{field: build[field] for field in _VARIANT_FIELDS},
        )
    values = {**row, "variants": variants, "numpy": row.get("numpy", "")}
    values["wheels"] = {arch: tuple(tags) for arch, tags in row["wheels"].items()}
    return _record(model.Release, values)


def _architecture(row: _Row) -> model.Architecture:
    values = {**row, "low": version.parse(row["from"]), "high": version.parse(row["below"])}
    return _record(model.Architecture, values, "from", "below")


def _branch(row: _Row) -> model.Branch:
    return _record(model.Branch, {"first": "", "last": "", **row})


def _key(row: _Row) -> model.Key:
    return _record(model.Key, {**row, "fingerprint": row["fingerprint"] or ""})


_GPU_FIELDS = {"product", "names", "pci_ids", "compute_capability", "fabric", "driver_min"}
_GPU_RECORD = {"source", "confidence", "inferred", "class", "host"}


def _gpus(content: _Row) -> tuple[model.Gpu, ...]:
    """The detailed rows first, then the short ones: a name that is in both is answered by the detailed row."""
    found = []
    for row in content["gpus"]:
        values = {key: row[key] for key in _GPU_FIELDS & row.keys()}
        values["details"] = {key: row[key] for key in row if key not in _GPU_FIELDS | _GPU_RECORD}
        values.update({key: row[key] for key in ("source", "confidence", "inferred")})
        found.append(_record(model.Gpu, {**values, "kind": row["class"], "grace": row.get("host") == "grace"}))
    inferred = tuple(content["others_inferred"])
    for row in content["others"]:
        found.append(_short_gpu(row, content["others_source"], "read", inferred))
    for row in content["legacy"]:
        found.append(_short_gpu(row, content["legacy_source"], content["legacy_confidence"], ()))
    return tuple(found)


def _short_gpu(row: _Row, source: str, confidence: str, inferred: tuple[str, ...]) -> model.Gpu:
    return model.Gpu(
        product=row["name"].removeprefix("NVIDIA "),
        names=(row["name"],),
        pci_ids=tuple(row["pci_ids"]),
        compute_capability=row["compute_capability"],
        kind=row["class"],
        fabric=row.get("fabric", "none"),
        driver_min=row.get("driver_min", ""),
        source=source,
        confidence=confidence,
        inferred=inferred,
    )


def _series(row: _Row, content: _Row) -> model.Series:
    source, confidence = content["series_source"], content["series_confidence"]
    gpu = model.Gpu(
        product="",
        names=(),
        pci_ids=(),
        compute_capability=row["compute_capability"],
        kind=row["class"],
        fabric="" if row.get("fabric") == "by_form" else row.get("fabric", "none"),
        grace=row.get("host") == "grace",
        driver_min=row.get("driver_min", ""),
        source=source,
        confidence=confidence,
    )
    return model.Series(pattern=row["pattern"], gpu=gpu, source=source, confidence=confidence)


_ROW_FIELDS = {
    *("family", "origin", "flavour", "repositories", "build", "stream", "lock"),
    *("source", "confidence", "inferred"),
}


def _packages(rows: t.Iterable[_Row]) -> tuple[model.PackageRow, ...]:
    found = []
    for row in rows:
        values = {key: value for key, value in row.items() if key in _ROW_FIELDS}
        values["lists"] = {
            key: (value,) if isinstance(value, str) else tuple(value)
            for key, value in row.items()
            if key not in _ROW_FIELDS | {"from", "to"}
        }
        values.update(low=row.get("from", 0), high=row.get("to", 10**6), origin=row.get("origin", "nvidia"))
        found.append(_record(model.PackageRow, values))
    return tuple(found)
