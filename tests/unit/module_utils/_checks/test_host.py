# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a host's settings and limits, on a healthy host with one fact changed; and where nothing is asked."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import host, limits, rdma

Facts = t.Dict[str, t.Any]
CHECKS = (*host.CHECKS, *rdma.CHECKS, *limits.CHECKS)
NA = "not_supported"
GIB = 1 << 30


def adapter(index: int, **port: t.Any) -> Facts:
    ports = [{"port": "1", "state": "active", "gbps": 400.0, "link_layer": "InfiniBand", **port}]
    return {"name": f"mlx5_{index}", "type": "MT4129", "firmware": "28.43.1014", "ports": ports}


GPUS = [f"0000:{0x10 + index:02x}:00.0" for index in range(4)]
SERVER: Facts = {
    "host": {"virtualization": "none", "arch": "x86_64", "kernel": "6.1.0-50-amd64"},
    "driver": {"version": "580.105.08", "kernel_module": "open"},
    "pci": [{"role": "gpu", "address": address, "numa_node": index // 2} for index, address in enumerate(GPUS)],
    "gpus": [{"index": index, "uuid": f"GPU-{index}", "pci_address": one} for index, one in enumerate(GPUS)],
    "errors": {},
    "settings": {
        "command_line": "BOOT_IMAGE=/vmlinuz ro quiet iommu=pt mitigations=off",
        "numa_nodes": 2,
        "numa_balancing": 0,
        "governors": {"performance": 128},
        "battery": False,
        "clocksource": "tsc",
        "huge_pages": {"memory_kib": 2 << 30, "reserved_kib": 0, "transparent": "madvise"},
        "iommu": dict.fromkeys(GPUS, "identity"),
        "acs": {"0000:0f:00.0": 0, "0000:0e:00.0": NA},
        "aer": {address: {"nonfatal": 0, "fatal": 0} for address in GPUS},
        "modules": ["ib_core"],
        "driver_parameters": {},
        "adapters": [adapter(index) for index in range(4)],
    },
    "limits": {
        "memlock": "unlimited",
        "open_files": 1048576,
        "configured": [],
        "shared_memory": 512 * GIB,
        "files": {"used": 9000, "most": 1000000},
        "tasks": {"used": 9000, "most": 100000},
        "variables": [],
    },
}
VM: Facts = {"host.virtualization": "kvm"}
#: A desktop with one card: what is on by default there is no fault.
DESKTOP: Facts = {
    "pci": SERVER["pci"][:1],
    "gpus": SERVER["gpus"][:1],
    "settings.adapters": [],
    "settings.iommu": {GPUS[0]: "DMA-FQ"},
    "settings.acs": {"0000:0f:00.0": 0x1D},
    "settings.numa_nodes": 1,
    "settings.numa_balancing": 1,
    "limits.memlock": 8 << 20,
    "limits.shared_memory": 16 * GIB,
}
LAPTOP: Facts = {**DESKTOP, "settings.governors": {"powersave": 16}, "settings.battery": True}


def observed(changes: t.Mapping[str, t.Any]) -> Facts:
    facts = copy.deepcopy(SERVER)
    for path, value in changes.items():
        place = facts
        *folders, name = path.split(".")
        for folder in folders:
            place = place[folder]
        place[name] = value
    return facts


def states(facts: Facts) -> t.Dict[str, str]:
    return {one.check: one.state for check in CHECKS for one in check.findings(facts)}


def variable(name: str, value: str) -> Facts:
    return {"limits.variables": [{"file": "/etc/environment", "name": name, "value": value}]}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        VM,
        DESKTOP,
        LAPTOP,
        # A cloud's machine with its usual settings.
        {**VM, "settings.numa_balancing": 1, "settings.iommu": dict.fromkeys(GPUS, "DMA"),
         "settings.clocksource": "kvm-clock", "settings.acs": {"0000:0f:00.0": 0x1D}, "settings.governors": NA,
         "pci": [{"role": "gpu", "address": GPUS[0]}]},
        {"settings.iommu": dict.fromkeys(GPUS, "none"), "settings.governors": NA, "settings.numa_balancing": NA},
        {"settings.modules": ["nvidia_peermem"], "driver.kernel_module": "proprietary"},
        {"limits.memlock": 65536, "limits.configured": [{"domain": "*", "type": "-", "item": "memlock",
                                                         "value": "-1"}]},
        {"limits.open_files": 1024, "limits.configured": [{"domain": "*", "type": "hard", "item": "nofile",
                                                           "value": "1048576"}]},
        variable("NCCL_DEBUG", "WARN"),
        variable("NCCL_P2P_DISABLE", "0"),
        variable("NCCL_SOCKET_IFNAME", "eth0"),
        variable("CUDA_VISIBLE_DEVICES", "0,1,2,3"),
        variable("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        {**DESKTOP, **variable("NCCL_IB_DISABLE", "1")},
        # One port that none uses; two adapters of which nobody can say which is right.
        {"settings.adapters": [adapter(index, state="down") for index in range(4)]},
        {"settings.adapters": [adapter(0), adapter(1, gbps=200.0)]},
    ],
)  # fmt: skip
def test_nothing_to_explain(changes: Facts) -> None:
    assert set(states(observed(changes)).values()) <= {"ok", "not_applicable"}


#: what is changed; the check, its state, its action, a part of what is found
CASES: t.List[t.Tuple[Facts, str, str, str, str]] = [
    ({"settings.acs": {"0000:0f:00.0": 0x1D}}, "acs", "warn", "fix configuration", "SrcValid+ ReqRedir+ Cmplt"),
    ({"settings.acs": {"0000:0f:00.0": 0x1, "0000:0e:00.0": 0x1}}, "acs", "warn", "fix configuration", "and 1 more"),
    ({"settings.acs": {"0000:0f:00.0": None}}, "acs", "unknown", "none", "cannot be read"),
    ({"settings.iommu": dict.fromkeys(GPUS, "DMA-FQ")}, "iommu", "warn", "fix configuration", "4 of 4 GPUs (DMA-FQ)"),
    ({"settings.iommu": dict.fromkeys(GPUS)}, "iommu", "unknown", "none", "cannot be read"),
    ({"settings.numa_balancing": 1}, "numa-balancing", "warn", "fix configuration", "on"),
    ({"settings.governors": {"performance": 1, "schedutil": 127}}, "cpu-governor", "warn", "fix configuration",
     "schedutil on 127 CPUs"),
    ({"settings.huge_pages": {"memory_kib": 2 << 30, "reserved_kib": 1 << 30, "transparent": "never"}}, "huge-pages",
     "warn", "fix configuration", "1024 of 2048 GiB"),
    ({"settings.clocksource": "hpet"}, "clock-source", "warn", "drain and inspect", "hpet"),
    ({"settings.command_line": "ro maxcpus=8 quiet"}, "kernel-command-line", "warn", "fix configuration", "maxcpus=8"),
    ({"settings.command_line": None}, "kernel-command-line", "unknown", "none", "command_line"),
    ({"settings.modules": ["nouveau"]}, "nouveau", "warn", "fix configuration", "nouveau"),
    ({"pci": [{"role": "gpu", "address": one, "numa_node": None} for one in GPUS]}, "gpu-numa", "warn",
     "fix configuration", "no GPU has a NUMA node"),
    ({"pci": [*SERVER["pci"][:3], {"role": "gpu", "address": GPUS[3], "numa_node": None}]}, "gpu-numa", "warn",
     "fix configuration", GPUS[3]),
    ({"settings.aer": {**SERVER["settings"]["aer"], GPUS[1]: {"nonfatal": 2, "fatal": None}}}, "pcie-aer", "warn",
     "drain and inspect", f"GPU at {GPUS[1]}: 0 fatal, 2 others"),
    ({"driver.kernel_module": "proprietary"}, "peer-memory", "warn", "fix configuration", "neither"),
    ({"host.kernel": "5.4.0-200-generic"}, "peer-memory", "warn", "fix configuration", "neither"),
    ({"settings.adapters": [adapter(0, state="down"), *(adapter(one) for one in range(1, 4))]}, "rdma-links", "warn",
     "drain and inspect", "mlx5_0 port 1: down"),
    ({"settings.adapters": [adapter(0, gbps=200.0), *(adapter(one) for one in range(1, 4))]}, "rdma-links", "warn",
     "drain and inspect", "mlx5_0 port 1: 200 Gb/s"),
    ({"limits.memlock": 8 << 20}, "locked-memory", "warn", "fix configuration", "8192 KiB"),
    ({"limits.open_files": 4096}, "open-files", "warn", "fix configuration", "4096"),
    ({"limits.shared_memory": 64 << 20}, "shared-memory", "fail", "fix configuration", "64 MiB"),
    ({"limits.shared_memory": 3 * GIB}, "shared-memory", "warn", "fix configuration", "3.0 GiB"),
    ({"limits.shared_memory": None}, "shared-memory", "unknown", "none", "could not be read"),
    ({"limits.files": {"used": 8, "most": 10}}, "file-handles", "warn", "fix configuration", "8 of 10 open files"),
    ({"limits.tasks": {"used": 95, "most": 100}}, "tasks", "warn", "fix configuration", "95 of 100 tasks"),
    ({"limits.tasks": None}, "tasks", "unknown", "none", "limits.tasks"),
    *(
        (variable(name, value), "debug-variables", "warn", "fix configuration", f"{name}={value} in /etc/environment")
        for name, value in (
            ("NCCL_DEBUG", "INFO"),
            ("NCCL_P2P_DISABLE", "1"),
            ("NCCL_IB_DISABLE", "1"),
            ("NCCL_NVLS_ENABLE", "0"),
            ("NCCL_MNNVL_ENABLE", "0"),
            ("NCCL_ASYNC_ERROR_HANDLING", "1"),
            ("NCCL_BLOCKING_WAIT", "1"),
            ("CUDA_LAUNCH_BLOCKING", "1"),
            ("CUDA_VISIBLE_DEVICES", "0"),
            ("CUDA_INJECTION64_PATH", "/opt/x.so"),
            ("COMPUTE_PROFILE", "1"),
            ("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "name", "state", "action", "text"), CASES, ids=lambda value: str(value)[:50])
def test_case(changes: Facts, name: str, state: str, action: str, text: str) -> None:
    facts = observed(changes)
    (check,) = (one for one in CHECKS if one.name == name)
    (finding,) = check.findings(facts)
    assert (finding.state, finding.action, finding.policy) == (state, action, "report")
    assert text in finding.found
    others = {check: state for check, state in states(facts).items() if check != name}
    assert set(others.values()) <= {"ok", "not_applicable"}


def test_every_check_has_its_case() -> None:
    assert {name for _changes, name, _state, _action, _text in CASES} == {check.name for check in CHECKS}


def test_without_an_nvidia_gpu_nothing_is_asked() -> None:
    facts = observed({"pci": [{"role": "display", "address": "0000:01:00.0"}], "gpus": []})
    assert [check.findings(facts) for check in CHECKS] == [[]] * len(CHECKS)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.name))
def test_a_part_that_failed_is_unknown_and_one_that_was_not_read_is_not_asked(check: t.Any) -> None:
    part = check.needs[0].split(".")[0]
    (finding,) = check.findings({**observed({}), part: {}, "errors": {part: "OSError"}})
    assert finding.state == "unknown"
    (finding,) = check.findings({**observed({}), part: {}})
    assert finding.state == "not_applicable"
