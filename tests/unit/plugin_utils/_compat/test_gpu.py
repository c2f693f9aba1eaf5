# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of GPUs and PCI ids: which product each stands for, and which stand for none."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import gpu, host, loader

DATA = loader.load()


def find(name, capability=""):
    return gpu.find(gpu.Wish(name, capability), DATA)


@pytest.mark.parametrize(
    ("name", "product", "capability", "how"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80GB", "9.0", "name"),
        ("nvidia  h100 80gb hbm3", "H100 SXM5 80GB", "9.0", "name"),
        (" H100 80GB HBM3 ", "H100 SXM5 80GB", "9.0", "name"),
        ("NVIDIA H100 PCIe", "H100 PCIe", "9.0", "name"),
        ("NVIDIA H100 NVL", "H100 NVL 94GB", "9.0", "name"),
        ("NVIDIA H200", "H200 SXM5", "9.0", "name"),
        ("NVIDIA GH200 480GB", "GH200 96GB", "9.0", "name"),
        ("GH200", "GH200 96GB", "9.0", "name"),
        ("NVIDIA GH200 144G HBM3e", "GH200 144GB HBM3e", "9.0", "name"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB", "7.0", "name"),
        ("Tesla V100-SXM3-32GB", "Tesla V100-SXM3-32GB", "7.0", "name"),
        ("Tesla T4", "Tesla T4", "7.5", "name"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM4", "8.0", "name"),
        ("A100-PCIE-40GB", "A100 40GB PCIe", "8.0", "name"),
        ("NVIDIA A10", "A10", "8.6", "name"),
        ("NVIDIA A10G", "A10G", "8.6", "name"),
        ("NVIDIA L40S", "L40S", "8.9", "name"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090", "8.9", "name"),
        ("GeForce RTX 4090", "GeForce RTX 4090", "8.9", "name"),
        ("RTX 4090", "GeForce RTX 4090", "8.9", "name"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "GeForce RTX 4090 Laptop GPU", "8.9", "name"),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "GeForce RTX 2080 with Max-Q Design", "7.5", "name"),
        ("NVIDIA GeForce GTX 1050", "GeForce GTX 1050", "6.1", "name"),
        ("NVIDIA RTX A6000", "RTX A6000", "8.6", "name"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada Generation", "8.9", "name"),
        ("Quadro RTX 6000", "Quadro RTX 6000", "7.5", "name"),
        ("NVIDIA B200", "B200 SXM6", "10.0", "name"),
        ("NVIDIA B300 SXM6 AC", "B300 SXM6", "10.3", "name"),
        ("NVIDIA GB200", "GB200", "10.0", "name"),
        ("NVIDIA GB10", "GB10", "12.1", "name"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100 40GB SXM4", "8.0", "name"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me", "H100 SXM5 80GB", "9.0", "name"),
        ("NVIDIA RTX PRO 4500 Blackwell Server Edition", "RTX PRO 4500 BLACKWELL SERVER EDITION", "12.0", "series"),
        ("NVIDIA GeForce GTX 1080 Ti with Stickers", "GTX 1080 TI WITH STICKERS", "6.1", "series"),
        ("10de:2330", "H100 SXM5 80GB", "9.0", "pci_id"),
        ("2330", "H100 SXM5 80GB", "9.0", "pci_id"),
        ("10DE:20B5", "A100 80GB PCIe", "8.0", "pci_id"),
        ("0x233010DE", "H100 SXM5 80GB", "9.0", "pci_id"),
        ("10de:25b6", "A2 or A16", "8.6", "pci_id"),
    ],
)
def test_a_known_gpu(name, product, capability, how):
    match = find(name)
    assert isinstance(match, gpu.Match)
    assert (match.gpu.product, match.gpu.compute_capability, match.how, match.vgpu) == (product, capability, how, False)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("GRID A100-10C", "8.0"),
        ("GRID A100D-80C", "8.0"),
        ("GRID V100D-32Q", "7.0"),
        ("GRID V100DX-16C", "7.0"),
        ("GRID T4-16C", "7.5"),
        ("NVIDIA A10-24Q", "8.6"),
        ("NVIDIA A16-8Q", "8.6"),
        ("NVIDIA A100-1-5C", "8.0"),
        ("NVIDIA A100-1-5CME", "8.0"),
        ("NVIDIA L40S-48Q", "8.9"),
    ],
)
def test_a_vgpu_is_its_product_and_is_known_as_a_slice(name, capability):
    match = find(name)
    assert isinstance(match, gpu.Match)
    assert (match.gpu.compute_capability, match.vgpu) == (capability, True)


@pytest.mark.parametrize(
    ("name", "near", "hint"),
    [
        ("10de:2c3a", "2c39", "12.0"),
        ("10de:2c30", "2c31", "12.0"),
        ("10de:ffff", "31c2", ""),
        ("4090", "", ""),
        ("NVIDIA RTX 5000", "NVIDIA RTX A5000", ""),
        ("NVIDIA Z9000", "", ""),
        ("AMD Instinct MI300X", "", ""),
        ("1002:74a1", "", "not one of NVIDIA's"),
        ("H", "", ""),
        ("", "", "empty"),
        ("   ", "", "empty"),
    ],
)
def test_an_unknown_gpu_stays_unknown_and_its_neighbours_are_named(name, near, hint):
    unknown = find(name)
    assert isinstance(unknown, gpu.Unknown)
    assert near in " ".join(unknown.nearest)
    assert hint in unknown.hint


def test_gh200_is_no_h200_and_the_ids_differ():
    superchip, card = find("NVIDIA GH200 480GB"), find("NVIDIA H200")
    assert superchip.gpu.grace and not card.gpu.grace
    assert host.flavours(superchip, DATA) == ("open",)
    assert host.flavours(card, DATA) == ("open", "proprietary")
    assert set(superchip.gpu.pci_ids).isdisjoint(card.gpu.pci_ids)


@pytest.mark.parametrize(
    ("name", "capability", "expected"),
    [
        ("NVIDIA Z9000", "9.0", "9.0"),
        ("", "12.0", "12.0"),
        ("10de:2c3a", "12.0", "12.0"),
        ("NVIDIA H100 PCIe", "9.0", "9.0"),
    ],
)
def test_a_stated_compute_capability_is_taken(name, capability, expected):
    match = find(name, capability)
    assert isinstance(match, gpu.Match)
    assert match.gpu.compute_capability == expected
    assert match.stated


@pytest.mark.parametrize(
    ("name", "capability", "hint"),
    [("NVIDIA H100 PCIe", "8.0", "has compute capability 9.0, stated is 8.0"), ("NVIDIA Z9000", "sm_90", "form 9.0")],
)
def test_a_stated_compute_capability_that_cannot_be(name, capability, hint):
    unknown = find(name, capability)
    assert isinstance(unknown, gpu.Unknown)
    assert hint in unknown.hint


@pytest.mark.parametrize("row", DATA.gpus, ids=lambda row: row.product)
def test_every_name_and_id_of_the_data_is_found(row):
    for name in row.names:
        match = find(name)
        assert isinstance(match, gpu.Match)
        assert match.gpu.compute_capability == row.compute_capability
    for pci_id in row.pci_ids:
        match = find(f"10de:{pci_id}")
        assert isinstance(match, gpu.Match)
        assert match.gpu.compute_capability == row.compute_capability
