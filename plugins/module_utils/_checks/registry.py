# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every health check of a GPU and of its host, in the order of a report. A new check is one function in a family."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks import (
    clocks,
    fabric,
    host,
    kernel_log,
    kernel_messages,
    limits,
    links,
    memory,
    modes,
    nvlink,
    power,
    rdma,
    shadows,
    thermal,
)
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.gpu import Check, Observation
from ansible_collections.gpufleet.pytorch.plugins.module_utils._checks.of_host import HostCheck
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import Finding

CHECKS: t.Tuple[t.Union[Check, HostCheck], ...] = (
    *memory.CHECKS,
    *links.CHECKS,
    *nvlink.CHECKS,
    *fabric.CHECKS,
    *thermal.CHECKS,
    *power.CHECKS,
    *clocks.CHECKS,
    *modes.CHECKS,
    *kernel_log.CHECKS,
    *kernel_messages.CHECKS,
    *host.CHECKS,
    *rdma.CHECKS,
    *limits.CHECKS,
    *shadows.CHECKS,
)


def judge(observed: Observation) -> t.List[Finding]:
    """The Findings of all checks. None where the host has no NVIDIA GPU."""
    return [finding for one in CHECKS for finding in one.findings(observed)]
