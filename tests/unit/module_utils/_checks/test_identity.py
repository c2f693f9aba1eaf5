# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is, in few words; what is not known is left out."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import identity

H100 = {"name": "NVIDIA H100 80GB HBM3", "vbios": "96.00.89.00.01", "power": {"limit_w": 700.0}}
LIMITED = {**H100, "power": {"limit_w": 500.0}}
HOST = {"os": {"id": "debian", "version": "12"}, "kernel": "6.1.0-50-amd64"}


@pytest.mark.parametrize(
    ("observed", "environment", "expected"),
    [
        ({}, {}, {"gpus": "none"}),
        (
            {"host": HOST, "driver": {"version": "", "kernel_module": ""}, "gpus": []},
            {"torch_version": "2.13.0+cpu", "python_version": "3.11.2"},
            {"gpus": "none", "os": "debian 12", "kernel": "6.1.0-50-amd64", "torch": "2.13.0+cpu", "python": "3.11.2"},
        ),
        (
            {
                "host": HOST,
                "driver": {"version": "580.95.05", "kernel_module": "open"},
                "gpus": [H100] * 7 + [LIMITED],
            },
            {"torch_version": None, "error": "no interpreter"},
            {
                "gpus": "8 x NVIDIA H100 80GB HBM3", "os": "debian 12", "kernel": "6.1.0-50-amd64",
                "driver": "580.95.05", "kernel module": "open", "VBIOS": "8 x 96.00.89.00.01",
                "power limit W": "1 x 500.0, 7 x 700.0",
            },
        ),
        # A GPU that is lost tells no name: such a host is of another kind and is compared with nobody.
        (
            {"host": {"kernel": None, "os": {"id": "arch", "version": None}}, "gpus": [H100, {"state": "lost"}]},
            {},
            {"gpus": "1 x NVIDIA H100 80GB HBM3", "os": "arch", "VBIOS": "1 x 96.00.89.00.01",
             "power limit W": "1 x 700.0"},
        ),
        ({"gpus": [{"name": "GRID A100", "vbios": "not_supported", "power": {"limit_w": "not_supported"}}]}, {},
         {"gpus": "1 x GRID A100"}),
    ],
)  # fmt: skip
def test_of(observed, environment, expected):
    assert identity.of(observed, environment) == expected
