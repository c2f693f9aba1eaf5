# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts gather packages, one for each system, and which archive of a bundle is for a host."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle.manifest import PACKAGES, BundleProblem

Vars = t.Mapping[str, t.Any]


def kind(seen: Vars) -> str:
    """What hosts have in common that install from the same packages: ``debian-12-x86_64``, of an observation."""
    host = seen["host"]
    return f"{host['os']['id']}-{host['os']['version']}-{host['arch']}"


#: The parts beside the driver, with the variable that asks for each.
PARTS = {
    "cuda": "cuda_packages",
    "compiler": "cuda_compiler",
    "cudnn": "cudnn_packages",
    "nccl": "nccl_packages",
    "container_toolkit": "container_toolkit_for",
}
OFF = ("", "false", "no", "off", "0", "n", "f", "none", "[]")


def parts(wishes: Vars) -> list[dict[str, t.Any]]:
    """The parts beside the driver that a host's variables ask for, as the module bundle_packages takes them."""
    plan = wishes["gpufleet_plan"]
    found = []
    for part, variable in PARTS.items():
        # What a command line gives is text.
        if str(wishes.get(variable, "")).lower() in OFF or (part != "compiler" and plan.get("accelerator") != "cuda"):
            continue
        if part == "cuda" and wishes.get("cuda_from", "packages") != "packages":
            continue
        item: dict[str, t.Any] = {"part": part}
        if part == "compiler" and wishes.get("cuda_compiler_packages"):
            item["names"] = list(wishes["cuda_compiler_packages"])
        if part == "container_toolkit" and wishes.get("container_toolkit_version"):
            item["version"] = str(wishes["container_toolkit_version"])
        found.append(item)
    return found


def gathering(hosts: t.Mapping[str, Vars]) -> dict[str, str]:
    """The host that gathers for each kind, the first with packages to install.

    ``hosts``: by name ``observed``, ``plan`` and ``parts``. Raises BundleProblem where hosts of one kind are to get
    other packages, since a bundle holds one set for each.
    """
    first: dict[str, str] = {}
    for name, host in hosts.items():
        wanted = _wanted(host)
        if not wanted:
            continue
        of = kind(host["observed"])
        other = first.setdefault(of, name)
        if wanted != _wanted(hosts[other]):
            has = ", ".join(_wanted(hosts[other]))
            raise BundleProblem(
                f"{other} and {name} are both {of} and are to get other packages ({has}; {', '.join(wanted)}):"
                " make a bundle for each, with --limit and another bundle_directory"
            )
    return first


def archive(files: t.Iterable[str], seen: Vars) -> str:
    """The archive of packages for a host among a bundle's files, "" where there is none."""
    return next((name for name in sorted(files) if name.startswith(f"{PACKAGES}/{kind(seen)}-")), "")


def changes(plan: Vars) -> bool:
    """Whether the plan installs packages of a driver."""
    return (plan.get("driver") or {}).get("action") in ("install", "upgrade", "downgrade")


def _wanted(host: Vars) -> list[str]:
    plan = host["plan"]
    found: list[str] = []
    if changes(plan):
        found += [
            str(name) for part in ("driver", "fabric_manager") for name in (plan.get(part) or {}).get("packages") or ()
        ]
    for item in host["parts"]:
        names = item.get("names") or (plan.get(item["part"]) or {}).get("packages") or [item["part"]]
        found += [str(name) for name in names] + ([item["version"]] if item.get("version") else [])
    return found
