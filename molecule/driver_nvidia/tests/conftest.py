# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each file of tests is about one of the hosts: RELEASE of Debian, 12 where it does not say."""

from __future__ import annotations

import typing as t

import pytest


@pytest.fixture(autouse=True)
def only(host: t.Any, request: pytest.FixtureRequest) -> None:
    release = getattr(request.module, "RELEASE", "12")
    if host.system_info.release.partition(".")[0] != release:
        pytest.skip(f"is about Debian {release}")
