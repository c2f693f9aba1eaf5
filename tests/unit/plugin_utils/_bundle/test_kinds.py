# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host of each system gathers packages, and each host finds those of its own system."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle import kinds
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._bundle.manifest import BundleProblem


def host(
    version: str = "12",
    action: str = "install",
    packages: tuple[str, ...] = ("nvidia-smi",),
    arch: str = "x86_64",
    parts: tuple[str, ...] = (),
):
    return {
        "observed": {"host": {"os": {"id": "debian", "version": version}, "arch": arch}},
        "plan": {
            "driver": {"action": action, "packages": list(packages)},
            "nccl": {"packages": ["libnccl2=2.26.2-1*"]},
        },
        "parts": [{"part": part} for part in parts],
    }


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ({"a": host(), "b": host()}, {"debian-12-x86_64": "a"}),
        ({"a": host(action="keep"), "b": host()}, {"debian-12-x86_64": "b"}),
        ({"a": host(), "b": host("13"), "c": host("13")}, {"debian-12-x86_64": "a", "debian-13-x86_64": "b"}),
        ({"a": host(), "b": host(arch="aarch64")}, {"debian-12-x86_64": "a", "debian-12-aarch64": "b"}),
        ({"a": host(action="keep")}, {}),
        ({"a": host(action="keep"), "b": host(action="keep", parts=("nccl",))}, {"debian-12-x86_64": "b"}),
        ({"a": {**host(), "plan": {}}}, {}),
    ],
)
def test_one_of_each_kind_gathers(hosts, expected):
    assert kinds.gathering(hosts) == expected


def test_two_sets_for_one_kind_are_refused():
    hosts = {"a": host(packages=("nvidia-smi",)), "b": host(packages=("nvidia-smi", "nvidia-open-570"))}
    with pytest.raises(BundleProblem, match="a and b are both debian-12-x86_64"):
        kinds.gathering(hosts)
    hosts = {"a": host(parts=("nccl",)), "b": host(parts=("nccl", "container_toolkit"))}
    with pytest.raises(BundleProblem, match=r"\(nvidia-smi, libnccl2=2.26.2-1\*; .*, container_toolkit\)"):
        kinds.gathering(hosts)


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        ({}, []),
        ({"cuda_packages": True, "nccl_packages": False}, [{"part": "cuda"}]),
        ({"cuda_packages": True, "cuda_from": "wheels"}, []),
        ({"cuda_packages": "no", "nccl_packages": "true"}, [{"part": "nccl"}]),
        (
            {"cuda_compiler": True, "cuda_compiler_packages": ["gcc-12"], "cudnn_packages": True},
            [{"part": "compiler", "names": ["gcc-12"]}, {"part": "cudnn"}],
        ),
        (
            {"container_toolkit_for": ["podman"], "container_toolkit_version": "1.19.0"},
            [{"part": "container_toolkit", "version": "1.19.0"}],
        ),
        ({"container_toolkit_for": [], "container_toolkit_version": "1.19.0"}, []),
    ],
)
def test_parts(wishes, expected):
    assert kinds.parts({"gpufleet_plan": {"accelerator": "cuda"}, **wishes}) == expected
    compiler = [item for item in expected if item["part"] == "compiler"]
    assert kinds.parts({"gpufleet_plan": {"accelerator": "cpu"}, **wishes}) == compiler


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (host(), "packages/debian-12-x86_64-0123.tar"),
        (host("13"), "packages/debian-13-x86_64-4567.tar"),
        (host("1"), ""),
        (host(arch="aarch64"), ""),
    ],
)
def test_archive(seen, expected):
    files = [
        "fleet.lock",
        "packages/debian-13-x86_64-4567.tar",
        "packages/debian-12-x86_64-0123.tar",
        "wheels/debian-12-x86_64-1.whl",
    ]
    assert kinds.archive(files, seen["observed"]) == expected
