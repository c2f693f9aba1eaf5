# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From events of the kernel log to Findings: one for each GPU, NVSwitch or bridge, with all that it said. Pure."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import xid
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import Gpu, Judged, Observation, skip
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import About
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import HOST, Subject

Event = t.Mapping[str, t.Any]

STATES = ("ok", "warn", "fail")
#: From what is done most easily to what takes the host away longest.
ACTIONS = (
    "none",
    "restart job",
    "fix configuration",
    "ask facility",
    "reset GPU",
    "reboot",
    "drain and inspect",
    "replace",
)
#: Events of one subject that its evidence holds.
EVIDENCE_MOST = 20

NO_LOG = skip("the kernel log cannot be read; kernel-log says why")
_SINCE = {"driver load": "since the driver was loaded", "acknowledgement": "since it was acknowledged"}


def since(log: Event) -> str:
    return _SINCE.get(log["since"], "since the start of the host")


def gpu_at(address: str, observed: Observation) -> t.Optional[Gpu]:
    for facts in observed["gpus"]:
        if address and facts.get("pci_address") == address:
            return Gpu(facts, observed)
    return None


def place_of(address: str, observed: Observation) -> t.Tuple[Subject, str]:
    """What an address is, and how a person finds it."""
    gpu = gpu_at(address, observed)
    if gpu is not None:
        return gpu.subject, f"{gpu.label}: "
    if not address:
        return HOST, ""
    role = next((device["role"] for device in observed["pci"] if device["address"] == address), "")
    if role == "gpu":
        return Subject("gpu", address), f"GPU at {address}: "
    return Subject("link", address), f"{'NVSwitch' if role == 'nvswitch' else 'PCI device'} {address}: "


def by_subject(
    events: t.Sequence[Event], mean: t.Callable[[Event], xid.Code], user: bool, observed: Observation
) -> t.List[About]:
    """One part for each GPU, switch or bridge, in the order of the log: the worst first, and all that was said."""
    groups: t.Dict[t.Tuple[Subject, str], t.List[t.Tuple[Event, xid.Code]]] = {}
    for event in events:
        code = mean(event)
        if code.state != "ok" and code.user == user:
            place = place_of(event["address"], observed)
            if event["kind"] == "xid" and place[0].kind == "link":
                place = Subject("gpu", event["address"]), f"GPU at {event['address']}: "
            groups.setdefault(place, []).append((event, code))
    return [
        About(subject, _judged(label, said), {"events": [dict(event) for event, _code in said[:EVIDENCE_MOST]]})
        for (subject, label), said in groups.items()
    ]


def _judged(label: str, said: t.List[t.Tuple[Event, xid.Code]]) -> Judged:
    state = max((code.state for _event, code in said), key=STATES.index)
    worst = [code for _event, code in said if code.state == state]
    action = max((code.action for code in worst), key=ACTIONS.index)
    texts = [f"{_name(event)} ({code.meaning}){_times(event)}" for event, code in said]
    more = f" and {len(texts) - 4} more" if len(texts) > 4 else ""
    reasons = dict.fromkeys(code.reason for code in worst if code.reason)
    return Judged(
        state, label + "; ".join(texts[:4]) + more, "no such line in the kernel log", action, "; ".join(reasons)
    )


def _name(event: Event) -> str:
    if event["kind"] == "message":
        return str(event["what"] or event["name"].replace("-", " "))
    return f"{'Xid' if event['kind'] == 'xid' else 'SXid'} {event['code']}"


def _times(event: Event) -> str:
    return f", {event['count']} times" if event["count"] > 1 else ""
