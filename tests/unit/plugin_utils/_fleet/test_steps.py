# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.pytorch.plugins.plugin_utils._fleet.steps import steps

PLAN = {"status": "ok", "torch": {"version": "2.13.0", "variant": "cu130"}, "driver": {"action": "keep"}}
INSTALL = {**PLAN, "driver": {"action": "install", "version": "580.178.04"}}
VENV = "/opt/gpufleet/venv"
LAST = "prove it, and record what was proved"


def held(**more):
    return {"venv": {"python": f"{VENV}/bin/python", "missing": [], **more}}


@pytest.mark.parametrize(
    ("plan", "observed", "variables", "expected"),
    [
        ({"status": "conflict"}, {}, {}, []),
        (PLAN, held(error="not there"), {}, [f"install torch 2.13.0+cu130 in {VENV}", LAST]),
        (
            PLAN,
            held(torch_version="2.13.0+cu130", torch_cuda="13.0"),
            {},
            [f"keep torch 2.13.0+cu130 in {VENV}", LAST],
        ),
        (PLAN, held(torch_version="2.13.0", torch_cuda="13.0"), {}, [f"keep torch 2.13.0 in {VENV}", LAST]),
        (
            PLAN,
            held(torch_version="2.13.0+cpu", torch_cuda=None),
            {},
            [f"replace torch 2.13.0+cpu by 2.13.0+cu130 in {VENV}", LAST],
        ),
        (
            PLAN,
            held(torch_version="2.13.0+cu130", torch_cuda="13.0", missing=["torch/lib/libc10.so"]),
            {},
            [f"repair torch 2.13.0+cu130 in {VENV}", LAST],
        ),
        (PLAN, held(), {"pytorch_python": "/opt/conda/bin/python"}, ["leave /opt/conda/bin/python as it is", LAST]),
        (
            INSTALL,
            {**held(error="not there"), "driver": {"version": "", "library_version": ""}},
            {},
            ["install driver 580.178.04 (there is none)", f"install torch 2.13.0+cu130 in {VENV}", LAST],
        ),
    ],
)
def test_steps(plan, observed, variables, expected):
    assert steps(plan, observed, variables) == expected
