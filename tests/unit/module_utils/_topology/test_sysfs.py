# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The PCI tree as it is read, the file that is made of it, and what is found wrong with a file on a machine."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import build, shapes, sysfs, tree, validate
from ansible_collections.gpufleet.pytorch.tests.unit.module_utils._topology.conftest import Host


def test_a_tree_with_switches(host: Host) -> None:
    host.hgx()
    seen = sysfs.read(host.machine.runner())
    assert sysfs.of_kind(seen, "gpu") == ["0000:1a:00.0", "0000:9a:00.0"]
    gpu, nic = seen["devices"]["0000:1a:00.0"], seen["devices"]["0000:1b:00.0"]
    assert gpu["parents"] == ["0000:17:01.0", "0000:18:00.0", "0000:19:00.0"]
    assert nic["names"] == [{"name": "mlx5_0", "port": 1, "mbps": 400000, "guid": None}]
    links = {"0000:1a:00.0": {"index": 0, "compute_capability": "9.0", "links": {"0000:06:00.0": 18}}}
    system = build.build(seen, links, "x86_64")
    assert tree.as_read(tree.parse(tree.write(system))) == tree.as_read(system)
    assert validate.problems(system, seen) == []
    assert [cpu.attributes["numaid"] for cpu in system.children] == ["0", "1"]
    (nvlink,) = system.walk("nvlink")
    assert nvlink.attributes == {"target": "0000:06:00.0", "count": "18", "tclass": "0x068000"}
    (first, _second) = system.walk("gpu")
    assert first.attributes == {"dev": "0", "sm": "90"}


@pytest.mark.parametrize("shape", [one for one in shapes.SHAPES if one.hides], ids=lambda one: one.name)
def test_a_published_machine_is_recognised_and_its_file_fits(host: Host, shape: shapes.Shape) -> None:
    host.shape(shape)
    seen = sysfs.read(host.machine.runner())
    assert shapes.recognise(seen) is shape
    assert [one for one in validate.problems(shapes.build(shape), seen) if one.weight == "wrong"] == []


def test_what_is_no_such_machine(host: Host) -> None:
    host.shape(shapes.BY_NAME["azure-nd-a100-v4"])
    for vendor in ("QEMU", ""):
        host.dmi(vendor, "Virtual Machine")
        assert shapes.recognise(sysfs.read(host.machine.runner())) is None
    host.dmi("Microsoft Corporation", "Virtual Machine")
    host.gpu("000f:00:00.0", "20b0")  # one more
    assert shapes.recognise(sysfs.read(host.machine.runner())) is None


def test_nothing_to_read(host: Host) -> None:
    seen = sysfs.read(host.machine.runner())
    assert (seen["devices"], seen["nodes"], seen["vendor"]) == ({}, {}, "")
    assert tree.write(build.build(seen, {}, "x86_64")) == '<system version="1"/>\n'


@pytest.mark.parametrize("numa", ["-1", "", None, "x"])
def test_no_numa_node(host: Host, numa: t.Any) -> None:
    host.gpu("0000:3b:00.0", numa=numa)
    seen = sysfs.read(host.machine.runner())
    assert seen["devices"]["0000:3b:00.0"]["numa_node"] is None
    (cpu,) = build.build(seen, {}, "x86_64").children
    assert cpu.attributes["numaid"] == "-1"


def test_truncated_files(host: Host) -> None:
    host.gpu("0000:3b:00.0", max_link_speed="", max_link_width="", current_link_width="Unknown", subsystem_device=None)
    host.machine.file("/sys/devices/system/node/node0/cpulist", "")
    seen = sysfs.read(host.machine.runner())
    device = seen["devices"]["0000:3b:00.0"]
    assert device["link"]["width"] is None and device["subsystem_device"] is None and seen["nodes"] == {}
    (pci,) = build.build(seen, {}, "x86_64").walk("pci")
    assert (pci.attributes["link_speed"], pci.attributes["link_width"]) == ("", "")


def test_sixteen_gpus_on_other_domains_and_a_domain_that_nccl_cannot_name(host: Host) -> None:
    for number in range(16):
        host.gpu(f"{number:04x}:00:00.0")
    host.gpu("10000:01:00.0")  # behind Intel VMD
    seen = sysfs.read(host.machine.runner())
    assert len(sysfs.of_kind(seen, "gpu")) == 17
    (problem,) = validate.problems(build.build(seen, {}, "x86_64"), seen)
    assert problem.weight == "wrong" and "10000:01:00.0" in problem.text


@pytest.mark.parametrize(
    ("device", "port", "speed", "width"),
    [
        (("16.0 GT/s PCIe", "16"), ("32.0 GT/s PCIe", "8"), "16.0 GT/s PCIe", "8"),
        (("32.0 GT/s PCIe", "16"), ("8.0 GT/s PCIe", "16"), "8.0 GT/s PCIe", "16"),
        (("Unknown", "16"), ("8.0 GT/s PCIe", "16"), "8.0 GT/s PCIe", "16"),
        (("Unknown", "0"), ("Unknown", "0"), "Unknown", ""),
    ],
)
def test_a_link_is_as_slow_as_its_slower_end(
    host: Host, device: t.Tuple[str, str], port: t.Tuple[str, str], speed: str, width: str
) -> None:
    host.bridge("0000:3a:00.0", max_link_speed=port[0], max_link_width=port[1])
    host.gpu("0000:3a:00.0/0000:3b:00.0", max_link_speed=device[0], max_link_width=device[1])
    pci = list(build.build(sysfs.read(host.machine.runner()), {}, "x86_64").walk("pci"))[-1]
    assert (pci.attributes["link_speed"], pci.attributes["link_width"]) == (speed, width)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n", ("GenuineIntel", "6", "143")),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n", ("AuthenticAMD", "175", "1")),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49\n", ("AuthenticAMD", "143", "49")),
        ("CPU implementer\t: 0x41\n", (None, None, None)),
        ("", (None, None, None)),
    ],
)
def test_cpu_as_nccl_counts_families(text: str, found: t.Any) -> None:
    assert tuple(sysfs.cpu(text).values()) == found


def azure(host: Host) -> t.Tuple[tree.Node, t.Dict[str, t.Any]]:
    shape = shapes.BY_NAME["azure-nd-a100-v4"]
    host.shape(shape)
    return shapes.build(shape), sysfs.read(host.machine.runner())


#: What is done to the file or to the machine, and what is said, with its weight.
WRONG: t.Mapping[str, t.Tuple[t.Callable[[tree.Node, t.Dict[str, t.Any]], t.Any], str, str]] = {
    "a GPU of another place": (
        lambda system, seen: seen["devices"].update({"00ff:00:00.0": seen["devices"]["0001:00:00.0"]}),
        "wrong", "the GPU at 00ff:00:00.0 is not in it",
    ),
    "a GPU that is not there": (
        lambda system, seen: seen["devices"].pop("0001:00:00.0"), "wrong", "it has a GPU at 0001:00:00.0",
    ),
    "an adapter that is not in it": (
        lambda system, seen: seen["devices"].update({"0199:00:00.0": seen["devices"]["0101:00:00.0"]}),
        "doubt", "the RDMA adapter at 0199:00:00.0",
    ),
    "another NUMA node": (
        lambda system, seen: seen["devices"]["0001:00:00.0"].update(numa_node=0), "wrong", "on NUMA node 1 in it",
    ),
    "twice": (
        lambda system, seen: system.children[0].children.append(system.children[0].children[0]), "wrong", "2 times",
    ),
    "a mask that is none": (
        lambda system, seen: system.children[0].attributes.update(affinity="0-23"), "wrong", "'0-23'",
    ),
    "masks that overlap": (
        lambda system, seen: system.children[0].attributes.update(affinity=system.children[1].attributes["affinity"]),
        "doubt", "share CPUs",
    ),
    "CPUs left out": (lambda system, seen: seen.update(online="0-127"), "doubt", "leave out CPUs"),
    "an unknown speed": (
        lambda system, seen: next(system.walk("pci")).attributes.update(link_speed="fast"), "doubt", "for Gen3",
    ),
    "an odd width": (lambda system, seen: next(system.walk("pci")).attributes.update(link_width="3"), "doubt", "'3'"),
    "an address that is none": (
        lambda system, seen: next(system.walk("pci")).attributes.update(busid="1:0.0"), "wrong", "'1:0.0'",
    ),
    "a GPU apart from the adapters": (
        lambda system, seen: system.children[0].children.append(system.children[0].children[0].children.pop(0)),
        "doubt", "0003:00:00.0 shares no bridge",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_file(host: Host, case: str) -> None:
    system, seen = azure(host)
    assert validate.problems(system, seen) == []
    change, weight, words = WRONG[case]
    change(system, seen)
    found = validate.problems(system, seen)
    assert any(one.weight == weight and words in one.text for one in found), found


@pytest.mark.parametrize(
    ("text", "value"),
    [("0-3,8", "100001111"), ("0", "1"), ("", "0"), ("a-b", "0"), ("3-1", "0"), ("0-99", "1" * 100)],
)
def test_lists_of_cpus(text: str, value: str) -> None:
    assert f"{validate.cpus(text):b}" == value


def test_a_list_of_cpus_is_bounded() -> None:
    assert validate.cpus("0-99999999999").bit_length() == 16385
