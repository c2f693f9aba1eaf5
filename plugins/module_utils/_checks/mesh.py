# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVLinks between the GPUs of a host against those of its board. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding
from ansible_collections.gpufleet.pytorch.plugins.module_utils._topology.nvlinks import BOARDS

Facts = t.Mapping[str, t.Any]
#: Pairs that a person reads before the rest is counted.
SHOWN = 4


def nvlink_mesh(topology: Facts, ids: t.Mapping[str, str], error: str, virtual: bool = False) -> Finding:
    """The links of each pair of GPUs against what the board has.

    On a board with NVSwitches every pair is joined by all links of a GPU; NCCL leaves out links that are down without a
    word, and goes over PCIe where none is left. Cards are joined by bridges that somebody chose.
    """
    order, links = topology["mesh"]["order"], topology["mesh"]["links"]
    boards = {BOARDS.get(ids.get(address, ""), (0, "none")) for address in topology["gpus"]}
    count, form = boards.pop() if len(boards) == 1 else (0, "none")
    if form == "none" or len(topology["gpus"]) < 2:
        reason = "one GPU" if len(topology["gpus"]) < 2 else "these GPUs have no NVLink between them"
        return Finding("nvlink-mesh", "not_applicable", reason=reason)
    pairs = {
        (one, other): links[one][other] if one < len(links) and other < len(links[one]) else None
        for one in range(len(order))
        for other in range(one + 1, len(order))
    }
    evidence = {"mesh": {"order": order, "links": links}, "links_of_a_gpu": count}
    if not pairs or len(order) < len(topology["gpus"]) or None in pairs.values():
        return Finding(
            "nvlink-mesh",
            "unknown",
            found=error or "the links of a GPU could not be read",
            expected="what each NVLink leads to",
            action="drain and inspect",
            # Without pynvml and nvidia-smi that is so on a healthy host too, and nvlink-links judges the count.
            policy="report",
            evidence=evidence,
        )
    lacking = {pair: value for pair, value in pairs.items() if value is None or value < count}
    if form == "switch" and not lacking:
        return Finding("nvlink-mesh", "ok", found=f"each pair of {len(order)} GPUs: {count} links", evidence=evidence)
    if form == "switch" and len(order) == 4 and _even(pairs):
        # Four GPUs without a switch share their links out among three others.
        return Finding("nvlink-mesh", "ok", found=f"each pair of 4 GPUs: {pairs[0, 1]} links", evidence=evidence)
    if form == "switch" and virtual and len(order) < 8 and not any(pairs.values()):
        return Finding("nvlink-mesh", "not_applicable", reason="the hypervisor gave this machine no NVLink")
    if form == "switch":
        return Finding(
            "nvlink-mesh",
            "fail",
            found=f"{len(lacking)} of {len(pairs)} pairs have fewer: {_pairs(lacking)}",
            expected=f"{count} links between each pair",
            action="drain and inspect",
            evidence=evidence,
        )
    joined = {pair: value for pair, value in pairs.items() if value}
    if not joined:
        return Finding("nvlink-mesh", "not_applicable", reason="no bridge joins these cards", evidence=evidence)
    if form == "bridge" and lacking and (set(joined) & set(lacking)):
        return Finding(
            "nvlink-mesh",
            "warn",
            found="bridged by a part of their links: "
            + _pairs({pair: joined[pair] for pair in joined if pair in lacking}),
            expected=f"{count} links between two cards with all their bridges",
            reason="a bridge is loose, or was left out on purpose",
            policy="report",
            evidence=evidence,
        )
    return Finding("nvlink-mesh", "ok", found=f"joined by NVLink: {_pairs(joined)}", evidence=evidence)


def _even(pairs: t.Mapping[t.Any, t.Optional[int]]) -> bool:
    return len(set(pairs.values())) == 1 and all(pairs.values())


def _pairs(pairs: t.Mapping[t.Tuple[int, int], t.Optional[int]]) -> str:
    words = [f"GPU {one} and {other} {value or 'none'}" for (one, other), value in pairs.items()]
    return ", ".join(words[:SHOWN]) + (f" and {len(words) - SHOWN} more" if len(words) > SHOWN else "")
