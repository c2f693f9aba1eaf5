# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts as a table that a person reads in ten seconds."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._words import count, line, plain

__all__ = ["line"]

Hosts = t.Mapping[str, t.Mapping[str, t.Any]]

#: More ready hosts than this are counted and not listed.
LISTED_READY = 20
WEIGHT = {"fail": 0, "unknown": 1, "warn": 2, "ok": 3, "not_applicable": 4}
#: Checks whose words are shown although they are ok.
HEADLINES = ("plan", "drift")
#: The check that stands for all that were ok where verdicts were folded (fleet.py); its words say how many.
FOLDED = "checks"
WORDS = {"ready": "ready", "not_ready": "not ready", "unknown": "unknown"}


def render(name: str, hosts: Hosts) -> list[str]:
    """The lines of the table: hosts that are not ready first, each with its reasons."""
    ready = [host for host, verdict in hosts.items() if verdict["state"] == "ready"]
    rest = sorted(host for host in hosts if host not in set(ready))
    lines = [f"{name}: {len(ready)} of {len(hosts)} hosts ready"]
    shown = rest + (sorted(ready) if len(ready) <= LISTED_READY else [])
    width = max([len(host) for host in shown] + [4])
    for host in shown:
        verdict = hosts[host]
        why = reasons(verdict)
        lines.append(f"  {host:<{width}}  {WORDS[verdict['state']]:<9}  {why[0]}")
        lines += [f"  {'':<{width}}  {'':<9}  {line}" for line in why[1:]]
    if len(shown) < len(hosts):
        lines.append(f"  and {len(hosts) - len(shown)} ready hosts")
    return lines


def reasons(verdict: t.Mapping[str, t.Any]) -> list[str]:
    """What decides the state of a host, heaviest first; what is ok in one line."""
    lines = [line(item) for item in loudest(verdict)]
    if verdict["state"] == "ready":
        fine = sorted((item for item in verdict["findings"] if item["state"] == "ok"), key=lambda item: str(item["id"]))
        # What a host runs is worth its place on the line; that the rest is fine, a count.
        says = [plain(str(item["found"])) for item in fine if item["check"] in HEADLINES]
        folded = [item["found"] for item in fine if item["check"] == FOLDED]
        lines.append("; ".join([*says, *(folded or [f"{count(len(fine), 'check')} ok"])]))
    return lines or ["no finding"]


def loudest(verdict: t.Mapping[str, t.Any]) -> list[t.Mapping[str, t.Any]]:
    """The Findings that are not fine, heaviest first."""
    findings = sorted(verdict.get("findings", []), key=lambda item: (WEIGHT[item["state"]], item["id"]))
    return [item for item in findings if item["state"] in ("fail", "unknown", "warn")]
