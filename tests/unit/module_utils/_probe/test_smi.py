# Copyright: (c) 2026, The gpufleet authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``nvidia-smi -q -x`` as drivers of several years print it: small documents, whole captures where there are any."""

from __future__ import annotations

import os
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.pytorch.plugins.module_utils._probe import smi, smi_health

#: Captures of real machines, whose ids their publishers scrubbed (https://github.com/NVIDIA/k8s-test-infra,
#: commit 3b2b865, tests/e2e/go/assertions/nvidiasmi/testdata/hardware). They are not part of this project.
SAMPLES = Path(os.environ.get("GPUFLEET_SAMPLES") or Path(__file__).resolve().parents[5] / "shared" / "samples")


def capture(name: str) -> t.Dict[str, t.Any]:
    path = SAMPLES / "nvidia-smi-xml" / name
    if not path.exists():
        pytest.skip(f"{path} is not there (GPUFLEET_SAMPLES names the folder)")
    return smi_health.parse(path.read_text(encoding="utf-8"))


def document(gpu: str, count: int = 1) -> str:
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n<nvidia_smi_log>'
        "<driver_version>580.105.08</driver_version><cuda_version>13.0</cuda_version>"
        + f'<gpu id="00000000:1B:00.0">{gpu}</gpu>' * count
        + "</nvidia_smi_log>\n"
    )


def one(gpu: str) -> t.Dict[str, t.Any]:
    return t.cast("t.Dict[str, t.Any]", smi_health.parse(document(gpu))["gpus"][0])


def at(tree: t.Any, path: str) -> t.Any:
    for part in path.split("."):
        tree = tree[part]
    return tree


@pytest.mark.parametrize(
    ("xml", "path", "value"),
    [
        ("", "pci_address", "0000:1b:00.0"),
        ("<pci><pci_bus_id>0009:01:00.0</pci_bus_id></pci>", "pci_address", "0009:01:00.0"),
        ("<fb_memory_usage><total>81559 MiB</total></fb_memory_usage>", "memory_mib", 81559),
        ("<persistence_mode>Disabled</persistence_mode>", "persistence", False),
        ("<compute_mode>Exclusive_Process</compute_mode>", "compute_mode", "exclusive_process"),
        ("<gpu_recovery_action>Drain and Reset</gpu_recovery_action>", "recovery_action", "drain_and_reset"),
        # Not supported, unknown and zero are three things.
        (
            "<retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>",
            "retired_pages.pending",
            "not_supported",
        ),
        ("<ecc_mode><current_ecc>Unknown Error</current_ecc></ecc_mode>", "ecc.current", None),
        ("<pci><replay_counter>0</replay_counter></pci>", "pcie.replay_count", 0),
        (
            "<performance_state>Requested functionality has been deprecated</performance_state>",
            "performance_state",
            "not_supported",
        ),
        ("<temperature><gpu_temp>[Unknown Error]</gpu_temp></temperature>", "temperature.gpu_c", None),
        ("<clocks><sm_clock>fast</sm_clock></clocks>", "clocks.sm_mhz", None),
        # A group that is a text.
        ("<remapped_rows>N/A</remapped_rows>", "remapped_rows.pending", "not_supported"),
        ("<remapped_rows>GPU is lost</remapped_rows>", "state", "lost"),
        ("<processes>N/A</processes>", "processes", "not_supported"),
        # SRAM errors: one number, two, or one of two unknown.
        (
            "<ecc_errors><volatile><sram_uncorrectable>3</sram_uncorrectable></volatile></ecc_errors>",
            "ecc.volatile.sram_uncorrected",
            3,
        ),
        (
            "<ecc_errors><volatile><sram_uncorrectable_parity>2</sram_uncorrectable_parity>"
            "<sram_uncorrectable_secded>5</sram_uncorrectable_secded></volatile></ecc_errors>",
            "ecc.volatile.sram_uncorrected",
            7,
        ),
        (
            "<ecc_errors><volatile><sram_uncorrectable_parity>2</sram_uncorrectable_parity>"
            "<sram_uncorrectable_secded>Unknown Error</sram_uncorrectable_secded></volatile></ecc_errors>",
            "ecc.volatile.sram_uncorrected",
            None,
        ),
        # Thresholds: temperatures, or offsets to the limit.
        (
            "<temperature><gpu_temp_slow_threshold>89 C</gpu_temp_slow_threshold></temperature>",
            "temperature.slowdown_c",
            89,
        ),
        (
            "<temperature><gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold></temperature>",
            "temperature.slowdown_tlimit_c",
            -2,
        ),
        ("<power_readings><power_draw>nan W</power_draw></power_readings>", "power.draw_w", None),
        ("<power_readings><power_draw>68.57 W</power_draw></power_readings>", "power.draw_w", 68.57),
        (
            "<clocks_throttle_reasons><clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>"
            "<clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle></clocks_throttle_reasons>",
            "clocks_event_reasons",
            ["hw_slowdown"],
        ),
        ("<product_name>NVIDIA \x07 H100</product_name>", "name", "NVIDIA \ufffd H100"),
        (
            "<processes><process_info><pid>4711</pid><type>C</type><used_memory>512 MiB</used_memory></process_info>"
            "<process_info><pid>12</pid><type>G</type><used_memory>N/A</used_memory></process_info></processes>",
            "processes",
            [
                {"pid": 4711, "kind": "compute", "memory_mib": 512},
                {"pid": 12, "kind": "graphics", "memory_mib": None},
            ],
        ),
        (
            "<fabric><state>Completed</state><status>Success</status><cliqueId>4</cliqueId>"
            "<clusterUuid>8f5c0000-0000-0000-0000-000000000001</clusterUuid><health><bandwidth>Degraded</bandwidth>"
            "<route_unhealthy>False</route_unhealthy></health></fabric>",
            "fabric.health.degraded_bandwidth",
            True,
        ),
    ],
)
def test_field(xml: str, path: str, value: t.Any) -> None:
    assert at(one(xml), path) == value


@pytest.mark.parametrize("path", ["mig", "remapped_rows", "clocks_event_counters_us", "fabric", "vgpu_license"])
def test_an_element_that_is_not_there_is_absent(path: str) -> None:
    assert path not in one("<uuid>GPU-1</uuid>")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "nothing"),
        ("No devices were found\n", "No devices were found"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "version mismatch"),
        (document("<uuid>GPU-1</uuid>")[:-40], "ends before its end"),
        (document("<uuid>GPU-1"), "no XML"),
    ],
)
def test_what_is_no_capture_says_so(text: str, says: str) -> None:
    with pytest.raises(smi.Unreadable, match=says):
        smi_health.parse(text)


@pytest.mark.parametrize("count", [0, 1, 16])
def test_any_number_of_gpus(count: int) -> None:
    assert [gpu["index"] for gpu in smi_health.parse(document("", count))["gpus"]] == list(range(count))


def test_warnings_around_the_document_do_no_harm() -> None:
    text = "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n" + document("") + "\nWARNING: again\n"
    assert len(smi_health.parse(text)["gpus"]) == 1


@pytest.mark.parametrize(
    ("name", "count", "facts"),
    [
        (
            "h100.xml",
            8,
            {
                "pcie.replay_count": 150,  # of a healthy machine
                "temperature.shutdown_tlimit_c": -8,
                "fabric.state": "completed",
                "fabric.health.summary": "not_supported",
                "power.average_w": 68.57,
                "clocks_event_counters_us.sw_power_cap": 7015662857,
                "processes": [],
            },
        ),
        (
            "a100.xml",
            1,
            {"temperature.shutdown_c": 92, "fabric.state": "not_supported", "power.average_w": "not_supported"},
        ),
        (
            "t4.xml",
            1,
            {
                "pci_address": "0000:00:1e.0",
                "pcie.width": 8,
                "pcie.width_max": 16,
                "remapped_rows.failure": "not_supported",
                "retired_pages.double_bit": 0,
                "ecc.aggregate.dram_corrected": 1,
                "mig.current": "not_supported",
            },
        ),
        ("mock-gb200-ecc-injected.xml", 2, {"ecc.volatile.dram_uncorrected": 5, "remapped_rows.failure": True}),
    ],
)
def test_capture(name: str, count: int, facts: t.Dict[str, t.Any]) -> None:
    gpus = capture(name)["gpus"]
    assert len(gpus) == count
    assert {path: at(gpus[0], path) for path in facts} == facts
    assert {gpu["state"] for gpu in gpus} == {"ok"}


def test_capture_of_a_lost_gpu() -> None:
    first, second = capture("mock-gb200-lost.xml")["gpus"]
    assert (first["state"], second["state"]) == ("ok", "lost")
    assert second["memory_mib"] is None and second["fabric"] == {"state": None}
