# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What most hosts of a group have, where nobody stated what each should have."""

from __future__ import annotations

import collections
import typing as t

#: Two hosts that differ have no majority, and one has nobody to be compared with.
FEWEST = 3


def gpu_count(observed: t.Mapping[str, t.Any]) -> int:
    """The number of NVIDIA GPUs of an Observation: on the PCI bus, or shown by NVML where the bus has none."""
    return sum(device.get("role") == "gpu" for device in observed.get("pci", [])) or len(observed.get("gpus", []))


def majority(counts: t.Sequence[int]) -> int | None:
    """The count that more than half of at least three hosts have, else None."""
    if len(counts) < FEWEST:
        return None
    count, times = collections.Counter(counts).most_common(1)[0]
    return count if times * 2 > len(counts) else None
