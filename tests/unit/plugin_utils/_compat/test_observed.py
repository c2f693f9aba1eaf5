# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options out of an Observation, out of Ansible's facts, and out of a host's variables."""

from __future__ import annotations

import copy

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import answer, observed

HGX = {
    "schema": 1,
    "host": {
        "os": {"id": "ubuntu", "version": "24.04"},
        "kernel": "6.8.0-60-generic",
        "arch": "x86_64",
        "glibc": "2.39",
        "python": "3.12.3",
        "compiler": "gcc 13.3.0",
        "virtualization": "none",
        "secure_boot": "disabled",
        "dxg": False,
    },
    "pci": [
        {"address": f"0000:{bus:02x}:00.0", "vendor": "10de", "device": "2330", "class": "0302", "role": "gpu"}
        for bus in range(8)
    ]
    + [
        {"address": f"0000:{bus:02x}:00.0", "vendor": "10de", "device": "22a3", "class": "0680", "role": "nvswitch"}
        for bus in range(16, 20)
    ]
    + [{"address": "0000:03:00.0", "vendor": "1a03", "device": "2000", "class": "0300", "role": "display"}],
    "driver": {"owner": "package", "version": "580.95.05", "library_version": "580.95.05", "kernel_module": "open"},
    "nvml": {"state": "ok"},
    "gpus": [
        {
            "index": bus,
            "pci_address": f"00000000:{bus:02X}:00.0",
            "name": "NVIDIA H100 80GB HBM3",
            "compute_capability": "9.0",
        }
        for bus in range(8)
    ],
    "visibility": {"hidden_by": []},
}


def changed(**paths):
    found = copy.deepcopy(HGX)
    for path, value in paths.items():
        *parents, last = path.split("__")
        target = found
        for parent in parents:
            target = target[parent]
        target[last] = value
    return found


def test_a_whole_host():
    options = observed.from_observation(HGX)
    assert options["gpus"] == [{"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}] * 8
    assert options["nvswitch"] == 4
    assert (options["driver"], options["driver_flavour"]) == ("580.95.05", "open")
    plan = answer.answer("latest", options)
    assert plan["status"] == "ok"
    assert plan["torch"]["requirement"] == "torch==2.15.0+cu132"
    assert plan["driver"]["action"] == "keep"
    assert plan["fabric_manager"] == {
        "required": True,
        "basis": "observed",
        "version": "580.95.05",
        "packages": ["nvidia-fabricmanager-580=580.95.05*"],
        "nvlsm": False,
        "imex": False,
        "kernel_modules": [],
    }


@pytest.mark.parametrize(
    ("paths", "option", "expected"),
    [
        # No driver yet: the PCI bus alone names the GPUs.
        ({"gpus": [], "driver": {"owner": "nobody", "version": ""}}, "gpus", ["10de:2330"] * 8),
        # One of eight has fallen off NVML's list: it is still there.
        (
            {"gpus": HGX["gpus"][:7]},
            "gpus",
            [{"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0"}] * 7 + ["10de:2330"],
        ),
        # WSL has no PCI bus: how many NVSwitches is not known.
        ({"pci": []}, "nvswitch", None),
        ({"host__secure_boot": "unknown"}, "secure_boot", "unknown"),
        ({"driver__version": ""}, "driver", "580.95.05"),
        ({"visibility": {"hidden_by": [{"how": "CUDA_VISIBLE_DEVICES", "found": "0"}]}, "gpus": []}, "hidden_by", None),
        ({"visibility": {"hidden_by": [{"how": "slurm", "found": "42"}]}, "gpus": []}, "hidden_by", "slurm (42)"),
        ({"visibility": {"hidden_by": [{"how": "slurm", "found": "42"}]}}, "hidden_by", None),
    ],
)
def test_a_part_that_is_different(paths, option, expected):
    assert observed.from_observation(changed(**paths)).get(option) == expected


def test_nothing_is_planned_from_inside_a_job():
    seen = changed(visibility={"hidden_by": [{"how": "cgroup", "found": "no devices"}]}, gpus=[])
    found = answer.answer("latest", observed.from_observation(seen))
    assert [cause["rule"] for cause in found["conflicts"]] == ["gpus-hidden"]


def test_an_observation_that_saw_nothing_gives_no_options():
    assert observed.from_observation({"schema": 1}) == {"gpus": []}


def test_facts_name_the_system_and_no_gpus():
    facts = {
        "distribution": "Rocky",
        "distribution_version": "9.6",
        "architecture": "aarch64",
        "kernel": "5.14.0-570.el9.aarch64",
        "python_version": "3.9.21",
        "virtualization_type": "kvm",
        "virtualization_role": "host",
    }
    assert observed.from_facts(facts) == {
        "os_id": "Rocky",
        "os_version": "9.6",
        "arch": "aarch64",
        "kernel": "5.14.0-570.el9.aarch64",
        "python": "3.9.21",
    }


def test_wishes_come_from_the_variables_of_the_host():
    options = observed.options({"gpufleet_observed": HGX, "driver_policy": "keep", "cuda_version": "12.8"})
    assert (options["driver_policy"], options["cuda"], options["os_id"]) == ("keep", "12.8", "ubuntu")
    assert observed.options({"ansible_facts": {"kernel": "6.1"}}) == {"kernel": "6.1"}
    assert observed.options({}) == {}
