# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts gather packages, one for each system, and which archive of a bundle is for a host."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle.manifest import APT, BundleProblem

Vars = t.Mapping[str, t.Any]


def kind(seen: Vars) -> str:
    """What hosts have in common that install from the same packages: ``debian-12-x86_64``, of an observation."""
    host = seen["host"]
    return f"{host['os']['id']}-{host['os']['version']}-{host['arch']}"


def gathering(hosts: t.Mapping[str, Vars]) -> dict[str, str]:
    """The host that gathers for each kind, the first with packages to install.

    ``hosts``: by name ``observed`` and ``plan``. Raises BundleProblem where hosts of one kind are to get other
    packages, since a bundle holds one set for each.
    """
    first: dict[str, str] = {}
    for name, host in hosts.items():
        wanted = _wanted(host["plan"])
        if not wanted:
            continue
        of = kind(host["observed"])
        other = first.setdefault(of, name)
        if wanted != _wanted(hosts[other]["plan"]):
            has = ", ".join(_wanted(hosts[other]["plan"]))
            raise BundleProblem(
                f"{other} and {name} are both {of} and are to get other packages ({has}; {', '.join(wanted)}):"
                " make a bundle for each, with --limit and another bundle_directory"
            )
    return first


def archive(files: t.Iterable[str], seen: Vars) -> str:
    """The archive of packages for a host among a bundle's files, "" where there is none."""
    return next((name for name in sorted(files) if name.startswith(f"{APT}/{kind(seen)}-")), "")


def changes(plan: Vars) -> bool:
    """Whether the plan installs packages of a driver."""
    return (plan.get("driver") or {}).get("action") in ("install", "upgrade", "downgrade")


def _wanted(plan: Vars) -> list[str]:
    if not changes(plan):
        return []
    return [str(name) for part in ("driver", "fabric_manager") for name in (plan.get(part) or {}).get("packages") or ()]
