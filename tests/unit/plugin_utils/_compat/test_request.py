# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of the lookup: read as meant, or refused by name with what is needed."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import gpu
from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat.request import BadOptions, request


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("arch", "x86_64", "x86_64"),
        ("arch", "amd64", "x86_64"),
        ("arch", "arm64", "aarch64"),
        ("os_id", "RedHat", "rhel"),
        ("os_id", "Amazon", "amzn"),
        ("os_version", 12, "12"),
        ("python", "3.12", "3.12"),
        ("python", "3.12.3", "3.12"),
        ("python", "cp313t", "3.13t"),
        ("python", "3.13t", "3.13t"),
        ("cuda", "12.8", "12.8"),
        ("cuda", "cu128", "12.8"),
        ("cuda", "CU130", "13.0"),
        ("cuda", "auto", "auto"),
        ("driver_policy", 580, "580"),
        ("driver_policy", "Keep", "keep"),
        ("secure_boot", "enabled", True),
        ("secure_boot", "not_applicable", False),
        ("secure_boot", "unknown", None),
        ("forward_compat", "yes", True),
        ("nvswitch", "auto", None),
        ("nvswitch", "6", 6),
        ("nvswitch", 0, 0),
        ("driver", "580.95.05", "580.95.05"),
        ("driver", "none", ""),
        ("driver", 580, "580"),
        ("driver", "565.77", "565.77"),
    ],
)
def test_a_value_is_read(option, value, expected):
    assert getattr(request("2.8.0", {option: value}), option) == expected


@pytest.mark.parametrize(
    ("text", "version", "flavour"),
    [
        ("580.95.05-open", "580.95.05", "open"),
        ("580.95.05 proprietary", "580.95.05", "proprietary"),
        ("580.95.05-closed", "580.95.05", "proprietary"),
        ("535.261.03-server", "535.261.03", ""),
        ("580.65.06-0ubuntu1", "580.65.06", ""),
        ("550.163.01", "550.163.01", ""),
    ],
)
def test_a_driver_names_its_module(text, version, flavour):
    asked = request("2.8.0", {"driver": text})
    assert (asked.driver, asked.driver_flavour) == (version, flavour)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["NVIDIA L4", "10de:2330"], (gpu.Wish("NVIDIA L4"), gpu.Wish("10de:2330"))),
        ("NVIDIA L4", (gpu.Wish("NVIDIA L4"),)),
        ([2330], (gpu.Wish("2330"),)),
        ([{"name": "x", "compute_capability": "9.0"}], (gpu.Wish("x", "9.0"),)),
        ([{"name": "x", "compute_capability": 8.9}], (gpu.Wish("x", "8.9"),)),
        ([{"name": "x", "compute_capability": 9}], (gpu.Wish("x", "9.0"),)),
        ({"name": "NVIDIA L4"}, (gpu.Wish("NVIDIA L4"),)),
        (None, ()),
        ([], ()),
    ],
)
def test_gpus_are_read(value, expected):
    assert request("2.8.0", {"gpus": value}).gpus == expected


@pytest.mark.parametrize(
    ("torch", "options", "option", "says"),
    [
        (2.1, {}, "torch", "YAML reads 2.10 as 2.1"),
        (["2.8.0"], {}, "torch", "a version as text"),
        (True, {}, "torch", "a version as text"),
        ("2.8.0", {"cuda": 12.8}, "cuda", "quotes, '12.8'"),
        ("2.8.0", {"cuda": "12"}, "cuda", "cu128"),
        ("2.8.0", {"cuda": "banana"}, "cuda", "banana"),
        ("2.8.0", {"python": 3.1}, "python", "YAML reads 2.10 as 2.1"),
        ("2.8.0", {"python": "2.7"}, "python", "'2.7'"),
        ("2.8.0", {"os_version": 24.04}, "os_version", "quotes, '24.04'"),
        ("2.8.0", {"glibc": "musl"}, "glibc", "musl"),
        ("2.8.0", {"driver": "unknown"}, "driver", "'' for none"),
        ("2.8.0", {"driver": 550.163}, "driver", "quotes"),
        ("2.8.0", {"driver_policy": "newest"}, "driver_policy", "keep, external"),
        ("2.8.0", {"driver_owner": "me"}, "driver_owner", "runfile"),
        ("2.8.0", {"driver_source": "snap"}, "driver_source", "auto, os, nvidia"),
        ("2.8.0", {"kernel_module": "closed"}, "kernel_module", "open, proprietary"),
        ("2.8.0", {"arch": "riscv64"}, "arch", "x86_64 or aarch64"),
        ("2.8.0", {"accelerator": "rocm"}, "accelerator", "auto, cuda, cpu"),
        ("2.8.0", {"nvswitch": -1}, "nvswitch", "whole number"),
        ("2.8.0", {"nvswitch": True}, "nvswitch", "whole number"),
        ("2.8.0", {"nvswitch": "many"}, "nvswitch", "whole number"),
        ("2.8.0", {"secure_boot": "maybe"}, "secure_boot", "true or false"),
        ("2.8.0", {"kernel": 6.12}, "kernel", "text"),
        ("2.8.0", {"gpus": 5}, "gpus", "a list"),
        ("2.8.0", {"gpus": [None]}, "gpus", "product name"),
        ("2.8.0", {"gpus": [{"nom": "x"}]}, "gpus", "product name"),
        ("2.8.0", {"driver_polcy": "keep"}, "driver_polcy", "driver_policy"),
    ],
)
def test_a_bad_value_is_refused_by_name(torch, options, option, says):
    with pytest.raises(BadOptions) as refused:
        request(torch, options)
    (problem,) = refused.value.problems
    assert problem.option == option
    assert says in str(problem)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(BadOptions) as refused:
        request(2.1, {"cuda": 12.8, "driver": "unknown", "foo": 1})
    assert [problem.option for problem in refused.value.problems] == ["torch", "cuda", "driver", "foo"]
