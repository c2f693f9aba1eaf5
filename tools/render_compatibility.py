# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/compatibility.md and docs/gpus.md from the compatibility data.

./run python tools/render_compatibility.py             writes both
./run python tools/render_compatibility.py --check     says whether they are up to date, exit 1 where not
"""

from __future__ import annotations

import pathlib
import sys
import typing as t

from markdown_page import DEDUCED, Page

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "collections"))

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import (  # noqa: E402
    host,
    loader,
    model,
    rules_wheel,
    version,
)

DOCS = ROOT / "docs"
ARCHES = ("x86_64", "aarch64")


def mark(record: model.Record, cell: str, value: t.Any) -> str:
    """The value, marked where it was deduced."""
    return "" if value in (None, "") else f"{value}{DEDUCED if record.is_inferred(cell) else ''}"


def builds_for(release: model.Release, capability: str, arch: str, data: model.Data) -> list[model.Variant]:
    """Builds of the release that have code for a device on such a machine."""
    asked = version.parse(capability)
    return [
        build
        for build in release.variants.values()
        if any(rules_wheel.runs_on(sm, asked, build.cuda, data) for sm in build.archs.get(arch, ()))
    ]


def architecture_of(capability: str, data: model.Data) -> model.Architecture:
    """The architecture of a compute capability of the data."""
    row = host.architecture(capability, data)
    assert row is not None
    return row


def torch_window(capability: str, arch: str, data: model.Data) -> str:
    """First and last release with a build for the device, "" where there is none."""
    found = [release.version for release in data.releases.values() if builds_for(release, capability, arch, data)]
    if not found:
        return "none"
    return f"{found[0]} to {found[-1]}" if found[0] != found[-1] else found[0]


def driver_window(capability: str, data: model.Data) -> str:
    """First and last branch for the device; an open end where it is still driven."""
    row = architecture_of(capability, data)
    first = row.first_driver or "any"
    return f"{first} to {row.last_driver}" if row.last_driver else f"from {first}"


def toolkit_window(capability: str, data: model.Data) -> str:
    """The toolkits that compile for the device."""
    asked = version.parse(capability)
    found = [
        row.version
        for row in data.toolkits.values()
        if row.published and version.parse(row.cc_min) <= asked <= version.parse(row.cc_max)
    ]
    return f"{found[0]} to {found[-1]}" if found else "none"


def by_generation(page: Page, data: model.Data) -> None:
    newest = list(data.releases.values())[-1]
    page.text("## Which PyTorch, CUDA and driver for which GPU")
    page.text(
        "A wheel runs a GPU where it has native code for it: code for 8.0 runs on 8.6 and 8.9, code for 12.0 on 12.1,",
        "code for 9.0 on nothing newer. No wheel of the package index carries PTX to fall back on.",
        page.cite(data.sass_source),
    )
    page.text(f"The last two columns are builds of torch {newest.version}; `none` means: take an older release.")
    head = ["GPU", "for example", "drivers", "kernel module", "toolkits", "torch on x86_64", "torch on aarch64"]
    head += [f"{newest.version} x86_64", f"{newest.version} aarch64", "source"]
    rows = []
    for capability in sorted({gpu.compute_capability for gpu in data.gpus}, key=version.parse):
        row = architecture_of(capability, data)
        named = [gpu.product for gpu in data.gpus if gpu.compute_capability == capability and gpu.details]
        named = named or [gpu.product for gpu in data.gpus if gpu.compute_capability == capability]
        rows.append(
            [
                f"{row.name} {capability}",
                ", ".join(named[:3]),
                driver_window(capability, data),
                " or ".join(row.flavours),
                toolkit_window(capability, data),
                *(torch_window(capability, arch, data) for arch in ARCHES),
                *(
                    ", ".join(build.name for build in builds_for(newest, capability, arch, data)) or "none"
                    for arch in ARCHES
                ),
                page.cite(row.source),
            ]
        )
    page.table(head, rows)


def by_cuda(page: Page, data: model.Data) -> None:
    page.text("## Which driver for which CUDA")
    page.text(
        "A wheel brings its own CUDA; of the host it needs the driver. Within a major any toolkit runs from the least",
        "driver on. `cuda-compat` lets a newer major run on an older driver, on data-centre GPUs alone.",
    )
    rows = []
    for major in data.majors.values():
        bases = [
            f"{row.base}{DEDUCED if row.is_inferred('base') else ''} (CUDA {row.cuda} to {row.cuda_to})"
            for row in data.forward_compat
            if version.major(row.cuda) == major.major
        ]
        builds = sorted(
            {name for release in data.releases.values() for name in release.variants if name[2:4] == str(major.major)}
        )
        rows.append(
            [
                major.major,
                ", ".join(builds),
                mark(major, "driver", major.driver),
                ", ".join(bases),
                page.cite(major.source),
            ]
        )
    page.table(["CUDA", "builds of torch", "least driver", "oldest branch under cuda-compat", "source"], rows)
    page.text("### Toolkits")
    page.table(
        ["toolkit", "comes with driver", "compiles for", "newest GCC", "source"],
        [
            [
                row.version if row.published else f"{row.version} (never published)",
                mark(row, "driver", row.driver),
                f"{mark(row, 'cc_min', row.cc_min)} to {mark(row, 'cc_max', row.cc_max)}",
                mark(row, "gcc_max", row.gcc_max),
                page.cite(row.source),
            ]
            for row in data.toolkits.values()
        ],
    )


def by_release(page: Page, data: model.Data) -> None:
    page.text("## Releases of PyTorch")
    page.text(
        "`pip install torch` gives the default build. Pins are those of the default build's metadata; Pythons are",
        "the tags of the wheels, which is what pip goes by.",
    )
    head = ["torch", "date", "Python", "default", "on aarch64", "cuDNN", "NCCL", "triton", "torchvision", "torchaudio"]
    rows = []
    for row in reversed(list(data.releases.values())):
        pythons = row.wheels["x86_64"]
        rows.append(
            [
                row.version,
                mark(row, "date", row.date),
                f"{pythons[0]} to {pythons[-1]}",
                row.default,
                row.default_on_aarch64,
                *(row.pins.get(part, "") for part in ("cudnn", "nccl")),
                row.triton,
                row.torchvision,
                row.torchaudio,
                row.glibc["x86_64"],
                row.numpy,
                page.cite(row.source),
            ]
        )
    page.table([*head, "glibc", "numpy", "source"], rows)
    page.text("## Builds and the GPUs that they have code for")
    rows = []
    for release in reversed(list(data.releases.values())):
        for build in release.variants.values():
            codes = (", ".join(f"{sm // 10}.{sm % 10}" for sm in build.archs.get(arch, ())) for arch in ARCHES)
            seen = mark(build, "published", build.name)
            parts = [mark(build, part, getattr(build, part)) for part in ("cudnn", "nccl")]
            rows.append([release.version, seen, *codes, *parts, page.cite(build.source)])
    page.table(["torch", "build", "x86_64", "aarch64", "cuDNN", "NCCL", "source"], rows)


def by_driver(page: Page, data: model.Data) -> None:
    page.text("## Driver branches")
    page.table(
        ["branch", "kind", "CUDA", "fixes until", "GPUs", "kernel modules", "known releases", "source"],
        [
            [
                f"**{row.branch}**" if row.supported else row.branch,
                row.kind,
                mark(row, "cuda", row.cuda),
                mark(row, "eol", row.eol),
                f"{mark(row, 'cc_min', row.cc_min)} to {mark(row, 'cc_max', row.cc_max)}",
                ", ".join(row.flavours),
                f"{row.first} to {mark(row, 'last', row.last)}" if row.first else "none read",
                page.cite(row.source),
            ]
            for row in reversed(list(data.branches.values()))
        ],
    )
    page.text("Bold branches get fixes. LTSB is long-lived, PB production, NFB new features without fixes.")
    page.text("### Kernels on which a driver is known not to build")
    page.table(
        ["drivers", "from kernel", "source"],
        [
            [
                f"{mark(row, 'driver_min', row.driver_min)} to {row.driver_max}",
                f"{row.kernel_min} {f'({row.kernel_contains})' if row.kernel_contains else ''}".strip(),
                page.cite(row.source),
            ]
            for row in data.kernels
        ],
    )
    page.text("### Libraries with a known fault")
    rows = [[f"cuDNN {row.version} and newer", row.says, page.cite(row.source)] for row in data.cudnn]
    for fault in data.nccl:
        where = f" on {fault.arch}" if fault.arch else ""
        rows.append([f"NCCL {fault.low} to below {fault.high}{where}", fault.says, page.cite(fault.source)])
    page.table(["release", "fault", "source"], rows)


def by_system(page: Page, data: model.Data) -> None:
    page.text("## Operating systems")
    rows = []
    for row in data.systems:
        repository = data.repositories.get(row.repository)
        key = data.keys[repository.key] if repository else None
        own = [str(entry.branch) for entry in data.archives if entry.name == row.archive] if row.archive else []
        rows.append(
            [
                f"{row.id} {row.version}",
                mark(row, "glibc", row.glibc),
                mark(row, "python", row.python),
                row.repository,
                f"{mark(key, 'fingerprint', key.fingerprint) or key.file}" if key else "",
                ", ".join(own),
                page.cite(row.source),
            ]
        )
    head = ["system", "glibc", "Python", "repository of NVIDIA", "its key", "branches of its own", "source"]
    page.table(head, rows)
    rows = [
        [
            row.id,
            row.state,
            f"from {row.refused_from} by {row.refused_by}" if row.refused_from else "",
            page.cite(row.source),
        ]
        for row in data.keys.values()
    ]
    page.table(["key", "state", "refused", "source"], rows)


def compatibility(data: model.Data) -> str:
    """docs/compatibility.md."""
    page = Page("Compatibility", data.as_of)
    page.text(
        "What the lookup `gpufleet.pytorch.compat` decides from. GPUs one by one, with their memory and rates, are in",
        "[gpus.md](gpus.md). A maintainer refreshes the releases with `./run python tools/refresh_compat.py`.",
    )
    for section in (by_generation, by_cuda, by_release, by_driver, by_system):
        section(page, data)
    return page.done()


def gpus(data: model.Data) -> str:
    """docs/gpus.md."""
    page = Page("GPUs", data.as_of)
    page.text(
        "Rates are dense (without sparsity) and of the data sheets, in TFLOPS; memory in GB, its bandwidth in GB/s,",
        "power in watts. NVLink's bandwidth is the sum of both directions, in GB/s. Deduced cells are named.",
    )
    head = ["GPU", "as nvidia-smi prints it", "PCI ids", "architecture", "memory", "bandwidth", "watts", "fp32", "tf32"]
    head += [
        "bf16",
        "fp16",
        "fp8",
        "links",
        "MIG",
        "fabric",
        "drivers",
        "kernel module",
        "toolkits",
        "torch",
        "deduced",
        "source",
    ]
    rows = []
    for gpu in (gpu for gpu in data.gpus if gpu.details):
        row = architecture_of(gpu.compute_capability, data)
        rates = gpu.details.get("dense_tflops", {})
        arch = "aarch64" if gpu.grace else "x86_64"
        drivers = f"from {gpu.driver_min}" if gpu.driver_min else driver_window(gpu.compute_capability, data)
        rows.append(
            [
                gpu.product,
                ", ".join(gpu.names),
                ", ".join(gpu.pci_ids),
                f"{row.name} {gpu.compute_capability}",
                f"{gpu.details.get('memory_gb', '')} {gpu.details.get('memory_type', '')}".strip(),
                gpu.details.get("memory_bandwidth_gbs"),
                gpu.details.get("tdp_w"),
                *(rates.get(kind) for kind in ("fp32", "tf32", "bf16", "fp16", "fp8")),
                links(gpu),
                gpu.details.get("mig") or "",
                "" if gpu.fabric == "none" else gpu.fabric,
                drivers,
                "open" if gpu.grace else " or ".join(row.flavours),
                toolkit_window(gpu.compute_capability, data),
                f"{torch_window(gpu.compute_capability, arch, data)} ({arch})",
                ", ".join(gpu.inferred),
                page.cite(gpu.source),
            ]
        )
    page.table(head, rows)
    others = [gpu for gpu in data.gpus if not gpu.details]
    page.text("## GPUs known by name, PCI id and compute capability alone")
    page.table(
        ["as nvidia-smi prints it", "PCI ids", "compute capability", "source"],
        [
            [
                gpu.names[0],
                ", ".join(gpu.pci_ids),
                mark(gpu, "compute_capability", gpu.compute_capability),
                page.cite(gpu.source),
            ]
            for gpu in sorted(others, key=lambda gpu: (version.parse(gpu.compute_capability), gpu.names[0]))
        ],
    )
    return page.done()


def links(gpu: model.Gpu) -> str:
    """PCIe and NVLink in words."""
    found = [f"PCIe {gpu.details['pcie_gen']}"] if gpu.details.get("pcie_gen") else []
    link = gpu.details.get("nvlink")
    if link:
        bridge = f", {link['bridge']}" if link.get("bridge") else ""
        found.append(f"NVLink {link['gen']}: {link['links']} links, {link['total_bandwidth_gbs']}{bridge}")
    return "; ".join(found)


def main(arguments: t.Sequence[str]) -> int:
    """Exit status 1 where --check finds a page that is not what the data says."""
    data = loader.load()
    pages = {DOCS / "compatibility.md": compatibility(data), DOCS / "gpus.md": gpus(data)}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not what the data says: ./run python tools/render_compatibility.py")
        return int(bool(stale))
    for path in stale:
        path.write_text(pages[path], encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
