# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import pci


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:1b:00.0", "0000:1b:00.0"),
        ("1B:00.0", "0000:1b:00.0"),
        ("00000009:01:00.0", "0009:01:00.0"),
        ("10000:E1:00.0", "10000:e1:00.0"),
        ("0000:00:1E.0\n", "0000:00:1e.0"),
        ("N/A", "n/a"),
    ],
)
def test_address_is_written_as_in_sysfs(text: str, address: str) -> None:
    assert pci.normalise_address(text) == address


@pytest.mark.parametrize(
    ("vendor", "device", "klass", "role"),
    [
        ("10de", "2330", "0302", "gpu"),  # H100 SXM
        ("10de", "2684", "0300", "gpu"),  # GeForce RTX 4090, drives a display
        ("10de", "1af1", "0680", "nvswitch"),  # NVSwitch of an A100 board
        ("10de", "22ba", "0403", None),  # the audio function of a GeForce
        ("1002", "74a1", "1200", "accelerator"),  # AMD Instinct MI300X
        ("1002", "740f", "0380", "accelerator"),  # AMD Instinct MI210: a display controller by its class
        ("8086", "0bd5", "0380", "accelerator"),  # Intel Data Center GPU Max 1550, likewise
        ("1da3", "1020", "1200", "accelerator"),  # Habana Gaudi 2
        ("1d0f", "7164", "0880", "accelerator"),  # AWS Trainium: a system peripheral by its class
        ("1a03", "2000", "0300", "display"),  # ASPEED, a BMC
        ("102b", "0536", "0300", "display"),  # Matrox G200eW3, a BMC
        ("1af4", "1050", "0300", "display"),  # virtio
        ("8086", "9a49", "0300", "display"),  # Intel Iris Xe, integrated
        ("1002", "744c", "0300", "display"),  # AMD Radeon RX 7900: drives a display
        ("15b3", "101c", "0207", None),
    ],
)
def test_role(vendor: str, device: str, klass: str, role: t.Optional[str]) -> None:
    assert pci.role_of(vendor, device, klass) == role


def test_device_as_it_is_returned(machine: t.Any) -> None:
    machine.pci("0000:1b:00.0 0302 10de:2330 10de:16c1", driver="nvidia", numa="0")
    machine.pci("0000:3b:00.0 0302 10de:2330", driver="vfio-pci", numa="-1", virtual=True)
    machine.pci("0000:5e:00.0 0200 15b3:1021", driver="mlx5_core")
    assert pci.probe(machine.runner()) == [
        {
            "address": "0000:1b:00.0",
            "vendor": "10de",
            "device": "2330",
            "class": "0302",
            "subsystem": "10de:16c1",
            "driver": "nvidia",
            "numa_node": 0,
            "virtual_function": False,
            "role": "gpu",
        },
        {
            "address": "0000:3b:00.0",
            "vendor": "10de",
            "device": "2330",
            "class": "0302",
            "subsystem": None,
            "driver": "vfio-pci",
            "numa_node": None,
            "virtual_function": True,
            "role": "gpu",
        },
    ]


def test_azure_a100_host_with_a_domain_a_device(machine: t.Any) -> None:
    """8 GPUs and 6 NVSwitches, each in a PCI domain of its own, as a virtual machine of eight A100 shows them."""
    for domain in (1, 2, 3, 4, 0xB, 0xC, 0xD, 0xE):
        machine.pci(f"{domain:04x}:00:00.0 0302 10de:20b2")
    for domain in range(5, 0xB):
        machine.pci(f"{domain:04x}:00:00.0 0680 10de:1af1")
    machine.pci("0101:00:00.0 0207 15b3:101c")
    found = pci.probe(machine.runner())
    assert [device["role"] for device in found].count("gpu") == 8
    assert [device["role"] for device in found].count("nvswitch") == 6
    assert found[-1]["address"] == "000e:00:00.0"


def test_machine_without_pci(machine: t.Any) -> None:
    assert pci.probe(machine.runner()) == []
