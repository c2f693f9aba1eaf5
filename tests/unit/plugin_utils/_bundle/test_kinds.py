# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host of each system gathers packages, and each host finds those of its own system."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import kinds
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle.manifest import BundleProblem


def host(
    version: str = "12", action: str = "install", packages: tuple[str, ...] = ("nvidia-smi",), arch: str = "x86_64"
):
    return {
        "observed": {"host": {"os": {"id": "debian", "version": version}, "arch": arch}},
        "plan": {"driver": {"action": action, "packages": list(packages)}},
    }


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ({"a": host(), "b": host()}, {"debian-12-x86_64": "a"}),
        ({"a": host(action="keep"), "b": host()}, {"debian-12-x86_64": "b"}),
        ({"a": host(), "b": host("13"), "c": host("13")}, {"debian-12-x86_64": "a", "debian-13-x86_64": "b"}),
        ({"a": host(), "b": host(arch="aarch64")}, {"debian-12-x86_64": "a", "debian-12-aarch64": "b"}),
        ({"a": host(action="keep")}, {}),
        ({"a": {**host(), "plan": {}}}, {}),
    ],
)
def test_one_of_each_kind_gathers(hosts, expected):
    assert kinds.gathering(hosts) == expected


def test_two_sets_for_one_kind_are_refused():
    hosts = {"a": host(packages=("nvidia-smi",)), "b": host(packages=("nvidia-smi", "nvidia-open-570"))}
    with pytest.raises(BundleProblem, match="a and b are both debian-12-x86_64"):
        kinds.gathering(hosts)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (host(), "apt/debian-12-x86_64-0123.tar"),
        (host("13"), "apt/debian-13-x86_64-4567.tar"),
        (host("1"), ""),
        (host(arch="aarch64"), ""),
    ],
)
def test_archive(seen, expected):
    files = [
        "fleet.lock",
        "apt/debian-13-x86_64-4567.tar",
        "apt/debian-12-x86_64-0123.tar",
        "wheels/debian-12-x86_64-1.whl",
    ]
    assert kinds.archive(files, seen["observed"]) == expected
