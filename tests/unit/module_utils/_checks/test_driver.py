# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import driver

PACKAGE = {"owner": "package", "evidence": "libcuda1 570.158.01-1 owns /usr/lib64/libcuda.so.570.158.01"}
RUNFILE = {"owner": "runfile", "evidence": "/usr/lib64/libcuda.so.580.65.06 is no package's"}


def library(version: str, package: t.Optional[str] = None) -> t.Dict[str, t.Any]:
    return {"name": "libcuda.so.1", "path": f"/usr/lib64/of-{version}", "version": version, "package": package}


def host(
    owner: str = "package",
    owners: t.Sequence[t.Dict[str, str]] = (PACKAGE,),
    module: str = "570.158.01",
    libraries: t.Sequence[t.Dict[str, t.Any]] = (library("570.158.01", "libcuda1 570.158.01-1"),),
    nvml: str = "ok",
    error: str = "",
    errors: t.Optional[t.Dict[str, str]] = None,
    bound: int = 0,
    nodes: t.Sequence[str] = (),
    hidden: bool = False,
    dxg: bool = False,
) -> t.Dict[str, t.Any]:
    return {
        "driver": {
            "owner": owner,
            "owners": list(owners),
            "version": module,
            "library_version": libraries[0]["version"] if libraries else "",
            "libraries": list(libraries),
        },
        "host": {"dxg": dxg},
        "pci": [{"address": f"0000:{bus:02x}:00.0", "role": "gpu", "driver": "nvidia"} for bus in range(bound)],
        "visibility": {"hidden_by": [{"how": "cgroup", "found": ""}] if hidden else [], "device_nodes": list(nodes)},
        "nvml": {"state": nvml, "error": error},
        "errors": errors or {},
    }


OK = ("driver-owners", "ok", "none")

HOSTS: t.Dict[str, t.Tuple[t.Dict[str, t.Any], t.List[t.Tuple[str, str, str]]]] = {
    "no driver": (host("nobody", [], "", [], "no_library"), []),
    "a package": (host(), [OK]),
    "copied by hand": (
        host("unknown", [{"owner": "unknown", "evidence": "no package's"}]),
        [("driver-owners", "warn", "none")],
    ),
    "two owners, two versions": (
        host("multiple", [PACKAGE, RUNFILE], libraries=[library("570.158.01", "libcuda1 570"), library("580.65.06")]),
        [("driver-owners", "fail", "fix configuration"), ("driver-libraries", "fail", "fix configuration")],
    ),
    "580.178 over 580.173.02": (
        host(module="580.173.02", libraries=[library("580.178")], nvml="mismatch"),
        [OK, ("driver-library-mismatch", "fail", "reboot")],
    ),
    "NVML says mismatch and the files do not": (
        host(nvml="mismatch", error="Driver/library version mismatch"),
        [OK, ("driver-library-mismatch", "fail", "reboot")],
    ),
    "module not loaded": (host(module="", nvml="no_driver"), [OK]),
    "WSL, whose files name no version": (host("wsl", [], "", [library("")], "ok"), [OK]),
    "a hang": (host(nvml="timeout", error="no answer"), [OK, ("driver-answers", "unknown", "reboot")]),
    "an error": (host(nvml="error", error="Unknown Error"), [OK, ("driver-answers", "unknown", "drain and inspect")]),
    "every node": (
        host(bound=2, nodes=["nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl"]),
        [OK, ("device-nodes", "ok", "none")],
    ),
    "nodes that their first use makes": (
        host(bound=2, nodes=["nvidia0", "nvidia1", "nvidiactl"]),
        [OK, ("device-nodes", "warn", "none")],
    ),
    "a node too few": (
        host(bound=2, nodes=["nvidia-uvm", "nvidia0", "nvidiactl"]),
        [OK, ("device-nodes", "fail", "fix configuration")],
    ),
    "no node at all": (host(bound=1), [OK, ("device-nodes", "fail", "fix configuration")]),
    "nodes that a cgroup hides": (host(bound=2, nodes=["nvidia0"], hidden=True), [OK]),
    "WSL has no nodes": (host("wsl", [], "", [], dxg=True, bound=0), [OK]),
    "the package database does not answer": (
        host(errors={"driver": "OSError: rpm -qf: no answer within the time limit"}),
        [("driver-owners", "unknown", "fix configuration")],
    ),
}


@pytest.mark.parametrize("name", HOSTS)
def test_driver(name: str) -> None:
    observed, wanted = HOSTS[name]
    assert [(finding.check, finding.state, finding.action) for finding in driver.check(observed)] == wanted


def test_both_owners_and_both_versions_are_named() -> None:
    observed, _wanted = HOSTS["two owners, two versions"]
    owners, libraries = driver.check(observed)
    assert PACKAGE["evidence"] in owners.found and RUNFILE["evidence"] in owners.found
    assert "570.158.01" in libraries.found and "580.65.06" in libraries.found and "no package" in libraries.found


def test_mismatch_names_the_whole_versions() -> None:
    observed, _wanted = HOSTS["580.178 over 580.173.02"]
    assert "580.173.02" in driver.check(observed)[1].found and "580.178" in driver.check(observed)[1].found
