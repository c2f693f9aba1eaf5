# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of hosts that share jobs, against the judge: one torch, one build, and none where there is one for all."""

from __future__ import annotations

import dataclasses
import random

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._compat import fleet, loader, request
from ansible_collections.gpufleet.pytorch.tests.unit.plugin_utils._compat.properties.judge import (
    GPUS,
    Question,
    candidates,
    driver_faults,
    judge,
    published,
    wheel_faults,
)

DRIVERS = ("", "", "470.256.02", "535.288.01", "550.163.01", "570.211.01", "580.95.05", "595.84")


def group_at_random(number):
    draw = random.Random(number)
    torch = draw.choice(["2.4.1", "2.6.0", "2.7.1", "2.8.0", "2.9.0", "2.11.0", "2.13.0", "2.15.0"])
    one = Question(torch, ("NVIDIA L40S",), python=draw.choice(("3.11", "3.12")))
    hosts = {}
    for name in ("a", "b", "c")[: draw.choice((2, 3))]:
        driver = draw.choice(DRIVERS)
        hosts[name] = dataclasses.replace(
            one,
            gpus=(draw.choice(list(GPUS)),),
            arch=draw.choice(("x86_64", "x86_64", "x86_64", "aarch64")),
            driver=driver,
            driver_owner=draw.choice(("package", "package", "dgx_os")) if driver else "nobody",
            driver_policy=draw.choice(("auto", "auto", "keep")) if driver else "auto",
        )
    return hosts


def builds(asked):
    """Builds that work on the host with some driver within its wish."""
    return {
        variant
        for variant in published()[asked.torch]["cuda"]
        if not wheel_faults(asked, variant)
        and any(
            not driver_faults(asked, variant, branch, version, flavour)
            for branch, version in candidates(asked)
            for flavour in ("open", "proprietary")
        )
    }


@pytest.mark.parametrize("block", range(4))
def test_groups_at_random(block):
    seen = {"ok": 0, "conflict": 0}
    for number in range(block * 250, block * 250 + 250):
        hosts = group_at_random(number)
        asked = {name: request.request(host.torch, host.options()) for name, host in hosts.items()}
        plans = fleet.plan_group(asked, loader.load())
        works = {name: builds(host) for name, host in hosts.items()}
        able = [name for name in hosts if works[name]]
        shared = set.intersection(*(works[name] for name in able)) if able else set()
        for name, plan in plans.items():
            rules = {cause["rule"] for cause in plan.get("conflicts", [])}
            if name not in able:
                assert plan["status"] == "conflict" and "fleet-not-coherent" not in rules, (hosts, name, plan)
            elif not shared:
                assert rules == {"fleet-not-coherent"}, (hosts, name, plan)
            else:
                assert plan["status"] == "ok", (hosts, name, plan, shared)
                assert judge(hosts[name], plan) == [], (hosts, name)
                assert plan["torch"]["variant"] in shared
            seen[plan["status"]] += 1
        assert len({plan["torch"]["variant"] for plan in plans.values() if plan["status"] == "ok"}) <= 1
    assert min(seen.values()) > 50


def test_the_order_of_hosts_does_not_matter():
    for number in range(100):
        hosts = group_at_random(number)
        asked = {name: request.request(host.torch, host.options()) for name, host in hosts.items()}
        turned = dict(reversed(asked.items()))
        one, other = fleet.plan_group(asked, loader.load()), fleet.plan_group(turned, loader.load())
        assert {name: plan.get("torch") for name, plan in one.items()} == {n: p.get("torch") for n, p in other.items()}
