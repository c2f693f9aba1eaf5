# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A record is of one machine: another's, as a cloned image has it, proves nothing here."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils import _state
from ansible_collections.gpufleet.pytorch.plugins.module_utils._finding import fold
from ansible_collections.gpufleet.pytorch.plugins.module_utils._gate import record

PLAN = {"status": "ok", "accelerator": "cuda"}
HELD = {"python": "/opt/v/bin/python", "python_version": "3.11.2", "torch_version": "2.13.0", "packages": {}}


def seen(machine, *uuids):
    gpus = [{"uuid": uuid, "name": "H100", "pci_address": f"0000:{place}b:00.0"} for place, uuid in enumerate(uuids)]
    return {"host": {"machine_id": machine, "kernel": "6.1"}, "driver": {"version": "580"}, "gpus": gpus}


@pytest.mark.parametrize(
    ("then", "now", "foreign"),
    [
        (seen("m1", "GPU-1", "GPU-2"), seen("m1", "GPU-1", "GPU-2"), False),
        (seen("m1", "GPU-1", "GPU-2"), seen("m1", "GPU-3", "GPU-4"), False),  # all were exchanged
        (seen("m1", "GPU-1", "GPU-2"), seen("m2", "GPU-1", "GPU-3"), False),  # another identity at each start
        (seen("m1", "GPU-1", "GPU-2"), seen("m2", "GPU-3", "GPU-4"), True),
        (seen("m1", "GPU-1"), seen("m2"), True),
        (seen("m1"), seen("m2"), True),
        (seen("m1"), seen("m1"), False),
        (seen(None), seen("m2"), False),  # a record of before, or a machine that has none
        (seen("m1"), seen(None), False),
    ],
)
def test_a_record_of_another_machine_is_unknown_and_made_anew(tmp_path, then, now, foreign):
    _state.write_expected(str(tmp_path), record.content(None, PLAN, {}, then, HELD, {}))
    expected = _state.read_expected(str(tmp_path))
    found = record.compared(expected, now, HELD)
    assert ("expected-foreign" in {one.check for one in found}) is foreign
    assert not foreign or fold([one for one in found if one.check != "drift-gpu-missing"]) == "unknown"
    made = record.content(expected, PLAN, {}, now, HELD, {})
    assert not foreign or made["machine_id"] == now["host"]["machine_id"]
    assert record.content(expected, PLAN, {}, then, HELD, {}) is None, "the same host again"


@pytest.mark.parametrize(
    "content", ["fifo", "folder", "[]", "{}", '{"findings": [1]}', "[" * 100000, '{"findings": 7}']
)
def test_what_the_last_proof_found_and_cannot_be_read_is_unknown(tmp_path, content):
    path = tmp_path / _state.FAILED
    if content in ("fifo", "folder"):
        (os.mkfifo if content == "fifo" else os.mkdir)(str(path))
    else:
        path.write_text(content)
    assert [(one.check, one.state) for one in record.failed(str(tmp_path))] == [("proof-known", "unknown")]
