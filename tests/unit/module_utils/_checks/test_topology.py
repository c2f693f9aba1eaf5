# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a topology means, and how that of a proof compares with today's."""

from __future__ import annotations

import copy
import typing as t
from xml.etree import ElementTree

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import mesh, paths, topology
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology import build, model, svg

H100, NVL, V100, L40S = "2330", "2321", "1db5", "26b9"
Facts = t.Dict[str, t.Any]


def device(kind: str, parents: t.Sequence[str], node: t.Optional[int], name: str = "", width: int = 16) -> Facts:
    link = {"speed": "32.0 GT/s PCIe", "width": width, "speed_max": "32.0 GT/s PCIe", "width_max": 16}
    ports = [{"name": name, "port": 1, "mbps": 400000, "guid": None}] if name else []
    ids = dict.fromkeys(("class", "vendor", "device", "subsystem_vendor", "subsystem_device"), "0x1")
    return {"kind": kind, **ids, "numa_node": node, "parents": list(parents), "link": link, "names": ports}


def machine(gpus: int, nics: t.Sequence[int], links: t.Any = None, switched: bool = True) -> t.Tuple[Facts, Facts]:
    """GPUs on two NUMA nodes, each behind a switch of its own with the adapters of its number in ``nics``."""
    devices: Facts = {}
    for gpu in range(gpus):
        node = gpu * 2 // gpus
        above = [f"0000:{gpu}0:01.0", f"0000:{gpu}1:00.0", f"0000:{gpu}2:00.0"] if switched else [f"0000:{gpu}0:01.0"]
        for depth, address in enumerate(above):
            devices[address] = device("bridge", above[:depth], node)
        devices[f"0000:{gpu}5:00.0"] = device("gpu", above, node)
        for number in range(nics.count(gpu)):
            way = [*above[:2], f"0000:{gpu}2:0{number + 1}.0"] if switched else [f"0000:{gpu}0:02.0"]
            devices.setdefault(way[-1], device("bridge", way[:-1], node))
            devices[f"0000:{gpu}6:0{number}.0"] = device("nic", way, node, f"mlx5_{gpu}{number}")
    seen = {"devices": dict(sorted(devices.items())), "nodes": {}, "cpu": {}}
    known = {
        f"0000:{gpu}5:00.0": {"index": gpu, "name": "NVIDIA H100", "links": links(gpu) if links else {}}
        for gpu in range(gpus)
    }
    return seen, known


def topology_of(gpus: int, nics: t.Sequence[int] = (), links: t.Any = None, switched: bool = True) -> Facts:
    seen, known = machine(gpus, nics, links, switched)
    return model.model(seen, known, [])


def full(gpu: int) -> t.Dict[str, int]:
    return {f"0000:c{switch}:00.0": count for switch, count in enumerate((5, 5, 4, 4))}


def pair(gpu: int, count: int = 12) -> t.Dict[str, int]:
    return {f"0000:{gpu ^ 1}5:00.0": count}


def cut(gpu: int) -> t.Dict[str, int]:
    return {**full(gpu), "0000:c0:00.0": 4} if gpu == 2 else full(gpu)


def quad(gpu: int) -> t.Dict[str, int]:
    return {f"0000:{other}5:00.0": 6 for other in range(4) if other != gpu}


def cube(gpu: int) -> t.Dict[str, int]:
    near = {0: (1, 2, 3, 4), 1: (0, 2, 3, 5), 2: (0, 1, 3, 6), 3: (0, 1, 2, 7)}
    half = near[gpu % 4]
    return {
        f"0000:{(other + 4 if gpu > 3 and other < 4 else other - 4 if gpu > 3 else other)}5:00.0": 1 for other in half
    }


MESHES: t.Mapping[str, t.Tuple[int, t.Any, str, str, str]] = {
    "a board with NVSwitches": (8, full, H100, "ok", "each pair of 8 GPUs: 18 links"),
    "a part of a board": (4, full, H100, "ok", "each pair of 4 GPUs: 18 links"),
    "four joined directly": (4, quad, H100, "ok", "each pair of 4 GPUs: 6 links"),
    "a link is down": (8, cut, H100, "fail", "7 of 28 pairs have fewer: GPU 0 and 2 17"),
    "no link is up": (8, lambda gpu: {}, H100, "fail", "GPU 0 and 1 none"),
    "a GPU that could not be asked": (8, lambda gpu: None if gpu == 3 else full(gpu), H100, "unknown", "stuck"),
    "one GPU": (1, full, H100, "not_applicable", ""),
    "cards without bridges": (4, lambda gpu: {}, NVL, "not_applicable", ""),
    "cards in pairs": (4, pair, NVL, "ok", "joined by NVLink: GPU 0 and 1 12, GPU 2 and 3 12"),
    "a loose bridge": (4, lambda gpu: pair(gpu, 8) if gpu < 2 else pair(gpu), NVL, "warn", "GPU 0 and 1 8"),
    "V100's cube": (8, cube, V100, "ok", "joined by NVLink"),
    "no NVLink": (2, lambda gpu: {}, L40S, "not_applicable", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", MESHES)
def test_nvlink_mesh(case: str) -> None:
    count, links, device_id, state, words = MESHES[case]
    topo = topology_of(count, links=links)
    finding = mesh.nvlink_mesh(topo, dict.fromkeys(topo["gpus"], device_id), "stuck")
    assert (finding.state, words in finding.found) == (state, True), finding


def test_a_part_of_a_board_in_a_virtual_machine() -> None:
    for count, links, state in ((2, lambda gpu: {}, "not_applicable"), (2, full, "ok"), (8, lambda gpu: {}, "fail")):
        topo = topology_of(count, links=links)
        assert mesh.nvlink_mesh(topo, dict.fromkeys(topo["gpus"], H100), "", virtual=True).state == state


def test_a_mesh_of_unlike_cards_and_one_without_a_driver() -> None:
    topo = topology_of(2, links=pair)
    first, second = topo["gpus"]
    assert mesh.nvlink_mesh(topo, {first: NVL, second: L40S}, "").state == "not_applicable"
    seen, _known = machine(8, ())
    silent = model.model(seen, {}, [])
    finding = mesh.nvlink_mesh(silent, dict.fromkeys(silent["gpus"], H100), "no driver")
    assert (finding.state, finding.policy, finding.found) == ("unknown", "report", "no driver")


AFFINITY: t.Mapping[str, t.Tuple[Facts, str, str]] = {
    "one behind each switch": (topology_of(4, (0, 1, 2, 3)), "ok", "behind one switch with it"),
    "none": (topology_of(4), "not_applicable", ""),
    "one for eight": (topology_of(8, (0,)), "not_applicable", ""),
    "two on one side": (topology_of(4, (0, 1)), "warn", "GPU 2 at 0000:25:00.0, GPU 3 at 0000:35:00.0"),
    "one a node": (topology_of(4, (0, 2)), "ok", "behind one switch with it, on its NUMA node"),
    "no switches": (topology_of(2, (0, 1), switched=False), "ok", "on its NUMA node"),
}


@pytest.mark.parametrize("case", AFFINITY)
def test_gpu_nic_affinity(case: str) -> None:
    topo, state, words = AFFINITY[case]
    finding = paths.gpu_nic_affinity(topo)
    assert (finding.state, words in finding.found, finding.policy) == (state, True, "report"), finding


def test_affinity_where_no_node_is_told() -> None:
    topo = topology_of(2, (0, 1), switched=False)
    for place in (*topo["gpus"].values(), *topo["nics"].values()):
        place["numa_node"] = None
    assert paths.gpu_nic_affinity(topo).state == "not_applicable"
    assert paths.numa_nodes(topo, True).state == "not_applicable"
    assert paths.numa_nodes(topo, False).state == "warn"


@pytest.mark.parametrize(
    ("values", "state", "words"),
    [
        ({}, "ok", "4 adapters, now: x16 32.0 GT/s PCIe"),
        ({"width": 8}, "warn", "mlx5_00 at 0000:06:00.0: x8 of x16"),
        ({"speed": "16.0 GT/s PCIe"}, "warn", "mlx5_00 at 0000:06:00.0: 16.0 GT/s"),
        ({"width": None, "speed": "Unknown"}, "unknown", "mlx5_00 at 0000:06:00.0"),
        ({"width": 8, "width_max": 8}, "ok", "now"),
    ],
)
def test_links_of_adapters(values: Facts, state: str, words: str) -> None:
    topo = topology_of(4, (0, 1, 2, 3))
    topo["nics"]["0000:06:00.0"].update(values)
    finding = paths.nic_link(topo)
    assert (finding.state, words in finding.found) == (state, True), finding


def test_a_bridge_that_lost_lanes_is_found_beside_its_like() -> None:
    topo = topology_of(4)
    assert paths.bridge_link(topo) == []
    topo["bridges"]["0000:11:00.0"]["width"] = 4
    (finding,) = paths.bridge_link(topo)
    assert (finding.state, "0000:11:00.0: x4 of x16" in finding.found) == ("warn", True)
    for bridge in topo["bridges"].values():
        bridge["width"] = 4
    assert paths.bridge_link(topo) == []


@pytest.mark.parametrize(
    ("registers", "virtual", "wanted", "state"),
    [
        ({"a": 0x1D}, False, False, "warn"),
        ({"a": 0x1D}, False, True, "fail"),
        ({"a": 0x1D}, True, False, "not_applicable"),
        ({"a": 0x01, "b": 0}, False, False, "ok"),
        ({"a": 0x10}, False, False, "warn"),
        ({"a": 0, "b": None}, False, False, "unknown"),
        ({}, False, False, "not_applicable"),
    ],
)
def test_acs(registers: t.Any, virtual: bool, wanted: bool, state: str) -> None:
    finding = paths.acs(registers, virtual, wanted)
    assert (finding.state, finding.policy) == (state, "report")


# ---- drift ----


def drop_nic(now: Facts) -> None:
    del now["nics"]["0000:16:00.0"]


def lose_lanes(now: Facts) -> None:
    now["gpus"]["0000:15:00.0"]["width"] = 8


def lose_lanes_above(now: Facts) -> None:
    now["bridges"]["0000:11:00.0"]["width"] = 8


def idle(now: Facts) -> None:
    for kind in ("gpus", "nics", "bridges"):
        for place in now[kind].values():
            place["speed"] = "2.5 GT/s PCIe"


def move(now: Facts) -> None:
    now["gpus"]["0000:15:00.0"]["numa_node"] = 1


def lose_links(now: Facts) -> None:
    now["mesh"]["links"][0][1] = 17


def unread_links(now: Facts) -> None:
    now["mesh"]["links"] = [[None] * 4 for _gpu in range(4)]


def lose_gpu(now: Facts) -> None:
    del now["gpus"]["0000:35:00.0"]
    now["mesh"] = {"order": now["mesh"]["order"][:3], "links": [row[:3] for row in now["mesh"]["links"][:3]]}


def unread_width(now: Facts) -> None:
    now["gpus"]["0000:15:00.0"]["width"] = None


DRIFT: t.Mapping[str, t.Tuple[t.Callable[[Facts], None], t.Any]] = {
    "nothing": (lambda now: None, []),
    "links idle": (idle, []),
    "an adapter is gone": (drop_nic, [("drift-nic-missing", "fail", "block")]),
    "a GPU is gone, which the GPUs' own drift says": (lose_gpu, []),
    "a GPU lost lanes": (lose_lanes, [("drift-link-width", "fail", "block")]),
    "a switch lost lanes": (lose_lanes_above, [("drift-link-width", "fail", "report")]),
    "a width that is not told": (unread_width, []),
    "a GPU hangs elsewhere": (move, [("drift-topology", "warn", "report")]),
    "fewer NVLinks": (lose_links, [("drift-nvlink-mesh", "fail", "block")]),
    "NVLinks that could not be read": (unread_links, [("drift-nvlink-mesh", "unknown", "report")]),
}


@pytest.mark.parametrize("case", DRIFT)
def test_drift(case: str) -> None:
    change, wanted = DRIFT[case]
    then = topology_of(4, (0, 1, 2, 3), full)
    now = copy.deepcopy(then)
    change(now)
    found: t.List[Finding] = topology.compare(then, now)
    assert [(one.check, one.state, one.policy) for one in found] == wanted
    assert topology.compare(then, {}) == topology.compare({}, then) == []


def test_a_new_adapter_is_told_and_the_digest_is_of_what_stays() -> None:
    then, now = topology_of(4, (0, 1, 2)), topology_of(4, (0, 1, 2, 3))
    assert [(one.check, one.state) for one in topology.compare(then, now)] == [("drift-topology", "warn")]
    assert then["digest"] != now["digest"]
    idle(now)
    lose_lanes(now)
    assert model.digest(now) == now["digest"]


# ---- the picture ----


@pytest.mark.parametrize(
    ("gpus", "nics", "links", "switched", "words"),
    [
        (8, range(8), full, True, "NVLink: 18 links between each pair"),
        (8, (), cut, True, "red is fewer than 18"),
        (4, (), pair, False, "NVLink x12"),
        (2, (), lambda gpu: {}, False, "No NVLink"),
        (2, (), lambda gpu: None, False, "could not be read"),
        (1, (), lambda gpu: {}, True, "GPU 0"),
        (16, (), lambda gpu: {}, False, "GPU 15"),
    ],
)
def test_the_picture_is_well_formed_and_shows_all(
    gpus: int, nics: t.Sequence[int], links: t.Any, switched: bool, words: str
) -> None:
    seen, known = machine(min(gpus, 10), list(nics), links, switched)
    if gpus > 10:
        for number in range(10, gpus):
            seen["devices"][f"000{number:x}:01:00.0"] = device("gpu", [], None)
            known[f"000{number:x}:01:00.0"] = {"index": number, "name": 'an <odd> & "name"\udce9\x00', "links": {}}
    topo = model.model(seen, known, [])
    text = svg.draw('host <b> & "c"', build.build(seen, known, "x86_64"), topo)
    root = ElementTree.fromstring(text.encode("utf-8"))
    shown = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(words in one for one in shown)
    assert all(address in shown for address in (*topo["gpus"], *topo["nics"]))
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    for box in root.iter("{http://www.w3.org/2000/svg}rect"):
        if "x" in box.attrib:
            assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
            assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height
