# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which version a plan means among those that the sources have."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._packages import driver

BOOKWORM = {"nvidia-open-kernel-dkms": ["535.261.03-1"], "nvidia-persistenced": ["535.171.04-1~deb12u1"]}
NVIDIA = {
    "nvidia-driver-pinning-580": ["580-1"],
    "nvidia-open": ["595.45.04-1", "580.105.08-1", "580.95.05-1", "575.57.08-1"],
}


@pytest.mark.parametrize(
    ("plan", "available", "expected"),
    [
        # Exactly what is planned.
        ({"branch": "535", "version": "535.261.03", "source": "os"}, BOOKWORM, "535.261.03"),
        # The distribution moved on within the branch since the plan's data were read; it never goes back.
        ({"branch": "535", "version": "535.247.01", "source": "os"}, BOOKWORM, "535.261.03"),
        ({"branch": "535", "version": "535.274.02", "source": "os"}, BOOKWORM, ""),
        ({"branch": "550", "version": "550.163.01", "source": "os"}, BOOKWORM, ""),
        # Only the branch is decided: the newest of it, by number and not by letter.
        ({"branch": "580", "version": "", "minimum": "580.65.06", "source": "nvidia"}, NVIDIA, "580.105.08"),
        ({"branch": "580", "version": "", "minimum": "580.120", "source": "nvidia"}, NVIDIA, ""),
        # NVIDIA's repository keeps what it had: a version that is named is that one or none.
        ({"branch": "580", "version": "580.95.05", "source": "nvidia"}, NVIDIA, "580.95.05"),
        ({"branch": "580", "version": "580.82.07", "source": "nvidia"}, NVIDIA, ""),
        ({"branch": "580", "version": ""}, {}, ""),
    ],
)
def test_pick(plan: t.Mapping[str, str], available: t.Mapping[str, t.Sequence[str]], expected: str) -> None:
    assert driver.pick(plan, available) == expected


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("nvidia-fabricmanager-580", True),
        ("libnvsdm-580", True),
        ("nvlsm", True),
        ("linux-modules-nvidia-580-server-open-generic", True),
        # Asked for along with a B200's fabric; it may have been there before, for somebody's InfiniBand.
        ("infiniband-diags", False),
        ("linux-modules-extra-6.8.0-1020-aws", False),
    ],
)
def test_what_goes_with_a_driver(name: str, ours: bool) -> None:
    assert driver.is_ours(name) is ours
